/* program.c - owns main() of the programs but cddp-train. */
#include "programs/program.h"

#include "base/memory_left.h"
#include "base/streams.h"

#include <assert.h>

enum { MOST_OPTIONS = 32 };

int cddpi_program_fail(const struct cddpi_options *options, int exit_status)
{
    fprintf(stderr, "%s: %s\n", options->program, cddp_last_error());
    return exit_status;
}

int cddpi_program_main(const struct cddpi_program *program, int argc, char **argv)
{
    const struct cddpi_options *options = program->options;
    const char *values[MOST_OPTIONS] = {NULL};
    int count = 0;
    int exit_status = 0;

    assert(options->count <= MOST_OPTIONS);
    cddpi_streams_open();
    if (cddpi_stack_ensure() != CDDP_OK) {
        return cddpi_program_fail(options, CDDPI_EXIT_FAILED);
    }
    if (cddpi_options_read(options, argc, argv, values, &count) != CDDP_OK) {
        return cddpi_program_fail(options, CDDPI_EXIT_USAGE);
    }
    if (values[options->count - 2] != NULL) {
        fputs(program->usage, stdout);
        if (program->print_more != NULL) {
            program->print_more();
        }
        cddpi_options_print(options, program->column, stdout);
    } else if (values[options->count - 1] != NULL) {
        printf("%s %s\n", options->program, cddp_version());
    } else {
        exit_status = program->run(values, argv + 1, count);
    }
    return cddpi_streams_end(options->program, exit_status);
}
