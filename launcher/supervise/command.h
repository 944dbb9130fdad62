/* command.h - the command that each rank executes. It is found before any rank starts, so that a
 * wrong name gives one message instead of one per rank. */
#ifndef CDDPI_LAUNCHER_COMMAND_H
#define CDDPI_LAUNCHER_COMMAND_H

#include "launcher/run_options.h"

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

/** Run `cddp-train --dry-run ...` with our output and wait for it. Returns its exit status. */
int cddpi_command_dry_run(const struct cddpi_command *command, int world_size);

#endif
