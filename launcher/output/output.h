/* output.h - writes to our own stdout and stderr without ever blocking the supervisor: what the
 * reader does not accept yet is queued. Only the supervisor's thread calls these functions. */
#ifndef CDDPI_LAUNCHER_OUTPUT_H
#define CDDPI_LAUNCHER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_OUTPUT_FULL = 4 << 20 }; /* queued bytes at which reading from ranks' pipes pauses */

/* One output file. stdout and stderr share a sink if they are the same file, so that lines stay in
 * order and do not mix. */
struct cddpi_sink {
    int fd;
    char *queue;
    size_t begin; /* the queued bytes are queue[begin] to queue[end] */
    size_t end;
    size_t capacity;
    size_t lost;     /* bytes dropped for lack of memory */
    size_t lines;    /* lines written in all */
    bool is_regular; /* a regular file, always ready */
    bool is_socket;
    bool is_reopened; /* we opened fd ourselves, non-blocking */
    bool is_terminal;
    int error;       /* errno of the write that failed, after which all output is dropped; 0: no
                        write failed */
    int line_owner;  /* writer of the unfinished last line; -1: the last line is finished */
    bool is_redrawn; /* the unfinished line began with a carriage return */
};

struct cddpi_output {
    struct cddpi_sink sinks[2];
    struct cddpi_sink *out; /* stdout */
    struct cddpi_sink *err; /* stderr; may be the same sink */
    const char *host;       /* host name in our own messages; NULL: none */
};

void cddpi_output_init(struct cddpi_output *output);
void cddpi_output_fini(struct cddpi_output *output);

/** Write @p bytes of text from @p owner (any number >= 0). An unfinished line of another owner is
 *  ended first: a progress line on a terminal is erased, any other line gets its newline. */
void cddpi_sink_write(struct cddpi_sink *sink, int owner, const char *text, size_t bytes);

/** Write as much of the queue as the reader accepts. */
void cddpi_sink_flush(struct cddpi_sink *sink);

/** Number of queued bytes. */
static inline size_t cddpi_sink_queued(const struct cddpi_sink *sink)
{
    return sink->end - sink->begin;
}

/** Write "cddp-run: ..." (or "cddp-run on HOST: ...") and a newline to stderr. */
void cddpi_output_say(struct cddpi_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
