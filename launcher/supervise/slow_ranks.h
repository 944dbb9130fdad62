/* slow_ranks.h - decides which ranks are stragglers, and whether one of them is replaced. Rank 0
 * reports about once a second which ranks were slow. Does no I/O and reads no clock.
 * replace_rank.c carries it out; tests/launcher/test_launcher_slow_ranks.c feeds it invented
 * reports. */
#ifndef CDDPI_LAUNCHER_SLOW_RANKS_H
#define CDDPI_LAUNCHER_SLOW_RANKS_H

#include "launcher/nodes/membership.h"

#include "base/launcher_report.h"

enum {
    CDDPI_REPLACED_AGAIN_S = 3600, /* least time between two replacements in one place */
    CDDPI_REPLACED = 32,           /* places that are remembered */
    CDDPI_REPLACE_TEXT_BYTES = CDDPI_HOST_BYTES + 256,
    CDDPI_STRAGGLER_REPORTS = 2 /* a straggler was slow in at least so many reports in a row */
};

/* A rank that was slow in the last report. */
struct cddpi_followed_rank {
    struct cddpi_slow_rank last;
    int64_t slow_ms; /* of steps in which it was slow, without interruption */
    int reports;
    bool is_straggler; /* it was slow for long enough */
    bool is_decided;   /* the user knows, and what is to be done about it is done */
};

/* Where a rank was replaced: a host, and if the rank has not left that, the rank's number there. */
struct cddpi_replaced_place {
    char host[CDDPI_HOST_BYTES];
    int local_rank; /* -1: the whole node has left */
    int64_t at_ns;
};

struct cddpi_slow_ranks {
    /* Set by the caller. */
    double factor;       /* how much slower than the median a straggler is ... */
    int64_t patience_ms; /* ... and for how long */
    bool replaces;       /* stragglers are replaced, and not only named */
    /* Read by the caller. */
    struct cddpi_followed_rank list[CDDPI_REPORT_SLOW_RANKS];
    int count;
    /* Private. */
    unsigned char named[CDDPI_MAX_WORLD_SIZE / 8]; /* ranks that were named in this generation */
    struct cddpi_replaced_place replaced[CDDPI_REPLACED];
    int replacements;  /* so far: the oldest are forgotten */
    bool is_replacing; /* in this generation, which ends for that: one rank at a time */
};

/** A generation begins: its ranks are new. Where ranks were replaced is still known. */
void cddpi_slow_ranks_begin(struct cddpi_slow_ranks *slow);

/** Rank 0 reports the @p count slow ranks of the last @p measured_ms. Returns whether the list of
 *  stragglers has changed. */
bool cddpi_slow_ranks_take(struct cddpi_slow_ranks *slow, const struct cddpi_slow_rank *ranks,
                           int count, int64_t measured_ms);

/** The next straggler that is to be decided about, the slowest first; NULL: there is none. */
struct cddpi_followed_rank *cddpi_slow_ranks_next(struct cddpi_slow_ranks *slow);

/** Whether the user is to be told of @p rank: once in a generation. */
bool cddpi_slow_ranks_names(struct cddpi_slow_ranks *slow, int rank);

enum cddpi_replace_how {
    CDDPI_REPLACE_NOT,     /* it stays: the text says why */
    CDDPI_REPLACE_LATER,   /* members change just now */
    CDDPI_REPLACE_PROCESS, /* a new process takes its place on its host */
    CDDPI_REPLACE_NODE     /* its node leaves */
};

/** Decide how @p rank is replaced.
 *  @param out       What the job's log is to say (CDDPI_MEMBERS_ASKED), if it is replaced.
 *  @param out_text  What happens, or why nothing does: the end of a sentence, without its full
 *                   stop; "": nothing to say. */
enum cddpi_replace_how cddpi_slow_ranks_decide(const struct cddpi_slow_ranks *slow,
                                               const struct cddpi_membership *members, int rank,
                                               int64_t now_ns, struct cddpi_node_event *out,
                                               char out_text[CDDPI_REPLACE_TEXT_BYTES]);

/** @p rank is being replaced: remember where. */
void cddpi_slow_ranks_note(struct cddpi_slow_ranks *slow, const struct cddpi_membership *members,
                           int rank, enum cddpi_replace_how how, int64_t now_ns);

/** The node that has @p rank; NULL: no node has it. */
const struct cddpi_job_member *cddpi_member_of_rank(const struct cddpi_membership *members,
                                                    int rank);

#endif
