/* remote.h - what ranks of several hosts tell each other about their calls on devices. Where all
 * ranks are on one host there is none of it, and each function does nothing.
 *
 * Called by a table, because it stands on the collectives, which stand on those that call it. */
#ifndef CDDPI_GROUP_DEVICE_REMOTE_H
#define CDDPI_GROUP_DEVICE_REMOTE_H

#include "group/device/group_device.h"

struct cddpi_remote_ops {
    cddp_status (*start)(struct cddpi_remote *remote);
    cddp_status (*call)(struct cddpi_remote *remote, const struct cddpi_pending *pending);
    void (*abort)(struct cddpi_remote *remote, const struct cddpi_failure *failure);
    void (*stop)(struct cddpi_remote *remote, bool finish);
};

/** Not collective. @p group: of the same ranks as @p dev's, for this alone; it is the caller's, and
 *  outlives it.
 *  @param out  Release with cddpi_remote_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_remote_create(struct cddpi_group_device *dev, cddp_group *group,
                                             struct cddpi_remote **out);
void cddpi_remote_destroy(struct cddpi_remote *remote);
/** @p op on the processor's memory among all ranks, to its end. Only from host_part of the device's
 *  transport, and in the same order on all ranks. */
cddp_status cddpi_remote_collective(struct cddpi_remote *remote, const struct cddpi_group_op *op);

/** Start the thread; once everything else of @p dev is there. Not collective. */
static inline cddp_status cddpi_remote_start(struct cddpi_group_device *dev)
{
    return dev->remote != NULL ? dev->remote_ops->start(dev->remote) : CDDP_OK;
}

/** Compare the call of @p pending, which has its number, with those of all ranks, and do the
 *  processor's part of it. The thread does that in the order of these calls. */
static inline cddp_status cddpi_remote_call(struct cddpi_group_device *dev,
                                            const struct cddpi_pending *pending)
{
    return dev->remote != NULL ? dev->remote_ops->call(dev->remote, pending) : CDDP_OK;
}

/** The group has ended because of @p failure: so does this, on all ranks. Any thread. */
static inline void cddpi_remote_abort(struct cddpi_group_device *dev,
                                      const struct cddpi_failure *failure)
{
    if (dev->remote != NULL) {
        dev->remote_ops->abort(dev->remote, failure);
    }
}

/** Do what is left if @p finish, else end it; then end the thread. */
static inline void cddpi_remote_stop(struct cddpi_group_device *dev, bool finish)
{
    if (dev->remote != NULL) {
        dev->remote_ops->stop(dev->remote, finish);
    }
}

#endif
