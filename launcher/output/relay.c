/* relay.c - relays a rank's output: whole lines if several ranks write to a sink, byte for byte if
 * only one does, so that progress lines (which do not end with a newline) appear at once. */
#include "launcher/output/relay.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

cddp_status cddpi_deduplicator_init(int world_size, struct cddpi_deduplicator *out)
{
    *out = (struct cddpi_deduplicator){.world_size = world_size};
    out->failures = cddpi_zalloc_array((size_t)world_size, sizeof *out->failures);
    return out->failures != NULL ? CDDP_OK
                                 : cddpi_fail(CDDP_ERR_NO_MEMORY,
                                              "no memory for the failures of %d ranks", world_size);
}

void cddpi_deduplicator_fini(struct cddpi_deduplicator *deduplicator)
{
    for (int rank = 0; deduplicator->failures != NULL && rank < deduplicator->world_size; rank++) {
        cddpi_free(deduplicator->failures[rank].text);
    }
    cddpi_free(deduplicator->failures);
    deduplicator->failures = NULL;
}

void cddpi_deduplicator_report(struct cddpi_deduplicator *deduplicator, int rank, const char *text,
                               size_t bytes, size_t named)
{
    struct cddpi_reported_failure *failure = &deduplicator->failures[rank];
    char *copy = failure->text == NULL && named < bytes ? cddpi_zalloc(bytes) : NULL;

    if (copy == NULL) { /* without memory, each rank's report is shown */
        return;
    }
    memcpy(copy, text, bytes);
    *failure = (struct cddpi_reported_failure){.text = copy, .bytes = bytes, .named = named};
}

static bool is_same(const struct cddpi_reported_failure *a, const struct cddpi_reported_failure *b)
{
    return a->bytes - a->named == b->bytes - b->named &&
           memcmp(a->text + a->named, b->text + b->named, a->bytes - a->named) == 0;
}

static bool is_shown(const struct cddpi_deduplicator *deduplicator,
                     const struct cddpi_reported_failure *failure)
{
    for (int rank = 0; rank < deduplicator->world_size; rank++) {
        const struct cddpi_reported_failure *other = &deduplicator->failures[rank];

        if (other != failure && other->is_shown && is_same(other, failure)) {
            return true;
        }
    }
    return false;
}

/* Whether @p line of @p rank (without its newline) is the next line of a failure that another rank
 * has reported. */
static bool is_known(struct cddpi_deduplicator *deduplicator, int rank, const char *line,
                     size_t bytes)
{
    struct cddpi_reported_failure *failure = &deduplicator->failures[rank];
    const char *next = failure->text != NULL ? failure->text + failure->seen : NULL;
    size_t left = failure->bytes - failure->seen;

    if (left <= bytes || next[bytes] != '\n' || memcmp(next, line, bytes) != 0) {
        return false; /* the line does not belong to the failure, or the whole failure has
                         appeared */
    }
    if (failure->seen == 0) {
        failure->is_shown = !is_shown(deduplicator, failure);
    }
    failure->seen += bytes + 1;
    return !failure->is_shown;
}

enum {
    READ_BYTES = 1 << 16,
    READS_AT_ONCE = 4,
    LINE_BYTES = 1 << 16,
    SCREEN_LINES = 40 /* lines shown within the last SCREEN_LINES lines are not repeated */
};

static void write_log(struct cddpi_relay *relay, const char *text, size_t bytes)
{
    struct cddpi_rank_log *log = relay->log;

    while (log->fd >= 0 && bytes > 0) {
        ssize_t written = write(log->fd, text, bytes);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            int error = errno;

            if (!log->is_failing) {
                log->is_failing = true;
                cddpi_output_say(relay->output, "cannot write %s: %s%s; the run goes on without it",
                                 log->path, strerror(error), cddpi_limit_text(error));
            }
            return; /* later output is written again: the disk may have space by then */
        }
        text += written;
        bytes -= (size_t)written;
    }
}

/* Whether @p line (without its newline) must not be shown, since another rank has reported it. */
static bool is_duplicate(struct cddpi_relay *relay, const char *line, size_t bytes)
{
    if (relay->deduplicator == NULL || !is_known(relay->deduplicator, relay->index, line, bytes)) {
        return false;
    }
    relay->deduplicator->ranks += relay->has_duplicates ? 0 : 1;
    relay->has_duplicates = true;
    return true;
}

