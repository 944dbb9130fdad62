/* command.h - what each rank executes, found before anything is started so that a wrong name gives
 * one message and not one a rank. */
#ifndef CDDPI_LAUNCHER_COMMAND_H
#define CDDPI_LAUNCHER_COMMAND_H

#include "launcher/run_options.h"

struct cddpi_command {
    char *path;  /* of the file to execute */
    char **argv; /* ended by NULL; the texts are the options' but for argv[0] */
};

/** Find the program, or cddp-train and the train.conf.
 *  @param out  Release with cddpi_command_fini().
 *  @return CDDP_ERR_NOT_FOUND, CDDP_ERR_UNAVAILABLE (it is there but cannot be executed),
 *          CDDP_ERR_CONFIG (the train.conf cannot be read). */
CDDP_CHECKED cddp_status cddpi_command_find(const struct cddpi_launch_options *options,
                                            struct cddpi_command *out);
void cddpi_command_fini(struct cddpi_command *command);

/** Run `cddp-train --print-nproc ...` for @p cores cores and read the number that it prints;
 *  @p cores when it prints none. */
int cddpi_command_nproc(const struct cddpi_command *command, int cores);

/** Run `cddp-train --validate ...`, so that what is wrong with the configuration is said once and
 *  not by each rank. Returns its exit status: 0, or it has said what is wrong. */
int cddpi_command_validate(const struct cddpi_command *command, int world_size);

/** Run `cddp-train --dry-run ...` to its end, its output to ours. Returns its exit status. */
int cddpi_command_dry_run(const struct cddpi_command *command, int world_size);

#endif
