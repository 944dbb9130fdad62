/* include.c - checks the files that a configuration includes. libconfig reads them itself, but does
 * not say which one it could not open, and truncates whole numbers to 32 bits. */
#include "train/config/include.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/config/config_file.h"

#include <string.h>
#include <unistd.h>

#if LIBCONFIG_VER_MAJOR == 1 && LIBCONFIG_VER_MINOR < 7
enum { JOINS_ALL = 1 }; /* libconfig prefixes the folder even to absolute paths */
#else
enum { JOINS_ALL = 0 };
#endif
enum {
    DEPTH_MAX = 10, /* libconfig's limit; deeper includes make it fail */
    FILES_MAX = 100,
    BYTES_MAX = 4 << 20 /* of all files; a file that is included twice counts twice */
};

/* The files checked so far. */
struct include_walk {
    const char *folder; /* the user's file's; libconfig resolves names against it */
    int folder_bytes;
    int files;
    size_t bytes;
};

static cddp_status check_text(struct include_walk *walk, const char *from, const char *text,
                              int depth);

/* Count a file. Without a limit, a few files that include each other could cause billions of
 * includes. */
static cddp_status count_file(struct include_walk *walk, const char *from, int line, size_t bytes)
{
    walk->files++;
    walk->bytes += bytes;
    if (walk->files > FILES_MAX || walk->bytes > BYTES_MAX) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%s:%d: with this one %d files of %zu bytes are included, one that is "
                          "included several times counted as often; at most %d of %d bytes may be",
                          from, line, walk->files, walk->bytes, FILES_MAX, BYTES_MAX);
    }
    return CDDP_OK;
}

static cddp_status check_file(struct include_walk *walk, const char *from, int line,
                              const char *name, int name_bytes, int depth)
{
    const char *folder = walk->folder;
    int folder_bytes = walk->folder_bytes;
    char *path = cddpi_format("%.*s%.*s", name[0] == '/' ? 0 : folder_bytes, folder, name_bytes,
                              name);
    char *text = NULL;
    int wide;
    cddp_status status;

    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", from);
    }
    if (name[0] == '/' && folder_bytes > 0 && JOINS_ALL) {
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "%s:%d: %.*s: give an included file relative to the folder %.*s", from,
                            line, name_bytes, name, folder_bytes, folder);
        goto out;
    }
    status = cddpi_config_read_included(path, &text);
    if (status != CDDP_OK) {
        status = status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s:%d", from, line)
                                           : status;
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, count_file(walk, from, line, strlen(text)));
    wide = cddpi_config_wide_line(text);
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

/* The file name if @p text begins with @include "NAME", else NULL. */
static const char *included_name(const char *text, int *out_bytes)
{
    static const char word[] = "@include";
    const char *name = text + sizeof word - 1;
    const char *end;

    if (strncmp(text, word, sizeof word - 1) != 0) {
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

    while (*text != '\0' && depth <= DEPTH_MAX) {
        size_t length = cddpi_config_opaque_length(text);
        int name_bytes = 0;
        const char *name = length == 0 ? included_name(text, &name_bytes) : NULL;

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
    const char *slash = strrchr(path, '/');
    struct include_walk walk = {.folder = path,
                                .folder_bytes = slash != NULL ? (int)(slash - path) + 1 : 0};

    return check_text(&walk, path, text, 1);
}
