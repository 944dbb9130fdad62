/* deduplicate.h - knows which failures ranks have told already, so that one that several ranks tell
 * is shown once. A rank reports what it is about to write to stderr (base/launcher_report.h): only
 * that counts, as other programs may mean each of their lines. */
#ifndef CDDPI_LAUNCHER_DEDUPLICATE_H
#define CDDPI_LAUNCHER_DEDUPLICATE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/* What a rank reported. */
struct cddpi_reported_failure {
    char *text; /* as it comes on stderr, lines with their newlines; NULL: it reported none */
    size_t bytes;
    size_t named;  /* where its failure begins, after the names of program and rank */
    size_t seen;   /* how much of it has come on stderr */
    bool is_shown; /* it was passed on; else another rank has told it */
};

struct cddpi_deduplicator {
    struct cddpi_reported_failure *failures; /* by rank; here that is one's place on this machine */
    int world_size;
    int ranks; /* of which something was not shown */
    /* Take the reports that have come: before what a rank wrote after its report is looked at. */
    void (*poll_reports)(void *context);
    void *context;
};

/** @p out  Release with cddpi_deduplicator_fini(), which accepts zeros. The caller sets
 * `poll_reports`. */
CDDP_CHECKED cddp_status cddpi_deduplicator_init(int world_size, struct cddpi_deduplicator *out);
void cddpi_deduplicator_fini(struct cddpi_deduplicator *deduplicator);

/** @p rank has reported @p text, whose failure begins at @p named. Its first report counts. */
void cddpi_deduplicator_report(struct cddpi_deduplicator *deduplicator, int rank, const char *text,
                               size_t bytes, size_t named);

/** Whether @p line (without its newline), which has come from @p rank, is the next one of a failure
 *  that another rank has told. */
bool cddpi_deduplicator_is_known(struct cddpi_deduplicator *deduplicator, int rank,
                                 const char *line, size_t bytes);

#endif
