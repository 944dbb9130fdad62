/* print_keys.c - prints the table of keys. doc/page_tables.c is built from this file, schema.c and
 * what they need, for the build machine, so they should need little. */
#include "train/config/print_keys.h"

#include "train/config/schema.h"

#include <string.h>

static void print_range(FILE *file, const struct cddpi_key *key)
{
    if (key->type == CDDPI_KEY_ENUM) {
        for (const struct cddpi_choice *choice = key->choices; choice->word != NULL; choice++) {
            fprintf(file, "%s%s", choice == key->choices ? ": " : ", ", choice->word);
        }
    } else if (key->low != 0 || key->high != 0) {
        fprintf(file, key->high >= 9e18 ? " from %.10g" : " from %.10g to %.10g", key->low,
                key->high);
    }
}

/* scdoc keeps an underscore between letters, but not at the edge of a word, and literal * and _
 * must be escaped. Key names are printed bold, defaults escaped. */
static void print_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("_*\\", *text) != NULL) {
            fputc('\\', file);
        }
        fputc(*text, file);
    }
}

static void print_keys(FILE *file, const struct cddpi_key *keys, size_t count)
{
    const struct cddpi_key *data_type = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count,
                                                       "data.type");

    for (size_t i = 0; i < count; i++) {
        fputc('*', file);
        print_escaped(file, keys[i].path);
        fprintf(file, "* (%s", cddpi_key_type_word(keys[i].type));
        print_range(file, &keys[i]);
        if (keys[i].needed != NULL) {
            fputs("; must be given with data.type = ", file);
            for (const int *type = keys[i].needed; *type != CDDPI_NO_CHOICE; type++) {
                fprintf(file, "%s%s", type == keys[i].needed ? "" : ", ",
                        cddpi_key_word(data_type, *type));
            }
        } else if (keys[i].fallback == NULL) {
            fputs("; must be given", file);
        } else if (keys[i].fallback[0] != '\0') {
            fputs("; default ", file);
            print_escaped(file, keys[i].fallback);
        }
        fprintf(file, ")\n\t%s\n\n", keys[i].text);
    }
}

void cddpi_config_print_keys(FILE *file)
{
    fputs("# KEYS\n\n", file);
    print_keys(file, cddpi_config_keys, cddpi_config_key_count);
    fputs("# KEYS OF A LAYER\n\n", file);
    print_keys(file, cddpi_layer_keys, cddpi_layer_key_count);
}
