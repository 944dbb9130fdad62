/* program.h - what main() of a program does: --help, --version, a wrong command line, and an output
 * that could not be written. cddp-train, whose failures go to the launcher, has its own. */
#ifndef CDDPI_PROGRAMS_PROGRAM_H
#define CDDPI_PROGRAMS_PROGRAM_H

#include "base/options.h"

enum { CDDPI_EXIT_FAILED = 1, CDDPI_EXIT_USAGE = 2 };

struct cddpi_program {
    const struct cddpi_options *options; /* the last two rows are --help and --version */
    int column;                          /* where the sentences of --help begin */
    const char *usage;                   /* what --help prints before the options */
    void (*print_more)(void);            /* what --help prints after that; NULL: nothing */
    /* Run the program. @p values: one for each option. Returns the exit status. */
    int (*run)(const char *const *values, char **words, int count);
};

/** Returns the exit status. */
int cddpi_program_main(const struct cddpi_program *program, int argc, char **argv);

/** Print the name of the program and the last failure. Returns @p exit_status. */
int cddpi_program_fail(const struct cddpi_options *options, int exit_status);

#endif
