/* launch_env.h - reads from the environment who this process is in its job: rank, sizes and
 * rendezvous.
 */
#ifndef CDDPI_GROUP_LAUNCH_ENV_H
#define CDDPI_GROUP_LAUNCH_ENV_H

#include <cddp/group.h>

struct cddpi_store_server;

struct cddpi_launch_env {
    int rank;
    int world_size;
    int local_rank;
    int local_world_size; /* 0: not known before the ranks have met */
    uint32_t generation;
    uint32_t timeout_ms;      /* of collectives */
    uint32_t join_timeout_ms; /* of the meeting */
    char store[1200];         /* URL; "": this process is alone */
    char job[256];
    char token[256];
    bool hosts_store;       /* rank 0 runs the server that `store` names */
    char folder[512];       /* created only for the rendezvous file; "": no folder */
    bool removes_file;      /* the file that `store` names was created only for this rendezvous */
    bool rendezvous_by_mpi; /* ranks are on several hosts; no variable says where they meet  */
    /* the caller's way to exchange bytes before joining; world_size 0: not used */
    cddp_bootstrap bootstrap;
    /* on rank 0, the store's server for `bootstrap`; not the rendezvous's server */
    struct cddpi_store_server *server;
    char token_file[600]; /* the file that has `token`, which rank 0 removes; "": the token is not
                             from a file */
    const char *origin;   /* static: "options", "a lone process", or a launcher's name as
                             launch_claim.c has it */
    char says[320];       /* the variables that define this process: "RANK=0, WORLD_SIZE=2" */
};

/** Read the fields of @p options that the caller knows; the others get their defaults.
 *  CDDP_ERR_ARGUMENT: the initialiser was not used. */
cddp_status cddpi_group_options_read(const cddp_group_options *options, cddp_group_options *out);

/** Read everything. Opens nothing, but creates the folder of the rendezvous file.
 *  @param options  NULL for all defaults.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the variable. */
cddp_status cddpi_launch_env_read(const cddp_group_options *options, struct cddpi_launch_env *out);

#endif
