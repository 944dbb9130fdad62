/* page_tables.c - copies a manual page from stdin to stdout and puts tables into it: the line
 * @KEYS@ becomes the keys of train.conf, @ENVIRONMENT@ the environment variables. */
#include "base/env.h"
#include "train/config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Print @p text so that scdoc takes nothing in it for markup. */
static void print_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("\\_*#<>[]~.", *text) != NULL) {
            putchar('\\');
        }
        putchar(*text);
    }
}

static void print_environment(void)
{
#define ROW(id, name, fallback, text) {name, fallback, text},
#define SUBJECT(first, name) [CDDPI_ENV_##first] = (name),
    static const struct cddpi_env_row rows[] = {CDDPI_ENV_MAP(ROW)};
    static const char *const subjects[CDDPI_ENV_COUNT] = {CDDPI_ENV_SUBJECT_MAP(SUBJECT)};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (subjects[i] != NULL) {
            fputs("## ", stdout);
            print_plain(subjects[i]);
            fputs("\n\n", stdout);
        }
        putchar('*');
        print_plain(rows[i].name);
        putchar('*');
        if (rows[i].fallback[0] != '\0') {
            fputs(" (", stdout);
            print_plain(rows[i].fallback);
            putchar(')');
        }
        fputs("\n\t", stdout);
        print_plain(rows[i].text);
        fputs("\n\n", stdout);
    }
}

int main(void)
{
    char *line = NULL;
    size_t bytes = 0;
    int tables = 0;

    while (getline(&line, &bytes, stdin) >= 0) {
        if (strcmp(line, "@KEYS@\n") == 0) {
            cddpi_config_print_keys(stdout);
            tables++;
        } else if (strcmp(line, "@ENVIRONMENT@\n") == 0) {
            print_environment();
            tables++;
        } else {
            fputs(line, stdout);
        }
    }
    free(line);
    if (tables != 1) {
        fprintf(stderr, "page_tables: the page has %d lines @KEYS@ or @ENVIRONMENT@, not one\n",
                tables);
    }
    return tables == 1 && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
