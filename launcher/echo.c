/* echo.c - owns the comparison of failures that several ranks tell. */
#include "echo.h"

#include <string.h>

/* The end of "rank 12: " at @at, or NULL. @out_rank may be NULL. */
static const char *skip_name(const char *at, const char *end, int *out_rank)
{
    static const char word[] = "rank ";
    int rank = 0;
    const char *digits;

    if ((size_t)(end - at) < sizeof word || memcmp(at, word, sizeof word - 1) != 0) {
        return NULL;
    }
    at += sizeof word - 1;
    for (digits = at; at < end && *at >= '0' && *at <= '9' && at - digits < 7; at++) {
        rank = rank * 10 + (*at - '0');
    }
    if (at == digits || end - at < 2 || at[0] != ':' || at[1] != ' ') {
        return NULL;
    }
    if (out_rank != NULL) {
        *out_rank = rank;
    }
    return at + 2;
}

/* Copy what follows "cddp-train: rank R: " in @line, and further names ("rank 1: rank 0: ..." is
 * what rank 1 tells of rank 0's failure). Returns the bytes; 0: it is no such line, or too long. */
static size_t strip(const char *line, size_t bytes, int rank, char *out)
{
    static const char program[] = "cddp-train: ";
    const char *end = line + bytes;
    const char *at = line + sizeof program - 1;
    int named = -1;

    if (bytes < sizeof program || bytes > CDDPI_ECHO_BYTES ||
        memcmp(line, program, sizeof program - 1) != 0) {
        return 0;
    }
    at = skip_name(at, end, &named);
    if (at == NULL || named != rank) {
        return 0;
    }
    for (const char *next = at; next != NULL; next = skip_name(next, end, NULL)) {
        at = next;
    }
    memcpy(out, at, (size_t)(end - at));
    return (size_t)(end - at);
}

bool cddpi_echo_is_known(struct cddpi_echo *echo, int rank, const char *line, size_t bytes,
                         bool *in_failure)
{
    size_t kept = echo->count < CDDPI_ECHO_LINES ? echo->count : CDDPI_ECHO_LINES;
    size_t next = echo->count % CDDPI_ECHO_LINES;
    char text[CDDPI_ECHO_BYTES];
    size_t length = strip(line, bytes, rank, text);

    if (length == 0 && *in_failure && bytes > 0 && bytes <= sizeof text && line[0] == ' ') {
        memcpy(text, line, bytes);
        length = bytes;
    }
    *in_failure = length > 0;
    if (length == 0) {
        return false;
    }
    for (size_t i = 0; i < kept; i++) {
        if (echo->lines[i].bytes == length && memcmp(echo->lines[i].text, text, length) == 0) {
            return echo->lines[i].rank != rank;
        }
    }
    echo->lines[next].rank = rank;
    echo->lines[next].bytes = length;
    memcpy(echo->lines[next].text, text, length);
    echo->count++;
    return false;
}
