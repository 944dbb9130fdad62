/* keys_page.c - copies a manual page from stdin to stdout; the line @KEYS@ becomes the table of
 * keys. */
#include "train/config/print_keys.h"

#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *line = NULL;
    size_t bytes = 0;
    int found = 0;

    while (getline(&line, &bytes, stdin) >= 0) {
        if (strcmp(line, "@KEYS@\n") == 0) {
            cddpi_config_print_keys(stdout);
            found++;
        } else {
            fputs(line, stdout);
        }
    }
    free(line);
    if (found != 1) {
        fprintf(stderr, "keys_page: the page has %d lines @KEYS@, not one\n", found);
    }
    return found == 1 && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
