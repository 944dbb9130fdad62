/* ancestors.h - this process and its ancestors as /proc shows them: their names, command lines and
 * initial environments. Any thread. */
#ifndef CDDPI_BASE_ANCESTORS_H
#define CDDPI_BASE_ANCESTORS_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_ANCESTORS = 24 };

struct cddpi_ancestor {
    long pid;
    char start[24];    /* its start time in the kernel's clock ticks */
    char name[20];     /* of its program; the kernel cuts it off after 15 characters */
    char *words;       /* its command line: each word ends with a NUL */
    size_t word_bytes; /* of all words together */
    /* "NAME=value" entries as they were at its exec, each ending with a NUL. NULL: not readable,
     * for instance because the process belongs to another user. */
    char *environment;
    size_t environment_bytes;
};

struct cddpi_ancestors {
    struct cddpi_ancestor list[CDDPI_ANCESTORS]; /* this process first, then its parent ... */
    int count;                                   /* 0: /proc is not mounted */
};

/** Read this process and its ancestors. A process or file that cannot be read is left out. Release
 *  with cddpi_ancestors_fini(). */
void cddpi_ancestors_read(struct cddpi_ancestors *out);
void cddpi_ancestors_fini(struct cddpi_ancestors *ancestors);

/** Whether @p ancestor's environment sets @p name to @p value. */
bool cddpi_ancestor_has(const struct cddpi_ancestor *ancestor, const char *name, const char *value);

/** Whether a word of @p ancestor's command line contains @p text. */
bool cddpi_ancestor_says(const struct cddpi_ancestor *ancestor, const char *text);

#endif
