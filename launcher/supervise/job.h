/* job.h - the description of a job: what is known once its command line was parsed and its machine
 * inspected. */
#ifndef CDDPI_LAUNCHER_JOB_H
#define CDDPI_LAUNCHER_JOB_H

#include "launcher/nodes/job_rendezvous.h"
#include "launcher/run_options.h"
#include "launcher/supervise/held_ranks.h"
#include "launcher/supervise/ill_cards.h"
#include "launcher/supervise/rank_cores.h"
#include "launcher/supervise/rank_memory.h"

#include <sys/resource.h>

struct cddpi_command {
    char *path;  /* the file to execute */
    char **argv; /* ended by NULL; all but argv[0] are borrowed from the options */
};

/** Find the program, or cddp-train and the train.conf.
 *  @param out  Release with cddpi_command_fini().
 *  @return CDDP_ERR_NOT_FOUND, CDDP_ERR_UNAVAILABLE (it exists but cannot be executed),
 *          CDDP_ERR_CONFIG (the train.conf cannot be read). */
CDDP_CHECKED cddp_status cddpi_command_find(const struct cddpi_launch_options *options,
                                            struct cddpi_command *out);
void cddpi_command_fini(struct cddpi_command *command);

/** Run `cddp-train --print-nproc ...` for @p cores cores. Returns the number that it prints, or @p
 *  cores if it prints no number. */
int cddpi_command_nproc(const struct cddpi_command *command, int cores);

/** Run `cddp-train --validate ...`, so that an error in the configuration is printed once and not
 *  by each rank. Returns its exit status: 0 if the configuration is valid; else it has printed what
 *  is wrong. */
int cddpi_command_validate(const struct cddpi_command *command, int world_size);

/** The same without waiting, and without writing to our stderr, which may block. Returns the pid;
 *  -1 with a message if it cannot be started. */
pid_t cddpi_command_begin_validate(const struct cddpi_command *command, int world_size);

/** That process has ended with @p exit_status (128 + its signal).
 *  @return CDDP_ERR_TIMEOUT: it took too long and was killed, so there is no answer. */
CDDP_CHECKED cddp_status cddpi_command_end_validate(const struct cddpi_command *command,
                                                    int exit_status);

/** Run `cddp-train --dry-run ...` with our output and wait for it. Returns its exit status. */
int cddpi_command_dry_run(const struct cddpi_command *command, int world_size);

/** Become `cddp-train --keys`, with the names of @p options. Returns an exit status, after printing
 *  why, only if that fails. */
int cddpi_command_keys(const struct cddpi_launch_options *options);

struct cddpi_nodes;

struct cddpi_job {
    struct cddpi_launch_options options;
    struct cddpi_rank_cores cores;
    struct cddpi_command command;
    struct cddpi_job_rendezvous rendezvous; /* unused in a dry run */
    struct cddpi_nodes *nodes;              /* NULL: nothing runs yet */
    int world_size;
    int local_world_size; /* number of ranks on this machine, from first_rank on */
    int first_rank;
    int generation;
    int report_fd;            /* ranks report through it that they are still saving; -1: none */
    int reports;              /* its other end */
    struct rlimit file_limit; /* the limit that we inherited, which ranks get */
    char log_dir[4096];       /* "": none */
    char token_file[600];     /* the file with the token, which node 0 removes; "": the token came
                                 from elsewhere */
    int head_fd;              /* end of file when the process on another machine that started this
                                 cddp-run is gone; -1: started directly */
    const char *host;         /* this machine's name in messages; NULL: its own name */
    /* For ranks of this machine; none unless a further generation may follow. */
    struct cddpi_rank_memory memory;
    struct cddpi_held_ranks held; /* their processes, between two generations */
    struct cddpi_ill_cards cards; /* that ranks do not get any more */
};

#endif
