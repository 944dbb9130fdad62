/* launch_node.h - reads launchers' variables for cddp-run: which of how many machines this is, and
 * where the machines meet. */
#ifndef CDDPI_GROUP_LAUNCH_NODE_H
#define CDDPI_GROUP_LAUNCH_NODE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cddpi_launch_node {
    int node;           /* from 0 */
    int nodes;          /* 1: only this machine, as far as the variables say */
    int least;          /* nodes come and go, and at least so many train; 0: a fixed number */
    int max_restarts;   /* with `least`; -1: not given */
    int nproc;          /* ranks to start on each machine; 0: not given */
    bool per_gpu;       /* one rank per GPU */
    char rdzv[1200];    /* "tcp://HOST:PORT"; "": not given */
    char says[320];     /* the variables: "PET_NODE_RANK=0, PET_NNODES=2"; "": none */
    char unset[320];    /* their names */
    char origin[40];    /* the launcher that set them */
    char warning[1600]; /* for the user; "": none */
};

/* What cddp-run's options already define. */
struct cddpi_launch_given {
    int nodes;         /* 0: not given */
    int least;         /* nodes come and go, and at least so many train; 0: a fixed number */
    bool has_rdzv;     /* where the machines meet is given */
    bool has_node;     /* which machine this is is given */
    bool starts_hosts; /* cddp-run itself starts the cddp-run of the other machines */
};

/** Read the environment. Creates nothing.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the variables and says what to do. */
CDDP_CHECKED cddp_status cddpi_launch_node_read(const struct cddpi_launch_given *given,
                                                struct cddpi_launch_node *out);

/** Read or create the token of a job whose launcher gives no token but whose nodes share folders
 *  (Slurm); "" for other jobs.
 *  @param out_file  The token's file, which node 0 removes once all nodes have met; "": no file.
 *  @return CDDP_OK, or an error whose text says what to do. */
CDDP_CHECKED cddp_status cddpi_launch_node_token(char *out, size_t bytes, char *out_file,
                                                 size_t file_bytes);

/** For cddp-run --check: print which launchers' variables are set, and what a process started here
 *  would be, both as a rank and as cddp-run. */
void cddpi_launch_describe(FILE *to);

#endif
