/* job.h - what is fixed for a job once its command line was read and its machine was looked at. */
#ifndef CDDPI_LAUNCHER_JOB_H
#define CDDPI_LAUNCHER_JOB_H

#include "launcher/nodes/job_rendezvous.h"
#include "launcher/run_options.h"
#include "launcher/supervise/command.h"
#include "launcher/supervise/rank_cores.h"

#include <sys/resource.h>

struct cddpi_nodes;

struct cddpi_job {
    struct cddpi_launch_options options;
    struct cddpi_rank_cores cores;
    struct cddpi_command command;
    struct cddpi_job_rendezvous rendezvous; /* not when only a dry run is wanted */
    struct cddpi_nodes *nodes;              /* NULL: one machine */
    int world_size;
    int local_world_size; /* ranks of this machine: from first_rank on */
    int first_rank;
    int generation;
    bool bind;
    int report_fd;            /* ranks say in it that they are still saving; -1: none */
    struct rlimit file_limit; /* that we were started with, and ranks get */
    char log_dir[4096];       /* "": none */
    char token_file[600];     /* from which the token is, node 0's to remove; "": elsewhere */
    int head_fd;              /* at its end, who started this cddp-run from another machine is gone;
                                 -1: nobody did */
    const char *host;         /* what this machine is called in messages; NULL: its own name */
};

#endif
