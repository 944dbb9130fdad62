/* main.c - the program cddp-run. */
#include "launcher/info.h"
#include "launcher/run_options.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/launch.h"
#include "launcher/supervise/replace_card.h"

#include "base/memory_left.h"
#include "base/streams.h"
#include "device/device.h"

#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct cddpi_launch_options options;
    int exit_status = 0;

    if (argc == 1 && strcmp(argv[0], CDDPI_CARDS_PROGRAM) == 0) {
        cddpi_device_write_list(STDOUT_FILENO);
        return 0;
    }
    cddpi_streams_open();
    if (cddpi_stack_ensure() != CDDP_OK) {
        fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
        return 1;
    }
    if (cddpi_launch_options_parse(argc, argv, &options) != CDDP_OK) {
        fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
        return 2;
    }
    switch (options.action) {
    case CDDPI_ACTION_HELP:
        cddpi_launch_options_help(stdout);
        break;
    case CDDPI_ACTION_VERSION:
        printf("cddp-run %s\n", cddp_version());
        break;
    case CDDPI_ACTION_ENV:
        cddpi_info_env();
        break;
    case CDDPI_ACTION_CHECK:
        exit_status = cddpi_info_check();
        break;
    case CDDPI_ACTION_KEYS:
        exit_status = cddpi_command_keys(&options);
        break;
    case CDDPI_ACTION_RUN:
    case CDDPI_ACTION_DRY_RUN:
    case CDDPI_ACTION_STORE:
        exit_status = cddpi_launch(&options);
        break;
    }
    cddpi_launch_options_fini(&options);
    return cddpi_streams_end("cddp-run", exit_status);
}
