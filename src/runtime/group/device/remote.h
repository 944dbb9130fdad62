/* remote.h - owns what ranks of several hosts exchange about their calls on devices. If all ranks
 * are on one host, there is no such exchange and each function does nothing.
 *
 * Calls go through a table: this code uses the collectives, and the collectives use its callers. */
#ifndef CDDPI_GROUP_DEVICE_REMOTE_H
#define CDDPI_GROUP_DEVICE_REMOTE_H

#include "group/device/group_device.h"

struct cddpi_remote_ops {
    cddp_status (*start)(struct cddpi_remote *remote);
    cddp_status (*call)(struct cddpi_remote *remote, const struct cddpi_pending *pending);
    void (*abort)(struct cddpi_remote *remote, const struct cddpi_failure *failure);
    void (*stop)(struct cddpi_remote *remote, bool finish);
};

/** Not collective. @p group has the same ranks as that of @p dev and is used for nothing else. The
 *  caller owns it and keeps it until the remote is destroyed.
 *  @param out  Release with cddpi_remote_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_remote_create(struct cddpi_group_device *dev, cddp_group *group,
                                             struct cddpi_remote **out);
void cddpi_remote_destroy(struct cddpi_remote *remote);
/** Run @p op on CPU memory among all ranks, and wait until it is done. Call it only from host_part
 *  of the device transport, in the same order on all ranks. */
cddp_status cddpi_remote_collective(struct cddpi_remote *remote, const struct cddpi_group_op *op);

/** Start the thread, after everything else of @p dev is set up. Not collective. */
static inline cddp_status cddpi_remote_start(struct cddpi_group_device *dev)
{
    return dev->remote != NULL ? dev->remote_ops->start(dev->remote) : CDDP_OK;
}

/** Compare the call of @p pending, which has its number, with the calls of all ranks, and do the
 *  CPU's part of the operation. The thread does both, in the order of these calls. */
static inline cddp_status cddpi_remote_call(struct cddpi_group_device *dev,
                                            const struct cddpi_pending *pending)
{
    return dev->remote != NULL ? dev->remote_ops->call(dev->remote, pending) : CDDP_OK;
}

/** Abort on all ranks, because @p failure ended the group. Any thread. */
static inline void cddpi_remote_abort(struct cddpi_group_device *dev,
                                      const struct cddpi_failure *failure)
{
    if (dev->remote != NULL) {
        dev->remote_ops->abort(dev->remote, failure);
    }
}

/** Stop the thread. First complete the remaining operations if @p finish, else abort them. */
static inline void cddpi_remote_stop(struct cddpi_group_device *dev, bool finish)
{
    if (dev->remote != NULL) {
        dev->remote_ops->stop(dev->remote, finish);
    }
}

#endif
