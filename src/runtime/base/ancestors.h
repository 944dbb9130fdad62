/* ancestors.h - this process and those from which it descends, as /proc shows them: their names,
 * and the environments that they were started with. Any thread. */
#ifndef CDDPI_BASE_ANCESTORS_H
#define CDDPI_BASE_ANCESTORS_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_ANCESTORS = 24 };

struct cddpi_ancestor {
    char name[20];     /* of its program, cut off by the kernel after 15 characters */
    char *words;       /* its command line: words, each with a NUL behind */
    size_t word_bytes; /* of them all */
    char *environment; /* "NAME=value", each with a NUL behind, as its exec had them; NULL: it may
                          not be read, as of another user's process */
    size_t environment_bytes;
};

struct cddpi_ancestors {
    struct cddpi_ancestor list[CDDPI_ANCESTORS]; /* this process first, then its parent ... */
    int count;                                   /* 0: there is no /proc */
};

/** Read them. Release with cddpi_ancestors_fini(). What cannot be read is left out. */
void cddpi_ancestors_read(struct cddpi_ancestors *out);
void cddpi_ancestors_fini(struct cddpi_ancestors *ancestors);

/** Whether @p ancestor's environment has @p name with the value @p value. */
bool cddpi_ancestor_has(const struct cddpi_ancestor *ancestor, const char *name, const char *value);

/** Whether a word of @p ancestor's command line has @p text in it. */
bool cddpi_ancestor_says(const struct cddpi_ancestor *ancestor, const char *text);

#endif
