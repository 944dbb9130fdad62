/* members.h - the ranks that join a group, and which of them are on one host: what is known before
 * a transport is chosen. */
#ifndef CDDPI_GROUP_MEMBERS_H
#define CDDPI_GROUP_MEMBERS_H

#include "group/join/rendezvous.h"

/* A host is where ranks can share memory: a machine, or a container on it. Hosts count from 0, in
 * the order of their lowest ranks. */
struct cddpi_members {
    const struct cddpi_launch_env *env;
    struct cddpi_rendezvous *rendezvous; /* open until all have joined; NULL: this rank is alone */
    uint64_t nonce;                      /* the same on all ranks, and no other group's */
    int host_count;
    int *host_of; /* by rank */

    /* this rank's host */
    int host;
    int local_rank; /* place of this rank among those of its host, in rank order */
    int local_size;
    int *locals; /* the ranks of this host */
};

/** Tell the others which host this rank is on, and learn it of them. Collective: every rank
 *  succeeds or every rank fails. @p env, and @p rendezvous (NULL for one rank), outlive it.
 *  @param out  Release with cddpi_members_fini(). */
CDDP_CHECKED cddp_status cddpi_members_gather(const struct cddpi_launch_env *env,
                                              struct cddpi_rendezvous *rendezvous,
                                              struct cddpi_members *out);
/** All have joined: remove from the rendezvous what only gather() needed. */
void cddpi_members_joined(const struct cddpi_members *members);
void cddpi_members_fini(struct cddpi_members *members);

/** Read rank 0's answer, which says which host each rank is on, into host_of (of env->world_size)
 * and nonce.
 *  @return CDDP_OK; CDDP_ERR_FORMAT; CDDP_ERR_MISMATCH: it is for another number of ranks. */
CDDP_CHECKED cddp_status cddpi_members_read(struct cddpi_members *members, const char *text);

/** Set host_count, host, local_rank, local_size and locals of @p members as its host_of says for
 *  rank @p rank of @p world_size. False: no memory. */
bool cddpi_members_place(struct cddpi_members *members, int rank, int world_size);

/** Words for CDDP_ERR_MISMATCH: @p rank was started for another world size than rank 0. */
cddp_status cddpi_members_fail_sizes(int rank, int size, int size_of_0);

#endif
