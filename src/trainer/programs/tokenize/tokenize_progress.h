/* tokenize_progress.h - shows the progress of cddp-tokenize: a line redrawn on a terminal, or a
 * line every few seconds. CDDP_PROGRESS chooses, as for training. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_PROGRESS_H
#define CDDPI_PROGRAMS_TOKENIZE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct cddpi_tokenize_progress {
    int64_t begin_ns, shown_ns, pause_ns; /* pause 0: silent */
    bool is_terminal;
    bool open_line;
};

void cddpi_tokenize_progress_init(struct cddpi_tokenize_progress *progress);

/** @param total  0: not known. */
void cddpi_tokenize_progress_bytes(struct cddpi_tokenize_progress *progress, uint64_t done,
                                   uint64_t total, int64_t tokens);
void cddpi_tokenize_progress_merges(struct cddpi_tokenize_progress *progress, int tokens,
                                    int wanted);

/** Wipe the line, before something else is printed. */
void cddpi_tokenize_progress_end(struct cddpi_tokenize_progress *progress);

/** Seconds since the beginning, never 0. */
double cddpi_tokenize_progress_seconds(const struct cddpi_tokenize_progress *progress);

#endif
