/* output.h - what reaches our own stdout and stderr. Writing never blocks the supervision: what
 * the reader does not take yet is queued. Only the supervisor's thread calls it. */
#ifndef CDDPI_LAUNCHER_OUTPUT_H
#define CDDPI_LAUNCHER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_OUTPUT_FULL = 4 << 20 }; /* bytes queued at which ranks' pipes are no longer read */

/* One file. stdout and stderr share one if they are the same file, so that lines keep their order
 * and do not mix. */
struct cddpi_sink {
    int fd;
    char *queue;
    size_t begin; /* the queued bytes are queue[begin] to queue[end] */
    size_t end;
    size_t capacity;
    size_t lost;     /* bytes dropped for want of memory */
    size_t lines;    /* that were ever written */
    bool is_regular; /* a file on a disk, always ready */
    bool is_socket;
    bool is_reopened; /* fd is ours, and non-blocking */
    bool is_terminal;
    int error;       /* of the write that failed, after which what comes is dropped; 0: none did */
    int line_owner;  /* who wrote the unfinished last line; -1: the last line is finished */
    bool is_redrawn; /* that line was begun with a carriage return */
};

struct cddpi_output {
    struct cddpi_sink sinks[2];
    struct cddpi_sink *out; /* stdout */
    struct cddpi_sink *err; /* stderr; may be the same */
    const char *host;       /* that is named in what we say ourselves; NULL: none */
};

void cddpi_output_init(struct cddpi_output *output);
void cddpi_output_fini(struct cddpi_output *output);

/** Write @p bytes of text from @p owner (any number >= 0). If someone else's line is unfinished it
 *  is ended first: on a terminal a progress line is wiped, any other line gets its newline. */
void cddpi_sink_write(struct cddpi_sink *sink, int owner, const char *text, size_t bytes);

/** Write as many queued bytes as the reader takes. */
void cddpi_sink_flush(struct cddpi_sink *sink);

/** Bytes that wait. */
static inline size_t cddpi_sink_queued(const struct cddpi_sink *sink)
{
    return sink->end - sink->begin;
}

/** "cddp-run: ..." (or "cddp-run on HOST: ...") and a newline, on stderr. */
void cddpi_output_say(struct cddpi_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
