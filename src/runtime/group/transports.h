/* transports.h - the list of transports: what carries a group's operations, one row each.
 *
 * A transport is a row of this list: its name, whether it can serve some ranks, how it is opened.
 * A backend is what an open transport of the processor's memory is for one group (backend.h).
 * A device transport is what an open one of a device's memory is, beside it (device_transport.h).
 * A carrier is how the backend "net" sends bytes to another host: tcp or mpi (net/carrier.h).
 *
 * A transport is one folder (or file) and one row. Control always goes through one that carries the
 * processor's memory; a device's memory goes through one of its own, which is opened beside it.
 * Rows that need CUDA lie in the device's module (group/cuda/) and come with the device. */
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
    enum cddpi_memory carries; /* says which of the two that follow is set */
    union {
        struct {
            /* Whether it can serve these ranks, about which all of them know the same. Words why
             * not. */
            cddp_status (*probe)(const struct cddpi_members *members);
            /* Connect to the other ranks. Collective: every rank succeeds or every rank fails. */
            cddp_status (*open)(const struct cddpi_members *members, struct cddpi_backend **out);
            /* As open, for a part of @p group: this rank's place is in @p params, the part's rank 0
             * is rank @p first here. All ranks of @p group call it; those with @p joins false take
             * part in its exchanges and get NULL. */
            cddp_status (*split)(cddp_group *group, const struct cddpi_open_params *params,
                                 int first, bool joins, struct cddpi_backend **out);
            /* The cores of this host; NULL: one, for all ranks. */
            void (*cores)(const struct cddpi_backend *backend, struct cddpi_cores *out);
            /* What the data go over, as group/join/link.h has it; false: that is not known. NULL:
             * never. */
            bool (*link)(const struct cddpi_backend *backend, cddp_type type,
                         struct cddpi_group_link *out);
        } cpu;
        struct {
            /* Whether it could serve these ranks, as far as one of them knows: the library is
             * there, the device can do what it takes. Calls no peer.
             * @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why not; else an error that every other
             *         transport would have, too. */
            cddp_status (*probe)(const struct cddpi_device_open_params *params);
            /* After probe has passed on all ranks. Collective: every rank succeeds or every rank
             * fails with the same status. Says what is wrong on which rank: two ranks on one device
             * (nccl), versions that differ. A part of a group opens its own likewise. */
            cddp_status (*open)(const struct cddpi_device_open_params *params,
                                struct cddpi_device_transport **out);
            int ranks; /* the size of group that it serves; 0: any */
            /* only where all ranks are on one host, or only where they are not: for two of a name
             */
            enum { CDDPI_ANY_HOSTS, CDDPI_ONE_HOST, CDDPI_SEVERAL_HOSTS } hosts;
            bool for_host;   /* backend "host" means this, too: ranks may share a device */
            bool by_carrier; /* what goes between hosts goes by the group's carrier, which encrypts
                                it where that is wanted */
        } device;
    };
};

/* The rows of the CUDA module, best first: cddpi_NAME_transport is in a folder of group/cuda/. */
#define CDDPI_CUDA_TRANSPORTS(X)                                                                   \
    X(nccl)                                                                                        \
    X(ipc)                                                                                         \
    X(staged)

/** The row of @p name that carries the processor's memory. CDDP_OK with NULL: @p name carries a
 *  device's alone.
 *  @return CDDP_ERR_UNAVAILABLE if no transport has this name, with a text that lists all names. */
cddp_status cddpi_transport_find(const char *name, const struct cddpi_transport **out);

/** The first that can carry the processor's memory for @p members, or NULL with the last one's
 *  reason. */
const struct cddpi_transport *cddpi_transport_choose(const struct cddpi_members *members);

/** Row @p index of those that carry the memory of @p device, best first; NULL: there are no more.
 */
const struct cddpi_transport *cddpi_transport_of_device(const struct cddpi_device *device,
                                                        size_t index);

/** Add a row after the others, for modules and tests. Before any group is created;
 *  @p row stays valid.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (its name is taken), CDDP_ERR_NO_MEMORY (the list is full).
 */
CDDP_CHECKED cddp_status cddpi_transport_add(const struct cddpi_transport *row);

/* solo/: one rank, on the processor, and on a device */
extern const struct cddpi_transport cddpi_solo_transport;
extern const struct cddpi_transport cddpi_solo_device_transport;
/* shm/block.c */
extern const struct cddpi_transport cddpi_shm_transport; /* ranks of one host */
/* net/net_transport.c */
extern const struct cddpi_transport cddpi_net_transport; /* ranks of several hosts */

#endif
