/* key_lookup.c - looks up keys in the table of schema.c, and prints it. doc/page_tables.c is built
 * from this file, schema.c and what they need, for the build machine, so they should need little.
 */
#include "train/config/schema.h"

#include "base/choices.h"

#include <stdio.h>
#include <string.h>

const char *cddpi_key_expects(const struct cddpi_key *key)
{
#define TYPE_EXPECTS(id, word, expects) expects,
    static const char *const texts[] = {CDDPI_KEY_TYPE_MAP(TYPE_EXPECTS)};

    return texts[key->type];
}

const struct cddpi_key *cddpi_key_find(const struct cddpi_key *keys, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].path, path) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

const char *cddpi_key_word(const struct cddpi_key *key, int value)
{
    const struct cddpi_choice *choice = key->choices;

    while (choice->word != NULL && choice->value != value) {
        choice++;
    }
    return choice->word;
}

static int choice_of(const struct cddpi_key *key, const struct cddpi_config *config)
{
    return *(const int *)(const void *)((const char *)config + key->offset);
}

const char *cddpi_config_word(const struct cddpi_config *config, const char *path)
{
    const struct cddpi_key *key = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count, path);

    return cddpi_key_word(key, choice_of(key, config));
}

bool cddpi_choices_have(const int *choices, int value)
{
    while (*choices != CDDPI_NO_CHOICE && *choices != value) {
        choices++;
    }
    return *choices == value;
}

const struct cddpi_key *cddpi_key_without(const struct cddpi_key *key,
                                          const struct cddpi_config *config)
{
    const struct cddpi_key *owner = cddpi_config_keys;

    if (key->of_choices == NULL) {
        return NULL;
    }
    while (owner->offset != key->of) {
        owner++;
    }
    return cddpi_choices_have(key->of_choices, choice_of(owner, config)) ? NULL : owner;
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL ? dot + 1 : path;
}

unsigned cddpi_key_nearest(const struct cddpi_key *keys, size_t count, const char *path,
                           char out[CDDPI_KEY_BYTES])
{
    unsigned least = ~0u;

    for (size_t i = 0; i < count; i++) {
        char known[CDDPI_KEY_BYTES];
        char *dot;

        snprintf(known, sizeof known, "%s", keys[i].path);
        do { /* the key itself, then the groups around it */
            unsigned distance = cddpi_edit_distance(known, path);
            unsigned of_word = 1 + 2 * cddpi_edit_distance(last_word(known), last_word(path));

            /* The right word in the wrong group is close, too. */
            distance = of_word < distance ? of_word : distance;
            if (distance < least) {
                least = distance;
                memcpy(out, known, sizeof known);
            }
            dot = strrchr(known, '.');
            if (dot != NULL) {
                *dot = '\0';
            }
        } while (dot != NULL);
    }
    return least;
}

/* --- printing --- */

#define TYPE_WORD(id, word, expects) word,
static const char *const type_words[] = {CDDPI_KEY_TYPE_MAP(TYPE_WORD)};

void cddpi_key_print_type(FILE *file, const struct cddpi_key *key)
{
    fputs(type_words[key->type], file);
    if (key->type == CDDPI_KEY_ENUM) {
        for (const struct cddpi_choice *choice = key->choices; choice->word != NULL; choice++) {
            fprintf(file, "%s%s", choice == key->choices ? ": " : ", ", choice->word);
        }
    } else if (key->low != 0 || key->high != 0) {
        fprintf(file, key->high >= 9e18 ? " from %.10g" : " from %.10g to %.10g", key->low,
                key->high);
    }
}

void cddpi_key_print_needed(FILE *file, const struct cddpi_key *key)
{
    const struct cddpi_key *type = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count,
                                                  "data.type");

    for (const int *value = key->needed; *value != CDDPI_NO_CHOICE; value++) {
        fprintf(file, "%s%s", value == key->needed ? "" : ", ", cddpi_key_word(type, *value));
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
    for (size_t i = 0; i < count; i++) {
        fputc('*', file);
        print_escaped(file, keys[i].path);
        fputs("* (", file);
        cddpi_key_print_type(file, &keys[i]);
        if (keys[i].needed != NULL) {
            fputs("; must be given with data.type = ", file);
            cddpi_key_print_needed(file, &keys[i]);
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
