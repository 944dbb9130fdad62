/* output.c - owns the output queues of our stdout and stderr. We share both descriptors with the
 * shell, so we must not make them non-blocking. Instead, we open what they refer to again. If that
 * fails, poll() tells whether a page fits, but on a terminal the write may still block. */
#include "launcher/output/output.h"

#include "base/alloc.h"
#include "base/terminal.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OWN_LINES = 1 << 30, /* owner of the lines of cddpi_output_say() */
    PIPE_PIECE = 4096,   /* what a ready pipe accepts without blocking */
    FILE_PIECE = 1 << 16
};

/* Open the sink's file again, non-blocking: a terminal that nobody reads, for example after a lost
 * connection, would block a write. */
static void reopen_sink(struct cddpi_sink *sink)
{
    char path[32];
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", sink->fd);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        sink->fd = fd;
        sink->is_reopened = true;
    }
}

static void init_sink(struct cddpi_sink *sink, int fd)
{
    struct stat status;

    *sink = (struct cddpi_sink){.fd = fd, .line_owner = -1};
    if (fstat(fd, &status) != 0) {
        return;
    }
    sink->is_regular = S_ISREG(status.st_mode);
    sink->is_socket = S_ISSOCK(status.st_mode);
    sink->is_terminal = isatty(fd) == 1;
    if (sink->is_terminal || S_ISFIFO(status.st_mode)) {
        reopen_sink(sink);
    }
}

void cddpi_output_init(struct cddpi_output *output)
{
    struct stat out;
    struct stat err;

    output->host = NULL;
    init_sink(&output->sinks[0], STDOUT_FILENO);
    init_sink(&output->sinks[1], STDERR_FILENO);
    output->out = &output->sinks[0];
    output->err = &output->sinks[1];
    if (fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
        out.st_dev == err.st_dev && out.st_ino == err.st_ino) {
        output->out = output->err;
    }
}

void cddpi_output_fini(struct cddpi_output *output)
{
    for (int i = 0; i < 2; i++) {
        cddpi_free(output->sinks[i].queue);
        output->sinks[i].queue = NULL;
        if (output->sinks[i].is_reopened) {
            close(output->sinks[i].fd);
        }
    }
}

void cddpi_sink_flush(struct cddpi_sink *sink)
{
    size_t piece = sink->is_regular || sink->is_reopened ? FILE_PIECE : PIPE_PIECE;
    struct pollfd writable = {sink->fd, POLLOUT, 0};

    while (sink->begin < sink->end && (sink->is_regular || poll(&writable, 1, 0) > 0)) {
        const char *from = sink->queue + sink->begin;
        size_t queued = sink->end - sink->begin;
        size_t bytes = queued < piece ? queued : piece;
        ssize_t written = sink->is_socket ? send(sink->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : write(sink->fd, from, bytes);

        if (written < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (written < 0) {
            sink->error = errno;
            sink->begin = sink->end;
        } else {
            sink->begin += (size_t)written;
        }
    }
    if (sink->begin == sink->end) {
        sink->begin = 0;
        sink->end = 0;
    }
}

static void queue_text(struct cddpi_sink *sink, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return; /* the queue may still be NULL */
    }
    if (sink->end + bytes > sink->capacity && sink->begin > 0) {
        memmove(sink->queue, sink->queue + sink->begin, sink->end - sink->begin);
        sink->end -= sink->begin;
        sink->begin = 0;
    }
    if (sink->end + bytes > sink->capacity) {
        size_t wanted = (sink->end + bytes) * 2;
        char *grown = cddpi_realloc(sink->queue, wanted);

        if (grown == NULL) {
            sink->lost += bytes;
            return;
        }
        sink->queue = grown;
        sink->capacity = wanted;
    }
    memcpy(sink->queue + sink->end, text, bytes);
    sink->end += bytes;
}

/* End an unfinished line that @p owner did not begin. */
static void end_line(struct cddpi_sink *sink, int owner)
{
    if (sink->line_owner < 0 || sink->line_owner == owner) {
        return;
    }
    if (sink->is_terminal && sink->is_redrawn) {
        queue_text(sink, CDDPI_TERMINAL_REDRAW, strlen(CDDPI_TERMINAL_REDRAW));
    } else {
        queue_text(sink, "\n", 1);
    }
    sink->line_owner = -1;
}

static size_t count_lines(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    size_t lines = 0;

    for (const char *at = text; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++) {
        lines++;
    }
    return lines;
}

/* Queue @p text. On a terminal, cut lines that a rank draws again to the terminal's width, which
 * the rank cannot ask: it writes to our pipe. A line that ends with a newline stays, and is not
 * cut. */
static void queue_fitting(struct cddpi_sink *sink, const char *text, size_t bytes)
{
    static const char mark[] = CDDPI_TERMINAL_REDRAW;
    const size_t mark_bytes = sizeof mark - 1;
    const char *end = text + bytes;
    const char *line = sink->is_terminal ? memmem(text, bytes, mark, mark_bytes) : NULL;
    int columns = line != NULL ? cddpi_terminal_columns(sink->fd) : 0;

    while (line != NULL) {
        size_t length = 0;

        line += mark_bytes;
        queue_text(sink, text, (size_t)(line - text));
        while (line + length < end && line[length] != '\r' && line[length] != '\n') {
            length++;
        }
        if (line + length == end || line[length] == '\r') {
            queue_text(sink, line, cddpi_terminal_fit(line, length, columns));
        } else {
            queue_text(sink, line, length);
        }
        text = line + length;
        line = memmem(text, (size_t)(end - text), mark, mark_bytes);
    }
    queue_text(sink, text, (size_t)(end - text));
}

void cddpi_sink_write(struct cddpi_sink *sink, int owner, const char *text, size_t bytes)
{
    const char *newline;

    if (sink->error != 0 || bytes == 0) {
        return;
    }
    end_line(sink, owner);
    queue_fitting(sink, text, bytes);
    sink->lines += count_lines(text, bytes);
    newline = memrchr(text, '\n', bytes);
    if (newline == text + bytes - 1) {
        sink->line_owner = -1;
        sink->is_redrawn = false;
    } else {
        size_t rest = newline != NULL ? (size_t)(text + bytes - 1 - newline) : bytes;

        sink->is_redrawn = (newline == NULL && sink->line_owner == owner && sink->is_redrawn) ||
                           memchr(text + bytes - rest, '\r', rest) != NULL;
        sink->line_owner = owner;
    }
    cddpi_sink_flush(sink);
}

void cddpi_output_say(struct cddpi_output *output, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    int used = snprintf(line, sizeof line, "cddp-run%s%s: ", output->host != NULL ? " on " : "",
                        output->host != NULL ? output->host : "");

    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - 1 - (size_t)used, format, arguments);
    va_end(arguments);
    cddpi_text_clean(line, sizeof line - 1, false);
    strcat(line, "\n"); /* one byte was reserved for it */
    cddpi_sink_write(output->err, OWN_LINES, line, strlen(line));
}
