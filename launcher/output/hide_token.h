/* hide_token.h - hides the job's token in what ranks print, for example when a program prints its
 * environment. The token may be split between two reads. So the end of a piece is held back if it
 * may be the start of the token, except for the token's first few bytes: progress lines must appear
 * at once. */
#ifndef CDDPI_LAUNCHER_SECRET_H
#define CDDPI_LAUNCHER_SECRET_H

#include <stddef.h>

enum {
    CDDPI_SECRET_BYTES = 64, /* the longest secret, and the most that is held back */
    CDDPI_SECRET_SHOWN = 7,  /* this many of its first bytes, but at most a third of it, are passed
                                on even at the end of a piece */
    CDDPI_SECRET_LEAST = 4   /* shorter secrets are not hidden: they occur in ordinary words */
};

struct cddpi_secret {
    char text[CDDPI_SECRET_BYTES + 1];
    size_t bytes;
    /* border[n]: length of the longest proper prefix of the first n bytes that is also their
     * suffix */
    size_t border[CDDPI_SECRET_BYTES + 1];
};

/* The position of a stream; zeroed at its start. */
struct cddpi_secret_place {
    size_t matched; /* how many of the last bytes match the start of the secret */
    size_t shown;   /* how many of the matched bytes have been passed on */
};

void cddpi_secret_init(struct cddpi_secret *secret, const char *text);

/** Copy @p text, with the secret hidden, to @p out, which has room for @p bytes +
 *  CDDPI_SECRET_BYTES. Returns the number of bytes written. */
size_t cddpi_secret_hide(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                         const char *text, size_t bytes, char *out);

/** At the end of the stream, copy what was held back to @p out, which has room for
 *  CDDPI_SECRET_BYTES. Returns the number of bytes written. */
size_t cddpi_secret_end(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                        char *out);

#endif
