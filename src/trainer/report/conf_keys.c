/* conf_keys.c - reads the text of a resolved train.conf line by line: "group = {" and "};", and
 * "key = value;", where the value may go on over several lines. */
#include "report/conf_keys.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 4096, MOST_PATH_BYTES = 256 };

/* A line without the spaces around it. */
struct piece {
    const char *text;
    size_t length;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Take the next line of *text. Returns false at the end. */
static bool next_line(const char **text, struct piece *out)
{
    size_t length = strcspn(*text, "\n");
    const char *begin = *text;

    if (*begin == '\0') {
        return false;
    }
    *text += length + (begin[length] == '\n');
    while (length > 0 && is_space(*begin)) {
        begin++;
        length--;
    }
    while (length > 0 && is_space(begin[length - 1])) {
        length--;
    }
    *out = (struct piece){begin, length};
    return true;
}

static bool ends_with(const struct piece *line, const char *end)
{
    size_t length = strlen(end);

    return line->length >= length && memcmp(line->text + line->length - length, end, length) == 0;
}

static bool equals(const struct piece *line, const char *text)
{
    return line->length == strlen(text) && memcmp(line->text, text, line->length) == 0;
}

/* How many bytes of the line are the name before " = "; 0: it has none. */
static size_t name_length(const struct piece *line)
{
    size_t length = 0;

    while (length < line->length &&
           (strchr("_-", line->text[length]) != NULL
                ? line->text[length] != '\0'
                : (line->text[length] >= '0' && line->text[length] <= '9') ||
                      (line->text[length] >= 'a' && line->text[length] <= 'z') ||
                      (line->text[length] >= 'A' && line->text[length] <= 'Z'))) {
        length++;
    }
    return line->length >= length + 3 && memcmp(line->text + length, " = ", 3) == 0 ? length : 0;
}

/* Add the key; *value becomes the list's. */
static cddp_status add_key(struct cddpi_conf_keys *keys, const char *path, char **value)
{
    void *list = cddpi_grow(keys->list, &keys->room, keys->count + 1, sizeof *keys->list);
    char *copy = cddpi_strdup(path);

    keys->list = list != NULL ? list : keys->list;
    if (list == NULL || copy == NULL) {
        cddpi_free(copy);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the keys of a configuration");
    }
    keys->list[keys->count++] = (struct cddpi_conf_key){copy, *value};
    *value = NULL;
    return CDDP_OK;
}

/* Read the value that begins in @p line after its first @p skipped bytes, and ends where a line
 * ends in ";". @p out: new memory; lines are joined by a space. */
static cddp_status read_value(const char **text, struct piece line, size_t skipped, char **out)
{
    const char *rest = *text;
    struct piece last = line;
    size_t length = 0;
    char *value;

    while (!ends_with(&last, ";") && next_line(&rest, &last)) {
    }
    value = cddpi_zalloc((size_t)(last.text + last.length - line.text) + 1);
    CDDPI_TRY_MEMORY(value != NULL, "no memory for a value of a configuration");
    line.text += skipped;
    line.length -= skipped;
    for (bool is_last = false; !is_last;) {
        size_t ends = ends_with(&line, ";") ? 1 : 0;

        if (length > 0 && line.length > ends) {
            value[length++] = ' ';
        }
        memcpy(value + length, line.text, line.length - ends);
        length += line.length - ends;
        is_last = ends == 1 || !next_line(text, &line);
    }
    *out = value;
    return CDDP_OK;
}

cddp_status cddpi_conf_keys_read(const char *text, struct cddpi_conf_keys *out)
{
    char path[MOST_PATH_BYTES] = "";
    size_t depth = 0; /* bytes of `path` that are groups, each with its dot */
    struct piece line;

    *out = (struct cddpi_conf_keys){0};
    while (out->count < MOST_KEYS && next_line(&text, &line)) {
        size_t length = name_length(&line);
        char *value = NULL;
        cddp_status status;

        if (equals(&line, "};") && depth > 0) {
            path[--depth] = '\0';
            while (depth > 0 && path[depth - 1] != '.') {
                path[--depth] = '\0';
            }
            continue;
        }
        if (length == 0 || depth + length + 2 > sizeof path) {
            continue;
        }
        memcpy(path + depth, line.text, length);
        path[depth + length] = '\0';
        if (ends_with(&line, " = {")) {
            depth += length;
            path[depth++] = '.';
            path[depth] = '\0';
            continue;
        }
        CDDPI_TRY(read_value(&text, line, length + 3, &value));
        status = add_key(out, path, &value);
        cddpi_free(value);
        CDDPI_TRY(status);
        path[depth] = '\0';
    }
    return CDDP_OK;
}

void cddpi_conf_keys_fini(struct cddpi_conf_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        cddpi_free(keys->list[i].path);
        cddpi_free(keys->list[i].value);
    }
    cddpi_free(keys->list);
    *keys = (struct cddpi_conf_keys){0};
}

const char *cddpi_conf_keys_value(const struct cddpi_conf_keys *keys, const char *path)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (strcmp(keys->list[i].path, path) == 0) {
            return keys->list[i].value;
        }
    }
    return NULL;
}

/* Is @p path no key of the first @p count lists? */
static bool is_new_key(const struct cddpi_conf_keys *lists, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        if (cddpi_conf_keys_value(&lists[i], path) != NULL) {
            return false;
        }
    }
    return true;
}

const char *cddpi_conf_keys_differ(const struct cddpi_conf_keys *lists, size_t count, size_t *at)
{
    size_t before = 0; /* the keys of the lists before this one */

    for (size_t i = 0; i < count; before += lists[i++].count) {
        while (*at >= before && *at - before < lists[i].count) {
            const struct cddpi_conf_key *key = &lists[i].list[(*at)++ - before];

            if (!is_new_key(lists, i, key->path)) {
                continue; /* it has been compared */
            }
            for (size_t other = 0; other < count; other++) {
                const char *value = cddpi_conf_keys_value(&lists[other], key->path);

                if (value == NULL || strcmp(value, key->value) != 0) {
                    return key->path;
                }
            }
        }
    }
    return NULL;
}
