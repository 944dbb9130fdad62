/* syntax.c - owns the error texts for a configuration that libconfig rejects: file, line, and the
 * line itself with a mark. */
#include "train/config/config_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char *line_of(const char *text, int line)
{
    for (; line > 1; line--) {
        const char *newline = strchr(text, '\n');

        if (newline == NULL) {
            break;
        }
        text = newline + 1;
    }
    return text;
}

/* Add the line of @p at to the error's text and, if @p marked, a mark below it. A long line is cut
 * around the place. */
static cddp_status add_line(const char *text, const char *at, bool marked)
{
    enum { COLUMNS = 80, BEFORE = 50 };
    const char *begin = at;
    const char *end = at;
    char *left;
    char *right;
    int column = 0;

    while (begin > text && begin[-1] != '\n' && at - begin < BEFORE) {
        begin--;
    }
    while (begin < at && (*begin & 0xC0) == 0x80) { /* do not start inside a character */
        begin++;
    }
    end += strcspn(at, "\r\n");
    end = end - begin > COLUMNS ? begin + COLUMNS : end;
    while (end > at && (*end & 0xC0) == 0x80) {
        end--;
    }
    left = cddpi_utf8_clean(begin, (size_t)(at - begin));
    right = cddpi_utf8_clean(at, (size_t)(end - at));
    for (char *c = left; c != NULL && *c != '\0'; c++) {
        *c = *c == '\t' ? ' ' : *c;
        column += (*c & 0xC0) != 0x80;
    }
    if (left != NULL && right != NULL) {
        (void)cddpi_fail_suffix(CDDP_ERR_CONFIG, "\n    %s%s", left, right);
    }
    if (left != NULL && right != NULL && marked) {
        (void)cddpi_fail_suffix(CDDP_ERR_CONFIG, "\n    %*s^", column, "");
    }
    cddpi_free(left);
    cddpi_free(right);
    return CDDP_ERR_CONFIG;
}

/* Count how often line @p line sets the key @p name. */
static int count_key(const char *text, int line, const char *name)
{
    const char *begin = line_of(text, line);
    size_t bytes = strcspn(begin, "\n");
    size_t length = strlen(name);
    int count = 0;

    for (size_t at = 0; at + length <= bytes; at++) {
        const char *behind = begin + at + length;

        behind += strspn(behind, " \t");
        count += memcmp(begin + at, name, length) == 0 &&
                 (at == 0 || !cddpi_config_is_name(begin[at - 1])) &&
                 (behind[0] == '=' || behind[0] == ':');
    }
    return count;
}

/* Find the setting whose key is set again in line @p line of @p file (NULL: the file that the user
 * named). libconfig has kept the first setting. */
static const config_setting_t *find_twice(const config_setting_t *group, const char *file,
                                          const char *text, int line)
{
    bool holds = config_setting_is_group(group) || config_setting_is_list(group);
    int count = holds ? config_setting_length(group) : 0;

    for (int i = 0; i < count; i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const config_setting_t *inside;
        const char *source = config_setting_source_file(setting);
        bool here = (file == NULL ? source == NULL : source != NULL && strcmp(source, file) == 0) &&
                    config_setting_source_line(setting) == (unsigned)line;

        if (config_setting_name(setting) != NULL &&
            count_key(text, line, config_setting_name(setting)) > (here ? 1 : 0)) {
            return setting;
        }
        inside = find_twice(setting, file, text, line);
        if (inside != NULL) {
            return inside;
        }
    }
    return NULL;
}

static cddp_status fail_twice(const config_t *parsed, const char *path, const char *text)
{
    int line = config_error_line(parsed);
    const config_setting_t *first = find_twice(config_root_setting(parsed),
                                               config_error_file(parsed), text, line);
    const char *file = first != NULL ? config_setting_source_file(first) : NULL;

    if (first == NULL) {
        (void)cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: a key is there twice", path, line);
    } else if (file != NULL) {
        (void)cddpi_fail(
            CDDP_ERR_CONFIG,
            "%s:%d: %s is in the included file %s already (line %u), and within ( ) a file cannot "
            "change what it includes: take it out of one of them",
            path, line, config_setting_name(first), file, config_setting_source_line(first));
    } else {
        (void)cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: %s is there twice; the first is in line %u", path,
                         line, config_setting_name(first), config_setting_source_line(first));
    }
    return add_line(text, line_of(text, line), false);
}

static cddp_status fail_in(const config_t *parsed, const char *path, const char *text)
{
    const char *cause = config_error_text(parsed);
    char what[CDDPI_FAULT_BYTES];
    int line = config_error_line(parsed);
    long at = -1;

    if (cause != NULL && strstr(cause, "duplicate") != NULL) {
        return fail_twice(parsed, path, text);
    }
    if (cause != NULL && strcmp(cause, "syntax error") == 0) {
        at = cddpi_config_find_fault(text, what);
    }
    if (at < 0) {
        (void)cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: %s", path, line,
                         cause != NULL ? cause : "no memory");
        return add_line(text, line_of(text, line), false);
    }
    line = 1;
    for (long i = 0; i < at; i++) {
        line += text[i] == '\n';
    }
    (void)cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: syntax error: %s", path, line, what);
    return add_line(text, text + at, true);
}

cddp_status cddpi_config_fail_syntax(const config_t *parsed, const char *path, const char *text)
{
    const char *name = config_error_file(parsed);
    const char *slash = strrchr(path, '/');
    char *included = NULL;
    char *file;
    int folder_bytes;
    cddp_status status;

    if (name == NULL) {
        return fail_in(parsed, path, text);
    }
    /* libconfig reports the name in the @include, which is relative to the folder of path. */
    folder_bytes = slash != NULL && name[0] != '/' ? (int)(slash + 1 - path) : 0;
    file = strncmp(name, path, (size_t)folder_bytes) == 0
               ? cddpi_strdup(name)
               : cddpi_format("%.*s%s", folder_bytes, path, name);
    status = file != NULL && cddpi_config_read_included(file, &included) == CDDP_OK
                 ? fail_in(parsed, file, included)
                 : cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: %s", name, config_error_line(parsed),
                              config_error_text(parsed));
    cddpi_free(included);
    cddpi_free(file);
    return status;
}
