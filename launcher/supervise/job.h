/* job.h - the description of a job: what is known once its command line was parsed and its machine
 * inspected. */
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
    struct cddpi_job_rendezvous rendezvous; /* unused in a dry run */
    struct cddpi_nodes *nodes;              /* NULL: one machine */
    int world_size;
    int local_world_size; /* number of ranks on this machine, from first_rank on */
    int first_rank;
    int generation;
    bool bind;
    int report_fd;            /* ranks report through it that they are still saving; -1: none */
    struct rlimit file_limit; /* the limit that we inherited, which ranks get */
    char log_dir[4096];       /* "": none */
    char token_file[600];     /* the file with the token, which node 0 removes; "": the token came
                                 from elsewhere */
    int head_fd;              /* end of file when the process on another machine that started this
                                 cddp-run is gone; -1: started directly */
    const char *host;         /* this machine's name in messages; NULL: its own name */
};

#endif
