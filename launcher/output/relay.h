/* relay.h - one stream (stdout or stderr) of a rank, on its way to our own stream, to the rank's
 * log file and, for stderr, to the last lines that a failure report shows. */
#ifndef CDDPI_LAUNCHER_RELAY_H
#define CDDPI_LAUNCHER_RELAY_H

#include "launcher/output/deduplicate.h"
#include "launcher/output/hide_token.h"
#include "launcher/output/output.h"

enum { CDDPI_TAIL_BYTES = 8192, CDDPI_TAIL_LINES = 20 };

/* The last bytes of a stream, in a ring. */
struct cddpi_tail {
    char bytes[CDDPI_TAIL_BYTES];
    size_t total; /* bytes that ever came; the next goes to total modulo CDDPI_TAIL_BYTES */
    size_t lines; /* that ever came */
    size_t begun; /* lines that our stderr had when the first one came */
};

/* A rank's log file, both streams in it. */
struct cddpi_rank_log {
    int fd; /* -1: none */
    char path[4160];
    bool is_failing; /* its first failed write was reported */
};

enum cddpi_relay_form {
    CDDPI_RELAY_RAW,   /* every byte as it comes */
    CDDPI_RELAY_LINES, /* whole lines, so that they do not mix with those of other ranks */
    CDDPI_RELAY_TAGGED /* whole lines with "[rank] " in front */
};

struct cddpi_relay {
    int fd; /* our non-blocking end; -1: closed */
    int rank;
    int index; /* of the rank among those of this machine */
    int owner; /* names this stream to its sink */
    enum cddpi_relay_form form;
    struct cddpi_output *output;
    const struct cddpi_secret *secret; /* that is not passed on */
    struct cddpi_secret_place place;
    struct cddpi_sink *sink;
    struct cddpi_rank_log *log;
    struct cddpi_tail *tail;                 /* NULL: not kept */
    struct cddpi_deduplicator *deduplicator; /* NULL: show what another rank has told, too */
    bool has_duplicates;                     /* something of it was not shown */
    bool has_come;                           /* something of it, whatever */
    bool is_mid_line;                        /* raw: what came last was no whole line */
    char *line;                              /* unfinished line */
    size_t line_bytes;
};

/** Take what has come, at most a few hundred KiB. Returns false at its end (then fd is closed). */
bool cddpi_relay_read(struct cddpi_relay *relay);

/** Pass on an unfinished line and close. */
void cddpi_relay_finish(struct cddpi_relay *relay);

/** Print the last lines in @p tail, each with "[rank] " in front, unless they are all there is and
 *  were shown a moment ago. */
void cddpi_tail_print(const struct cddpi_tail *tail, int rank, struct cddpi_output *output);

#endif