/* Pass on every byte as it arrives, except whole lines that another rank has reported. */
static void pass_raw(struct cddpi_relay *relay, const char *text, size_t bytes)
{
    const char *shown = text; /* start of the text up to `at` that is still to be written */
    const char *at = text;
    const char *end = text + bytes;

    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline != NULL ? newline + 1 : end;

        if (!relay->is_mid_line && newline != NULL &&
            is_duplicate(relay, at, (size_t)(newline - at))) {
            cddpi_sink_write(relay->sink, relay->owner, shown, (size_t)(at - shown));
            shown = next;
        }
        relay->is_mid_line = newline == NULL;
        at = next;
    }
    cddpi_sink_write(relay->sink, relay->owner, shown, (size_t)(at - shown));
}

/* The part of a redrawn line that a terminal would show: what follows its last carriage return. */
static const char *shown_part(const char *line, size_t *bytes)
{
    const char *back;

    while (*bytes > 0 && line[*bytes - 1] == '\r') {
        (*bytes)--;
    }
    back = memrchr(line, '\r', *bytes);
    if (back != NULL) {
        *bytes -= (size_t)(back + 1 - line);
        return back + 1;
    }
    return line;
}

static void write_tagged(struct cddpi_sink *sink, int owner, int rank, const char *line,
                         size_t bytes)
{
    static char text[LINE_BYTES + 32]; /* static, since the thread's stack may be small; only one
                                          thread relays */
    const char *shown = shown_part(line, &bytes);
    int used = snprintf(text, sizeof text, "[%d] ", rank);

    memcpy(text + used, shown, bytes);
    text[(size_t)used + bytes] = '\n';
    cddpi_sink_write(sink, owner, text, (size_t)used + bytes + 1);
}

/* Pass on relay->line. @p is_whole: it ended with a newline. */
static void pass_line(struct cddpi_relay *relay, bool is_whole)
{
    if (is_duplicate(relay, relay->line, relay->line_bytes)) {
        relay->line_bytes = 0;
        return;
    }
    if (relay->form == CDDPI_RELAY_TAGGED) {
        write_tagged(relay->sink, relay->owner, relay->rank, relay->line, relay->line_bytes);
    } else {
        relay->line[relay->line_bytes] = '\n'; /* the buffer has one byte more than LINE_BYTES */
        cddpi_sink_write(relay->sink, relay->owner, relay->line,
                         relay->line_bytes + (is_whole ? 1 : 0));
    }
    relay->line_bytes = 0;
}

static void pass_lines(struct cddpi_relay *relay, const char *text, size_t bytes)
{
    if (relay->line == NULL) {
        relay->line = cddpi_zalloc(LINE_BYTES + 1);
    }
    if (relay->line == NULL) { /* without memory for a line, lines may mix, but nothing is lost */
        cddpi_sink_write(relay->sink, relay->owner, text, bytes);
        return;
    }
    while (bytes > 0) {
        const char *newline = memchr(text, '\n', bytes);
        size_t piece = newline != NULL ? (size_t)(newline - text) : bytes;
        size_t room = LINE_BYTES - relay->line_bytes;
        bool is_cut = piece > room; /* if they are equal, the next byte may be the newline */

        if (is_cut) {
            piece = room;
            newline = NULL;
        }
        memcpy(relay->line + relay->line_bytes, text, piece);
        relay->line_bytes += piece;
        text += piece + (newline != NULL ? 1 : 0);
        bytes -= piece + (newline != NULL ? 1 : 0);
        if (newline != NULL || is_cut) {
            pass_line(relay, newline != NULL);
        }
    }
}

static void pass_text(struct cddpi_relay *relay, const char *text, size_t bytes)
{
    struct cddpi_tail *tail = relay->tail;

    write_log(relay, text, bytes);
    if (tail != NULL && tail->total == 0) {
        tail->begun = relay->sink->lines;
    }
    for (size_t i = 0; tail != NULL && i < bytes; i++) {
        tail->bytes[tail->total++ % CDDPI_TAIL_BYTES] = text[i];
        tail->lines += text[i] == '\n';
    }
    if (relay->form == CDDPI_RELAY_RAW) {
        pass_raw(relay, text, bytes);
    } else {
        pass_lines(relay, text, bytes);
    }
}

