/* config_file.c - reads a configuration file, checks the files that it includes, and parses it into
 * libconfig's tree without truncating its numbers. libconfig reads included files itself, but does
 * not say which one it could not open, and truncates whole numbers to 32 bits. */
#include "train/config/config_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if LIBCONFIG_VER_MAJOR == 1 && LIBCONFIG_VER_MINOR < 7
enum { JOINS_ALL = 1 }; /* libconfig prefixes the folder even to absolute paths */
#else
enum { JOINS_ALL = 0 };
#endif
enum {
    FILE_BYTES_MAX = 1 << 20,
    FILES_MAX = 100,
    BYTES_MAX = 4 << 20 /* of all files; a file that is included twice counts twice */
};

/* Read @p fd to its end and close it. */
static cddp_status read_all(int fd, const char *path, char **out)
{
    char *text = cddpi_zalloc(FILE_BYTES_MAX + 1);
    size_t used = 0;
    ssize_t got = -1;

    while (text != NULL && used < FILE_BYTES_MAX) {
        got = read(fd, text + used, FILE_BYTES_MAX - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    if (text == NULL || got != 0 || strlen(text) != used) {
        cddp_status status = text == NULL ? cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path)
                             : got < 0    ? cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path)
                             : used == FILE_BYTES_MAX
                                 ? cddpi_fail(CDDP_ERR_CONFIG, "%s: larger than 1 MiB", path)
                                 : cddpi_fail(CDDP_ERR_CONFIG,
                                              "%s: not a text file: it holds NUL bytes", path);
        close(fd);
        cddpi_free(text);
        return status;
    }
    close(fd);
    *out = text;
    return CDDP_OK;
}

size_t cddpi_config_opaque_length(const char *text, bool *out_is_open)
{
    const char *end;
    bool is_open = false;
    size_t length = 0;

    if (text[0] == '"') {
        length = 1;
        while (text[length] != '\0' && text[length] != '"') {
            length += text[length] == '\\' && text[length + 1] != '\0' ? 2 : 1;
        }
        is_open = text[length] == '\0';
        length += is_open ? 0 : 1;
    } else if (text[0] == '#' || (text[0] == '/' && text[1] == '/')) {
        length = strcspn(text, "\n");
    } else if (text[0] == '/' && text[1] == '*') {
        end = strstr(text + 2, "*/");
        is_open = end == NULL;
        length = end != NULL ? (size_t)(end - text) + 2 : strlen(text);
    }
    if (out_is_open != NULL) {
        *out_is_open = is_open;
    }
    return length;
}

/* Refuse a comment or a string that does not end: libconfig would silently drop the rest of the
 * file. */
static cddp_status check_ends(const char *path, const char *text)
{
    int line = 1;

    while (*text != '\0') {
        bool is_open = false;
        size_t length = cddpi_config_opaque_length(text, &is_open);

        if (is_open) {
            return cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: the %s that begins here has no end", path,
                              line, text[0] == '"' ? "string" : "comment");
        }
        for (length = length > 0 ? length : 1; length > 0; length--) {
            line += *text++ == '\n';
        }
    }
    return CDDP_OK;
}

/* Pass @p text to the caller, or release it if it cannot be a configuration. */
static cddp_status pass_text(const char *path, char *text, char **out)
{
    cddp_status status;

    memset(text, ' ', cddpi_utf8_mark(text, strlen(text)));
    status = check_ends(path, text);
    if (status != CDDP_OK) {
        cddpi_free(text);
        return status;
    }
    *out = text;
    return CDDP_OK;
}

cddp_status cddpi_config_read_text(const char *path, char **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;

    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    CDDPI_TRY(read_all(fd, path, &text));
    return pass_text(path, text, out);
}

cddp_status cddpi_config_read_included(const char *path, char **out)
{
    int fd = -1;
    char *text = NULL;

    if (cddpi_file_open_regular(path, O_RDONLY, 0, &fd) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_CONFIG, "%s", path);
    }
    CDDPI_TRY(read_all(fd, path, &text));
    if (cddpi_utf8_mark(text, strlen(text)) > 0) {
        cddpi_free(text); /* libconfig reads included files itself, and would fail on the mark */
        return cddpi_fail(
            CDDP_ERR_CONFIG,
            "%s: it begins with a byte order mark, which an included file cannot have: "
            "save it as UTF-8 without one (BOM)",
            path);
    }
    return pass_text(path, text, out);
}

