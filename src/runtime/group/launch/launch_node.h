/* launch_node.h - what launchers' variables say to cddp-run: which of how many machines this is,
 * and where those meet. */
#ifndef CDDPI_GROUP_LAUNCH_NODE_H
#define CDDPI_GROUP_LAUNCH_NODE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cddpi_launch_node {
    int node;           /* from 0 */
    int nodes;          /* 1: this machine alone, as far as they say */
    int nproc;          /* ranks that each machine is to have; 0: they do not say */
    bool per_gpu;       /* one a GPU */
    char rdzv[1200];    /* "tcp://HOST:PORT"; "": they do not say */
    char says[320];     /* the variables: "PET_NODE_RANK=0, PET_NNODES=2"; "": none */
    char unset[320];    /* their names */
    char origin[40];    /* whose they are */
    char warning[1600]; /* for the user; "": none */
};

/* What cddp-run's options say already. */
struct cddpi_launch_given {
    int nodes;         /* 0: not said */
    bool has_rdzv;     /* it is known where they meet */
    bool has_node;     /* it is known which one this is */
    bool starts_hosts; /* cddp-run starts the other machines' itself */
};

/** Read the environment. Nothing is made.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the variables, and what to do. */
CDDP_CHECKED cddp_status cddpi_launch_node_read(const struct cddpi_launch_given *given,
                                                struct cddpi_launch_node *out);

/** The token of a job whose launcher gives it none, but folders that its nodes share (Slurm), read
 *  or made; "" for others.
 *  @param out_file  Where it is, for node 0 to remove once all have met; "": nowhere.
 *  @return CDDP_OK, or an error whose text says what to do. */
CDDP_CHECKED cddp_status cddpi_launch_node_token(char *out, size_t bytes, char *out_file,
                                                 size_t file_bytes);

/** Print, for cddp-run --check, which launchers' variables are set, and who a process started here
 *  would be: as a rank, and as cddp-run. */
void cddpi_launch_describe(FILE *to);

#endif
