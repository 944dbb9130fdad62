/* config_write.c - writes the resolved configuration as text. */
#include "train/config/schema.h"

#include "base/number.h"
#include "nn/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Write the shortest text in libconfig's syntax that reads back as the same number. */
static void write_real(FILE *file, double value)
{
    char text[40];
    double again = 0;

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (cddpi_parse_real(text, &again) && again == value) {
            break;
        }
    }
    fputs(text, file);
    if (strpbrk(text, ".e") == NULL) {
        fputs(".0", file);
    }
}

static void write_integer(FILE *file, int64_t value)
{
    fprintf(file, "%lld%s", (long long)value, value > INT_MAX || value < INT_MIN ? "L" : "");
}

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", file);
        } else if (c < ' ' || c == 127) {
            fprintf(file, "\\x%02x", c);
        } else {
            fputc(c, file);
        }
    }
    fputc('"', file);
}

static void write_value(FILE *file, const struct cddpi_key *key, const void *base);

/* Zero stands for the layer's own default, which is not written. */
static bool is_zero(const struct cddpi_key *key, const struct cddpi_layer *layer)
{
    const void *member = (const char *)layer + key->offset;

    switch (key->type) {
    case CDDPI_KEY_BOOL:
        return !*(const bool *)member;
    case CDDPI_KEY_INT:
        return *(const int *)member == 0;
    case CDDPI_KEY_REAL:
        return *(const double *)member == 0.0;
    case CDDPI_KEY_TEXT:
        return *(char *const *)member == NULL;
    default:
        return false;
    }
}

static void write_layers(FILE *file, const struct cddpi_config_layers *list)
{
    fputs("(", file);
    for (int i = 0; i < list->count; i++) {
        fputs(i > 0 ? ",\n    { " : "\n    { ", file);
        for (size_t k = 0; k < cddpi_layer_key_count; k++) {
            if (!is_zero(&cddpi_layer_keys[k], &list->values[i])) {
                fprintf(file, "%s = ", cddpi_layer_keys[k].path);
                write_value(file, &cddpi_layer_keys[k], &list->values[i]);
                fputs("; ", file);
            }
        }
        fputs("}", file);
    }
    fputs(list->count > 0 ? "\n  )" : ")", file);
}

/* Write a list of names: ["a", "b"], or with @p pairs ( ["a", "b"] ). */
static void write_names(FILE *file, char *const *names, int count, bool pairs)
{
    fputc(pairs ? '(' : '[', file);
    for (int i = 0; i < count; i++) {
        bool begins = pairs && i % 2 == 0;

        fputs(i > 0 ? ", " : "", file);
        fputs(begins ? "[" : "", file);
        write_string(file, names[i]);
        fputs(pairs && !begins ? "]" : "", file);
    }
    fputc(pairs ? ')' : ']', file);
}

static void write_value(FILE *file, const struct cddpi_key *key, const void *base)
{
    const void *member = (const char *)base + key->offset;
    const struct cddpi_int_list *integers = member;
    const struct cddpi_real_list *reals = member;
    const struct cddpi_text_list *texts = member;
    const struct cddpi_stage_names *stages = member;

    switch (key->type) {
    case CDDPI_KEY_BOOL:
        fputs(*(const bool *)member != key->negated ? "true" : "false", file);
        break;
    case CDDPI_KEY_INT:
        write_integer(file, *(const int *)member);
        break;
    case CDDPI_KEY_LONG:
        write_integer(file, *(const int64_t *)member);
        break;
    case CDDPI_KEY_AUTO:
        if (*(const int64_t *)member == CDDPI_AUTO) {
            write_string(file, "auto");
        } else {
            write_integer(file, *(const int64_t *)member);
        }
        break;
    case CDDPI_KEY_REAL:
        write_real(file, *(const double *)member);
        break;
    case CDDPI_KEY_TEXT:
        write_string(file, *(char *const *)member);
        break;
    case CDDPI_KEY_ENUM:
        write_string(file, cddpi_key_word(key, *(const int *)member));
        break;
    case CDDPI_KEY_INTS:
        fputc('[', file);
        for (int i = 0; i < integers->count; i++) {
            fputs(i > 0 ? ", " : "", file);
            write_integer(file, integers->values[i]);
        }
        fputc(']', file);
        break;
    case CDDPI_KEY_REALS:
        fputc('[', file);
        for (int i = 0; i < reals->count; i++) {
            fputs(i > 0 ? ", " : "", file);
            write_real(file, reals->values[i]);
        }
        fputc(']', file);
        break;
    case CDDPI_KEY_TEXTS:
        write_names(file, texts->values, texts->count, false);
        break;
    case CDDPI_KEY_STAGES:
        write_names(file, stages->values, stages->count, stages->pairs);
        break;
    case CDDPI_KEY_LAYERS:
        write_layers(file, member);
        break;
    }
}

static void indent(FILE *file, int depth)
{
    fprintf(file, "%*s", 2 * depth, "");
}

static int depth_of(const char *path)
{
    int depth = 0;

    for (; *path != '\0'; path++) {
        depth += *path == '.';
    }
    return depth;
}

/* Close the groups of @p last and open those of @p path, where they differ. */
static void change_group(FILE *file, const char *last, const char *path)
{
    int common = 0; /* groups, all words but the last, that both have in common */
    int depth = 0;

    for (size_t i = 0; last[i] != '\0' && last[i] == path[i]; i++) {
        common += last[i] == '.';
    }
    for (int open = depth_of(last); open > common; open--) {
        indent(file, open - 1);
        fputs("};\n", file);
    }
    while (strchr(path, '.') != NULL) {
        int length = (int)strcspn(path, ".");

        if (depth++ >= common) {
            indent(file, depth - 1);
            fprintf(file, "%.*s = {\n", length, path);
        }
        path += length + 1;
    }
}

char *cddpi_config_text(const struct cddpi_config *config, bool shared_only)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *last = "";
    FILE *file = open_memstream(&text, &bytes);

    if (file == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const struct cddpi_key *key = &cddpi_config_keys[i];

        if ((shared_only && key->local) || cddpi_key_without(key, config) != NULL) {
            continue;
        }
        change_group(file, last, key->path);
        indent(file, depth_of(key->path));
        fprintf(file, "%s = ", strrchr(key->path, '.') + 1);
        write_value(file, key, config);
        fputs(";\n", file);
        last = key->path;
    }
    change_group(file, last, "");
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
