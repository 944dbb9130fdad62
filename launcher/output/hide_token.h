/* hide_token.h - keeps the job's token out of what ranks print, as a program does that shows its
 * environment. The token may come in pieces, so the end of a piece is held back where it may be the
 * token's beginning, but not for its first few bytes: progress lines have to appear at once. */
#ifndef CDDPI_LAUNCHER_SECRET_H
#define CDDPI_LAUNCHER_SECRET_H

#include <stddef.h>

enum {
    CDDPI_SECRET_BYTES = 64, /* of the longest secret, and the most that is held back */
    CDDPI_SECRET_SHOWN = 7,  /* bytes of it, but no more than a third, at the end of a piece are
                              * passed on all the same */
    CDDPI_SECRET_LEAST = 4   /* shorter ones are not hidden: they are in every other word */
};

struct cddpi_secret {
    char text[CDDPI_SECRET_BYTES + 1];
    size_t bytes;
    /* border[n]: of the first n bytes, how many at their end are also those at their beginning */
    size_t border[CDDPI_SECRET_BYTES + 1];
};

/* Where a stream stands; zeroed at its beginning. */
struct cddpi_secret_place {
    size_t matched; /* how many of the last bytes are the beginning of the secret */
    size_t shown;   /* how many of these have been passed on */
};

void cddpi_secret_init(struct cddpi_secret *secret, const char *text);

/** Copy @p text as it is to be shown to @p out, which has room for @p bytes and CDDPI_SECRET_BYTES
 *  more. Returns the bytes there. */
size_t cddpi_secret_hide(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                         const char *text, size_t bytes, char *out);

/** The stream has ended: what was held back to @p out, which has room for CDDPI_SECRET_BYTES. */
size_t cddpi_secret_end(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                        char *out);

#endif
