/* main.c - the program cddp-train. */
#include "train/config.h"
int main(int argc, char **argv)
{
    struct cddpi_config config;

    if (argc < 2) {
        cddpi_config_print_keys(stdout);
        return 0;
    }
    if (cddpi_config_load(argv[1], argv + 2, argc - 2, &config) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 2;
    }
    fputs(cddpi_config_text(&config, false), stdout);
    return 0;
}