static const char word_bytes[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.";

/* Whether the word is a whole number that may need more than 32 bits and does not end in L. */
static bool is_wide(const char *text, size_t length)
{
    if (length >= 10 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return strspn(text + 2, "0123456789abcdefABCDEF") == length - 2;
    }
    return length >= 10 && strspn(text, "0123456789") == length;
}

/* The line of the first whole number in @p text that libconfig would truncate to 32 bits; 0: no
 * such number. */
static int wide_line(const char *text)
{
    int line = 1;

    while (*text != '\0') {
        size_t opaque = cddpi_config_opaque_length(text, NULL);
        size_t length = opaque > 0 ? opaque : strspn(text, word_bytes);

        if (opaque == 0 && is_wide(text, length)) {
            return line;
        }
        for (length = length > 0 ? length : 1; length > 0; length--) {
            line += *text++ == '\n';
        }
    }
    return 0;
}

/* libconfig 1.5 silently truncates whole numbers to 32 bits unless they end in L, so add the L. */
static char *widen_integers(const char *text)
{
    char *copy = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&copy, &bytes);

    if (file == NULL) {
        return NULL;
    }
    while (*text != '\0') {
        size_t opaque = cddpi_config_opaque_length(text, NULL);
        size_t length = opaque > 0 ? opaque : strspn(text, word_bytes);
        bool wide = opaque == 0 && is_wide(text, length);

        length = length > 0 ? length : 1;
        fwrite(text, 1, length, file);
        fputs(wide ? "L" : "", file);
        text += length;
    }
    if (fclose(file) != 0) {
        free(copy);
        return NULL;
    }
    return copy;
}

int cddpi_config_parse(config_t *parsed, const char *text)
{
    char *wide = widen_integers(text);
    int result = wide != NULL ? config_read_string(parsed, wide) : CONFIG_FALSE;

    free(wide);
    return result;
}

static int folder_bytes_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? (int)(slash - path) + 1 : 0;
}

char *cddpi_config_include_path(const char *root, const char *name, int name_bytes)
{
    return cddpi_format("%.*s%.*s", name[0] == '/' ? 0 : folder_bytes_of(root), root, name_bytes,
                        name);
}

/* The files checked so far. */
struct include_walk {
    const char *root; /* the user's file, against whose folder libconfig resolves names */
    int files;
    size_t bytes;
};

static cddp_status check_text(struct include_walk *walk, const char *from, const char *text,
                              int depth);

static cddp_status check_file(struct include_walk *walk, const char *from, int line,
                              const char *name, int name_bytes, int depth)
{
    int folder_bytes = folder_bytes_of(walk->root);
    char *path = cddpi_config_include_path(walk->root, name, name_bytes);
    char *text = NULL;
    int wide;
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory", from);
    if (name[0] == '/' && folder_bytes > 0 && JOINS_ALL) {
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "%s:%d: %.*s: give an included file relative to the folder %.*s", from,
                            line, name_bytes, name, folder_bytes, walk->root);
        goto out;
    }
    status = cddpi_config_read_included(path, &text);
    if (status != CDDP_OK) {
        status = status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s:%d", from, line)
                                           : status;
        goto out;
    }
    walk->files++;
    walk->bytes += strlen(text);
    if (walk->files > FILES_MAX || walk->bytes > BYTES_MAX) { /* a few files that include each
                                                                 other could cause billions */
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "%s:%d: with this one %d files of %zu bytes are included, one that is "
                            "included several times counted as often; at most %d of %d bytes may "
                            "be",
                            from, line, walk->files, walk->bytes, FILES_MAX, BYTES_MAX);
        goto out;
    }
    wide = wide_line(text);
    if (wide > 0) {
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "%s:%d: in an included file a whole number that may need more than 32 "
                            "bits has to end in L, as in 10000000000L",
                            path, wide);
        goto out;
    }
    status = check_text(walk, path, text, depth + 1);
out:
    cddpi_free(text);
    cddpi_free(path);
    return status;
}

const char *cddpi_config_included_name(const char *text, int *out_bytes)
{
    static const char include[] = "@include";
    const char *name = text + sizeof include - 1;
    const char *end;

    if (strncmp(text, include, sizeof include - 1) != 0) {
        return NULL;
    }
    name += strspn(name, " \t");
    end = *name == '"' ? strchr(name + 1, '"') : NULL;
    *out_bytes = end != NULL ? (int)(end - name - 1) : 0;
    return end != NULL ? name + 1 : NULL;
}

static cddp_status check_text(struct include_walk *walk, const char *from, const char *text,
                              int depth)
{
    int line = 1;

    while (*text != '\0' && depth <= CDDPI_INCLUDE_DEPTH) {
        size_t length = cddpi_config_opaque_length(text, NULL);
        int name_bytes = 0;
        const char *name = length == 0 ? cddpi_config_included_name(text, &name_bytes) : NULL;

        if (name != NULL) {
            CDDPI_TRY(check_file(walk, from, line, name, name_bytes, depth));
        }
        for (length = length > 0 ? length : 1; length > 0; length--) {
            line += *text++ == '\n';
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_config_check_includes(const char *path, const char *text)
{
    struct include_walk walk = {.root = path};

    return check_text(&walk, path, text, 1);
}
