/* deduplicate.h - shows a failure once when several ranks report the same one. A rank reports what
 * it is about to write to stderr (base/launcher_report.h). Only reported text is deduplicated,
 * since other programs may mean each of their lines. */
#ifndef CDDPI_LAUNCHER_DEDUPLICATE_H
#define CDDPI_LAUNCHER_DEDUPLICATE_H

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

/** Whether @p line of @p rank (without its newline) is the next line of a failure that another rank
 *  has reported. */
bool cddpi_deduplicator_is_known(struct cddpi_deduplicator *deduplicator, int rank,
                                 const char *line, size_t bytes);

#endif
