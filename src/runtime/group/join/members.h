/* members.h - owns what is known before a transport is chosen: the ranks that join a group, and
 * which of them are on one host. */
#ifndef CDDPI_GROUP_MEMBERS_H
#define CDDPI_GROUP_MEMBERS_H

#include "group/join/rendezvous.h"

/* A host is a machine, or a container on it, within which ranks can share memory. Hosts are
 * numbered from 0 in the order of their lowest ranks. */
struct cddpi_members {
    const struct cddpi_launch_env *env;
    /* open until all ranks have joined; NULL: this rank is alone */
    struct cddpi_rendezvous *rendezvous;
    uint64_t nonce; /* the same on all ranks, and unique to this group */
    int host_count;
    int *host_of; /* by rank */

    /* this rank's host */
    int host;
    int local_rank; /* index of this rank among the ranks of its host, in rank order */
    int local_size;
    int *locals; /* the ranks of this host */
};

/** Exchange with the other ranks which host each is on. Collective: every rank succeeds or every
 *  rank fails. @p env and @p rendezvous (NULL for one rank) must outlive @p out.
 *  @param out  Release with cddpi_members_fini(). */
CDDP_CHECKED cddp_status cddpi_members_gather(const struct cddpi_launch_env *env,
                                              struct cddpi_rendezvous *rendezvous,
                                              struct cddpi_members *out);
/** Remove from the rendezvous what only cddpi_members_gather() needed, once all ranks have
 *  joined. */
void cddpi_members_joined(const struct cddpi_members *members);
void cddpi_members_fini(struct cddpi_members *members);

/* What a rank tells rank 0. */
struct cddpi_member {
    int world_size;
    char host_id[320]; /* equal for processes that can share memory */
};

/* `ranks` consecutive ranks on each of `hosts` hosts from `host` on. */
struct cddpi_host_run {
    int host, ranks, hosts;
};

/* Rank 0's answer. A few runs for the usual jobs, however large, since every rank reads them. */
struct cddpi_member_hosts {
    int world_size;
    uint64_t nonce;
    int count;
    struct cddpi_host_run *runs;
};

extern const struct cddpi_message_form cddpi_member_form, cddpi_member_hosts_form;

/** Read rank 0's answer into host_of (env->world_size entries), which says which host each rank is
 * on, and into nonce.
 * @return CDDP_OK; CDDP_ERR_FORMAT; CDDP_ERR_MISMATCH: the answer is for another number of
 * ranks, or from another version of cddp. */
CDDP_CHECKED cddp_status cddpi_members_read(struct cddpi_members *members, const void *answer,
                                            size_t bytes);

/** Fail with CDDP_ERR_MISMATCH: @p rank was started for another world size than rank 0. */
cddp_status cddpi_members_fail_sizes(int rank, int size, int size_of_0);

#endif
