/* train_keys.c - prints the table of train.conf's keys for people: cddp-train --keys. */
#include "programs/train_keys.h"

#include "base/error.h"
#include "base/options.h"
#include "train/config/schema.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80, INDENT = 4 };

/* Whether @p name is the key @p path, the beginning of it, or its last word. */
static bool is_named(const char *path, const char *name)
{
    const char *dot = strrchr(path, '.');

    return strncmp(path, name, strlen(name)) == 0 || (dot != NULL && strcmp(dot + 1, name) == 0);
}

/* Print a paragraph without the stars that make words bold in the manual page. */
static void print_paragraph(FILE *file, const char *text)
{
    char plain[2048];
    size_t used = 0;

    for (; *text != '\0' && used + 1 < sizeof plain; text++) {
        if (*text != '*') {
            plain[used++] = *text;
        }
    }
    plain[used] = '\0';
    fprintf(file, "%*s", INDENT, "");
    cddpi_print_wrapped(file, plain, INDENT, WIDTH);
}

static cddp_status print_key(FILE *file, const struct cddpi_key *key)
{
    char *values = NULL;
    size_t bytes = 0;
    FILE *line = open_memstream(&values, &bytes);

    CDDPI_TRY_MEMORY(line != NULL, "--keys: no memory");
    cddpi_key_print_type(line, key);
    if (key->needed != NULL) {
        fputs("; must be given with data.type = ", line);
        cddpi_key_print_needed(line, key);
    } else if (key->fallback == NULL) {
        fputs("; must be given", line);
    } else if (key->fallback[0] != '\0') {
        fprintf(line, "; default %s", key->fallback);
    }
    if (fclose(line) != 0) {
        free(values);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "--keys: no memory");
    }
    fprintf(file, "%s\n", key->path);
    print_paragraph(file, values);
    free(values);
    print_paragraph(file, key->text);
    fputc('\n', file);
    return CDDP_OK;
}

/* Print the keys of one table that @p name names (NULL: all). Adds their number to @p found. */
static cddp_status print_table(FILE *file, const struct cddpi_key *keys, size_t count,
                               const char *name, int *found)
{
    for (size_t i = 0; i < count; i++) {
        if (name == NULL || is_named(keys[i].path, name)) {
            (*found)++;
            CDDPI_TRY(print_key(file, &keys[i]));
        }
    }
    return CDDP_OK;
}

static cddp_status fail_unknown(const char *name)
{
    char nearest[CDDPI_KEY_BYTES];
    char of_layer[CDDPI_KEY_BYTES];
    bool is_layer = cddpi_key_nearest(cddpi_layer_keys, cddpi_layer_key_count, name, of_layer) <
                    cddpi_key_nearest(cddpi_config_keys, cddpi_config_key_count, name, nearest);

    return cddpi_fail(CDDP_ERR_ARGUMENT, "--keys: no key is named %s; the nearest is %s", name,
                      is_layer ? of_layer : nearest);
}

/* Print the keys that @p name names (NULL: all), those of a layer last. */
static cddp_status print_named(FILE *file, const char *name)
{
    static const char layer[] = "KEYS OF A LAYER, one group of model.layers each\n\n";
    char *text = NULL;
    size_t bytes = 0;
    FILE *of_layers = open_memstream(&text, &bytes);
    int found = 0;
    int found_layer = 0;
    cddp_status status;

    CDDPI_TRY_MEMORY(of_layers != NULL, "--keys: no memory");
    status = print_table(file, cddpi_config_keys, cddpi_config_key_count, name, &found);
    if (status == CDDP_OK) {
        status = print_table(of_layers, cddpi_layer_keys, cddpi_layer_key_count, name,
                             &found_layer);
    }
    if (fclose(of_layers) != 0 && status == CDDP_OK) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "--keys: no memory");
    }
    if (status == CDDP_OK && found_layer > 0) {
        fprintf(file, "%s%s", layer, text);
    }
    free(text);
    if (status == CDDP_OK && found + found_layer == 0) {
        status = fail_unknown(name);
    }
    return status;
}

cddp_status cddpi_train_keys(const char *name, char *const *words, int count, FILE *file)
{
    if (name[0] == '\0' && count == 0) {
        return print_named(file, NULL);
    }
    if (name[0] != '\0') {
        CDDPI_TRY(print_named(file, name));
    }
    for (int i = 0; i < count; i++) {
        CDDPI_TRY(print_named(file, words[i]));
    }
    return CDDP_OK;
}
