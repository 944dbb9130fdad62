/* options.c - parses command lines with a table of options. */
#include "base/options.h"

#include "base/alloc.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/number.h"

#include <stdbool.h>
#include <string.h>

enum { WIDTH = 96 /* line width of --help */, PATHS = 64 };

/* The known option that @p name may have meant, or NULL. */
static const char *nearest(const struct cddpi_options *options, const char *name)
{
    const char *best = NULL;
    unsigned best_distance = (unsigned)strlen(name) / 3 + 2;

    for (int id = 0; id < options->count; id++) {
        const char *known = options->rows[id].name;
        size_t length = strlen(known);
        unsigned distance = cddpi_edit_distance(name, known);

        if (length > 3 && strncmp(name, known, length) == 0) {
            distance = 1; /* such as torchrun's --nproc-per-node */
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = known;
        }
    }
    return best;
}

static cddp_status unknown_option(const struct cddpi_options *options, const char *argument,
                                  const char *name, size_t length)
{
    char text[64];
    const char *known;

    snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1),
             name);
    known = text[0] != '\0' ? nearest(options, text) : NULL;
    if (known != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "unknown option %s: did you mean --%s?", argument,
                          known);
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "unknown option %s: see %s --help", argument,
                      options->program);
}

static int find_row(const struct cddpi_options *options, const char *name, size_t length,
                    char letter)
{
    for (int id = 0; id < options->count; id++) {
        const struct cddpi_option *row = &options->rows[id];

        if (letter != '\0' ? row->letter == letter
                           : strlen(row->name) == length && strncmp(row->name, name, length) == 0) {
            return id;
        }
    }
    return -1;
}

/* Whether the option may stand without its argument, which is then never a separate word. */
static bool is_optional(const struct cddpi_option *row)
{
    return row->argument != NULL && row->argument[0] == '[';
}

static bool is_path(const struct cddpi_option *row)
{
    return row->argument != NULL &&
           (strcmp(row->argument, "FILE") == 0 || strcmp(row->argument, "DIR") == 0 ||
            strcmp(row->argument, "PATH") == 0);
}

cddp_status cddpi_option_path(const struct cddpi_options *options, int id, const char **value)
{
    static char *kept[PATHS]; /* never freed: they live as long as the words of the command line */
    static int count;
    char *path = NULL;
    cddp_status status = cddpi_user_path(*value, &path);

    if (status != CDDP_OK || strcmp(path, *value) == 0) {
        cddpi_free(path);
        return status == CDDP_OK ? status
                                 : cddpi_fail_prefix(status, "--%s", options->rows[id].name);
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(kept[i], path) == 0) {
            cddpi_free(path);
            *value = kept[i];
            return CDDP_OK;
        }
    }
    if (count == PATHS) {
        cddpi_free(path);
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s: given too often", options->rows[id].name);
    }
    kept[count++] = path;
    *value = path;
    return CDDP_OK;
}

cddp_status cddpi_option_read(const struct cddpi_options *options, char **argv, int *index,
                              const char **values)
{
    char *argument = argv[*index];
    bool is_long = argument[1] == '-';
    char *name = argument + (is_long ? 2 : 1);
    size_t length = strcspn(name, "=");
    const char *value = NULL;
    int id;

    if (is_long) {
        id = find_row(options, name, length, '\0');
        value = name[length] == '=' ? name + length + 1 : NULL;
    } else {
        id = name[0] != '\0' ? find_row(options, NULL, 0, name[0]) : -1;
        value = name[0] != '\0' && name[1] != '\0' ? name + 1 : NULL; /* as in -n4 */
        if (id >= 0 && options->rows[id].argument == NULL && value != NULL) {
            id = -1;
        }
    }
    if (id < 0) {
        return unknown_option(options, argument, name, length);
    }
    if (is_optional(&options->rows[id])) {
        value = value != NULL ? value : "";
    } else if (options->rows[id].argument == NULL) {
        if (value != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s takes no value", options->rows[id].name);
        }
        value = "";
    } else if (value == NULL) {
        value = argv[*index + 1];
        if (value == NULL || strcmp(value, "--") == 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s needs a value: %s", options->rows[id].name,
                              options->rows[id].argument);
        }
        (*index)++;
    }
    values[id] = value;
    return is_path(&options->rows[id]) ? cddpi_option_path(options, id, &values[id]) : CDDP_OK;
}

cddp_status cddpi_options_read(const struct cddpi_options *options, int argc, char **argv,
                               const char **values, int *out_count)
{
    bool after_dashes = false;
    int count = 0;

    for (int i = 1; i < argc; i++) {
        if (after_dashes || argv[i][0] != '-' || argv[i][1] == '\0') {
            argv[1 + count++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            after_dashes = true;
        } else {
            CDDPI_TRY(cddpi_option_read(options, argv, &i, values));
        }
    }
    *out_count = count;
    return CDDP_OK;
}

cddp_status cddpi_option_choice(const struct cddpi_options *options, const char *const *values,
                                const int *ids, int count, int *out)
{
    int chosen = -1;

    for (int i = 0; i < count; i++) {
        if (values[ids[i]] == NULL) {
            continue;
        }
        if (chosen >= 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s and --%s exclude each other",
                              options->rows[chosen].name, options->rows[ids[i]].name);
        }
        chosen = ids[i];
    }
    *out = chosen;
    return CDDP_OK;
}

cddp_status cddpi_option_word(const struct cddpi_options *options, const char *const *values,
                              int id, const char *const *words, int count, int *out)
{
    char known[128] = "";
    size_t used = 0;

    if (values[id] == NULL) {
        return CDDP_OK;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(values[id], words[i]) == 0) {
            *out = i;
            return CDDP_OK;
        }
        if (used < sizeof known) {
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     i == 0           ? ""
                                     : i + 1 == count ? " or "
                                                      : ", ",
                                     words[i]);
        }
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s %s: it is %s", options->rows[id].name, values[id],
                      known);
}

cddp_status cddpi_option_whole(const struct cddpi_options *options, const char *const *values,
                               int id, int64_t low, int64_t high, int64_t *out)
{
    if (values[id] != NULL && !cddpi_parse_integer(values[id], low, high, out)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s %s: not a whole number from %lld to %lld",
                          options->rows[id].name, values[id], (long long)low, (long long)high);
    }
    return CDDP_OK;
}

void cddpi_print_wrapped(FILE *to, const char *text, int from, int width)
{
    int column = from;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");

        if (column > from && column + 1 + length > width) {
            fprintf(to, "\n%*s", from, "");
            column = from;
        } else if (column > from) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, (size_t)length, to);
        column += length;
        text += length + (text[length] == ' ' ? 1 : 0);
    }
    fputc('\n', to);
}

void cddpi_options_print(const struct cddpi_options *options, int column, FILE *to)
{
    for (int id = 0; id < options->count; id++) {
        const struct cddpi_option *row = &options->rows[id];
        char left[64];
        int used = row->letter != '\0'
                       ? snprintf(left, sizeof left, "  -%c, --%s", row->letter, row->name)
                       : snprintf(left, sizeof left, "  --%s", row->name);

        if (row->argument != NULL) {
            snprintf(left + used, sizeof left - (size_t)used, "%s%s", is_optional(row) ? "" : " ",
                     row->argument);
        }
        if ((int)strlen(left) < column) {
            fprintf(to, "%-*s", column, left);
        } else {
            fprintf(to, "%s\n%*s", left, column, "");
        }
        cddpi_print_wrapped(to, row->text, column, WIDTH);
    }
}
