/* relay.h - relays one stream (stdout or stderr) of a rank to our own stream, to the rank's log
 * file and, for stderr, to the last lines that a failure report shows. A failure that several ranks
 * report is shown once: a rank reports what it is about to write to stderr
 * (base/launcher_report.h). Only reported text is deduplicated, since other programs may mean each
 * of their lines. */
#ifndef CDDPI_LAUNCHER_RELAY_H
#define CDDPI_LAUNCHER_RELAY_H

#include "launcher/output/hide_token.h"
#include "launcher/output/output.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/* The failure that a rank reported. */
struct cddpi_reported_failure {
    char *text; /* as it will appear on stderr, with newlines; NULL: nothing reported */
    size_t bytes;
    size_t named;  /* offset at which the failure begins, after the names of program and rank */
    size_t seen;   /* bytes of it that have appeared on stderr */
    bool is_shown; /* it was passed on; if not, another rank has reported the same */
};

struct cddpi_deduplicator {
    struct cddpi_reported_failure *failures; /* indexed by the rank's place on this machine, which
                                                this file calls "rank" */
    int world_size;
    int ranks; /* number of ranks with lines that were not shown */
    /* Process the reports that have arrived. Called before a line of a rank is looked at, since a
     * rank writes a line only after reporting it. */
    void (*poll_reports)(void *context);
    void *context;
};

/** @p out: release with cddpi_deduplicator_fini(), which accepts a zeroed struct. The caller sets
 *  `poll_reports`. */
CDDP_CHECKED cddp_status cddpi_deduplicator_init(int world_size, struct cddpi_deduplicator *out);
void cddpi_deduplicator_fini(struct cddpi_deduplicator *deduplicator);

/** Note that @p rank has reported @p text, whose failure begins at offset @p named. Only a rank's
 *  first report counts. */
void cddpi_deduplicator_report(struct cddpi_deduplicator *deduplicator, int rank, const char *text,
                               size_t bytes, size_t named);

enum { CDDPI_TAIL_BYTES = 8192, CDDPI_TAIL_LINES = 20 };

/* The last bytes of a stream, as a ring buffer. */
struct cddpi_tail {
    char bytes[CDDPI_TAIL_BYTES];
    size_t total; /* bytes received in all; the next one goes to index total modulo
                     CDDPI_TAIL_BYTES */
    size_t lines; /* lines received in all */
    size_t begun; /* lines that our stderr had when the first byte arrived */
};

/* A rank's log file, which gets both streams. */
struct cddpi_rank_log {
    int fd; /* -1: none */
    char path[4160];
    bool is_failing; /* a write failed, which was reported */
};

enum cddpi_relay_form {
    CDDPI_RELAY_RAW,   /* every byte as it arrives */
    CDDPI_RELAY_LINES, /* whole lines, so that lines of different ranks do not mix */
    CDDPI_RELAY_TAGGED /* whole lines, prefixed with "[rank] " */
};

struct cddpi_relay {
    int fd; /* our end of the pipe, non-blocking; -1: closed */
    int rank;
    int index; /* the rank's place among the ranks of this machine */
    int owner; /* identifies this stream to its sink */
    enum cddpi_relay_form form;
    struct cddpi_output *output;
    const struct cddpi_secret *secret; /* the text to hide */
    struct cddpi_secret_place place;
    struct cddpi_sink *sink;
    struct cddpi_rank_log *log;
    struct cddpi_tail *tail;                 /* NULL: last lines are not kept */
    struct cddpi_deduplicator *deduplicator; /* NULL: also show what another rank has reported */
    bool has_duplicates;                     /* a line of this stream was not shown */
    bool has_come;                           /* a byte of this stream has arrived */
    bool is_mid_line;                        /* RAW: the last byte that arrived was no newline */
    char *line;                              /* the unfinished line */
    size_t line_bytes;
};

/** Read and pass on what has arrived, at most a few hundred KiB. Returns false at end of file,
 *  where it closes fd. */
bool cddpi_relay_read(struct cddpi_relay *relay);

/** Pass on @p text as if it had been read. */
void cddpi_relay_pass(struct cddpi_relay *relay, const char *text, size_t bytes);

/** Relay in another form from now on. */
void cddpi_relay_change(struct cddpi_relay *relay, enum cddpi_relay_form form);

/** Pass on the unfinished line and close the relay. */
void cddpi_relay_finish(struct cddpi_relay *relay);

/** Copy the last line in @p tail, as a terminal would show it, cut to the size of @p out; "" if
 *  there is none. */
void cddpi_tail_last_line(const struct cddpi_tail *tail, char *out, size_t bytes);

/** Print the last lines in @p tail, each prefixed with "[rank] ", unless they are the stream's only
 *  lines and were just shown. */
void cddpi_tail_print(const struct cddpi_tail *tail, int rank, struct cddpi_output *output);

#endif
