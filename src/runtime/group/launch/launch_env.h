/* launch_env.h - who this process is in its job: rank, sizes and rendezvous, as its launcher says.
 */
#ifndef CDDPI_GROUP_LAUNCH_ENV_H
#define CDDPI_GROUP_LAUNCH_ENV_H

#include <cddp/group.h>

struct cddpi_store_server;

struct cddpi_launch_env {
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    uint32_t generation;
    uint32_t timeout_ms;
    char store[1200]; /* URL; "" when this process is alone */
    char job[256];
    char token[256];
    bool hosts_store;         /* rank 0 runs the server that `store` names */
    char folder[512];         /* made for the rendezvous only, with the file; "": none */
    bool removes_file;        /* the file that `store` names was made for this rendezvous only */
    bool rendezvous_by_mpi;   /* the ranks are on several hosts, and nothing says where they meet */
    cddp_bootstrap bootstrap; /* by which the ranks came together; world_size 0: none */
    struct cddpi_store_server *server; /* rank 0's, for those: not the rendezvous's */
    char token_file[600]; /* where `token` is from, rank 0's to remove; "": elsewhere */
    const char *origin;   /* static: "options", "a lone process", or a launcher's name as
                             launch_claim.c has it */
    char says[320];       /* which variables said who this is: "RANK=0, WORLD_SIZE=2" */
};

/** Read @p options as far as the caller knows them, the rest as defaults. CDDP_ERR_ARGUMENT: the
 *  initialiser was not used. */
cddp_status cddpi_group_options_read(const cddp_group_options *options, cddp_group_options *out);

/** Read it all; nothing is opened (but the folder of the rendezvous file is made).
 *  @param options  NULL for all defaults.
 *  @return CDDP_OK or CDDP_ERR_ARGUMENT, whose text names the variable. */
cddp_status cddpi_launch_env_read(const cddp_group_options *options, struct cddpi_launch_env *out);

/** Rank and sizes alone, from the environment. */
cddp_status cddpi_launch_env_ranks(int *rank, int *world_size, int *local_rank,
                                   int *local_world_size);

#endif