void cddpi_relay_pass(struct cddpi_relay *relay, const char *text, size_t bytes)
{
    static char shown[READ_BYTES + CDDPI_SECRET_BYTES]; /* static, as the text in write_tagged() */

    relay->has_come = true;
    while (bytes > 0) {
        size_t piece = bytes < READ_BYTES ? bytes : READ_BYTES;

        pass_text(relay, shown,
                  cddpi_secret_hide(relay->secret, &relay->place, text, piece, shown));
        text += piece;
        bytes -= piece;
    }
}

void cddpi_relay_change(struct cddpi_relay *relay, enum cddpi_relay_form form)
{
    if (relay->form == CDDPI_RELAY_LINES && form == CDDPI_RELAY_RAW) {
        relay->is_mid_line = relay->line_bytes > 0;
        if (relay->is_mid_line) {
            pass_line(relay, false);
        }
    }
    relay->form = form;
}

bool cddpi_relay_read(struct cddpi_relay *relay)
{
    static char bytes[READ_BYTES]; /* static, as the text in write_tagged() */

    for (int i = 0; i < READS_AT_ONCE && relay->fd >= 0; i++) {
        ssize_t got = read(relay->fd, bytes, sizeof bytes);

        if (got > 0 && relay->deduplicator != NULL) {
            relay->deduplicator->poll_reports(relay->deduplicator->context);
        }
        if (got > 0) {
            cddpi_relay_pass(relay, bytes, (size_t)got);
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            cddpi_relay_finish(relay);
            return false;
        } else {
            break;
        }
    }
    return relay->fd >= 0;
}

void cddpi_relay_finish(struct cddpi_relay *relay)
{
    char held[CDDPI_SECRET_BYTES];
    size_t bytes = relay->secret != NULL ? cddpi_secret_end(relay->secret, &relay->place, held) : 0;

    if (bytes > 0) {
        pass_text(relay, held, bytes);
    }
    if (relay->line_bytes > 0) {
        pass_line(relay, false);
    }
    cddpi_free(relay->line);
    relay->line = NULL;
    cddpi_fd_close(&relay->fd);
}

/* Copy what is kept of the stream, without the newlines at its end. Returns its bytes. */
static size_t copy_tail(const struct cddpi_tail *tail, char text[CDDPI_TAIL_BYTES])
{
    size_t bytes = tail->total < CDDPI_TAIL_BYTES ? tail->total : CDDPI_TAIL_BYTES;

    for (size_t i = 0; i < bytes; i++) {
        text[i] = tail->bytes[(tail->total - bytes + i) % CDDPI_TAIL_BYTES];
    }
    while (bytes > 0 && text[bytes - 1] == '\n') {
        bytes--;
    }
    return bytes;
}

void cddpi_tail_last_line(const struct cddpi_tail *tail, char *out, size_t bytes)
{
    char text[CDDPI_TAIL_BYTES];
    size_t end = copy_tail(tail, text);
    const char *newline = memrchr(text, '\n', end);
    const char *line = newline != NULL ? newline + 1 : text;
    size_t length = (size_t)(text + end - line);

    line = shown_part(line, &length);
    snprintf(out, bytes, "%.*s", (int)length, line);
}

void cddpi_tail_print(const struct cddpi_tail *tail, int rank, struct cddpi_output *output)
{
    char text[CDDPI_TAIL_BYTES];
    size_t bytes = copy_tail(tail, text);
    size_t begin;
    int lines = 0;

    for (begin = bytes; begin > 0; begin--) {
        if (text[begin - 1] == '\n' && ++lines == CDDPI_TAIL_LINES) {
            break;
        }
    }
    if (bytes == 0 ||
        (tail->lines <= CDDPI_TAIL_LINES && output->err->lines - tail->begun <= SCREEN_LINES)) {
        return;
    }
    cddpi_output_say(output, "last lines of rank %d's stderr:", rank);
    while (begin < bytes) {
        const char *newline = memchr(text + begin, '\n', bytes - begin);
        size_t end = newline != NULL ? (size_t)(newline - text) : bytes;

        write_tagged(output->err, 0, rank, text + begin, end - begin);
        begin = end + 1;
    }
}
