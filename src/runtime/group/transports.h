/* transports.h - owns the list of transports, which carry a group's operations; one row each.
 *
 * A transport is a row of this list: its name, how to test whether it can serve given ranks, how to
 * open it. A backend is an open transport of CPU memory for one group (backend.h). A device
 * transport is an open transport of device memory for that group (device_transport.h). A carrier is
 * how the backend "net" sends bytes to another host: tcp or mpi (net/carrier.h).
 *
 * A transport is one folder (or file) and one row. Control data always uses a transport of CPU
 * memory. Device memory uses a second transport, opened in addition. Rows that need CUDA are in the
 * device module (group/cuda/), which is loaded with the device. */
#ifndef CDDPI_GROUP_TRANSPORTS_H
#define CDDPI_GROUP_TRANSPORTS_H

#include "group/device_transport.h"
#include "group/group.h"
#include "group/join/members.h"

struct cddpi_group_link; /* link.h */

/* What a transport carries. */
enum cddpi_memory { CDDPI_MEMORY_CPU, CDDPI_MEMORY_DEVICE };

struct cddpi_transport {
    const char *name;
    enum cddpi_memory carries; /* which member of the union is set */
    union {
        struct {
            /* Whether it can serve these ranks. All ranks have the same information, so all get the
             * same answer. On failure the text says why not. */
            cddp_status (*probe)(const struct cddpi_members *members);
            /* Connect to the other ranks. Collective: every rank succeeds or every rank fails. */
            cddp_status (*open)(const struct cddpi_members *members, struct cddpi_backend **out);
            /* Like open, for a part of @p group. @p params has this rank's place in the part; rank
             * 0 of the part is rank @p first of @p group. All ranks of @p group call it; ranks with
             * @p joins false take part in its exchanges and get NULL. */
            cddp_status (*split)(cddp_group *group, const struct cddpi_open_params *params,
                                 int first, bool joins, struct cddpi_backend **out);
            /* Get the cores of this host; NULL: one core for all ranks. */
            void (*cores)(const struct cddpi_backend *backend, struct cddpi_cores *out);
            /* Get the link that carries the data (group/join/link.h); false: not known. NULL: never
             * known. */
            bool (*link)(const struct cddpi_backend *backend, cddp_type type,
                         struct cddpi_group_link *out);
        } cpu;
        struct {
            /* Whether it could serve these ranks, from what one rank knows: the library is present,
             * the device has the required features. Contacts no peer.
             * @return CDDP_OK; CDDP_ERR_UNAVAILABLE with the reason; any other error would hit
             *         every other transport, too. */
            cddp_status (*probe)(const struct cddpi_device_open_params *params);
            /* Called after probe succeeded on all ranks. Collective: every rank succeeds or every
             * rank fails with the same status. The text says what is wrong on which rank: two ranks
             * on one device (nccl), different versions. A part of a group opens its own transport
             * in the same way. */
            cddp_status (*open)(const struct cddpi_device_open_params *params,
                                struct cddpi_device_transport **out);
            int ranks; /* the only world size that it serves; 0: any */
            /* restricts the row to groups on one host, or on several; lets two rows share a name
             */
            enum { CDDPI_ANY_HOSTS, CDDPI_ONE_HOST, CDDPI_SEVERAL_HOSTS } hosts;
            bool for_host;   /* backend "host" may select it: ranks may share a device */
            bool by_carrier; /* data between hosts uses the group's carrier, which encrypts it if
                                requested */
        } device;
    };
};

/* The rows of the CUDA module, best first: cddpi_NAME_transport is in a folder of group/cuda/. */
#define CDDPI_CUDA_TRANSPORTS(X)                                                                   \
    X(nccl)                                                                                        \
    X(ipc)                                                                                         \
    X(staged)

/** Find the row @p name that carries CPU memory. CDDP_OK with NULL: @p name carries only device
 *  memory.
 *  @return CDDP_ERR_UNAVAILABLE if no transport has this name, with a text that lists all names. */
cddp_status cddpi_transport_find(const char *name, const struct cddpi_transport **out);

/** The first transport that can carry CPU memory for @p members; NULL: none can, and the error text
 *  is the reason of the last. */
const struct cddpi_transport *cddpi_transport_choose(const struct cddpi_members *members);

/** Row @p index among those for the memory of @p device, best first; NULL: no more rows.
 */
const struct cddpi_transport *cddpi_transport_of_device(const struct cddpi_device *device,
                                                        size_t index);

/** Append a row, for modules and tests. Call it before any group is created. @p row must stay
 *  valid.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (its name is taken), CDDP_ERR_NO_MEMORY (the list is full).
 */
CDDP_CHECKED cddp_status cddpi_transport_add(const struct cddpi_transport *row);

/* solo/: one rank, on the CPU and on a device */
extern const struct cddpi_transport cddpi_solo_transport;
extern const struct cddpi_transport cddpi_solo_device_transport;
/* shm/block.c */
extern const struct cddpi_transport cddpi_shm_transport; /* ranks of one host */
/* net/net_transport.c */
extern const struct cddpi_transport cddpi_net_transport; /* ranks of several hosts */

#endif
