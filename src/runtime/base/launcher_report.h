/* launcher_report.h - messages from a rank to its launcher: that this rank alone was asked to end,
 * that it is still saving after that, and why it fails. The launcher passes a pipe
 * (CDDP_REPORT_FD). Each report extends the time until the launcher kills the rank, except those
 * that come while it trains. CDDPI_REPORT_SAVED and CDDPI_REPORT_KEPT also say that a restart would
 * begin later in the run than this start did. One pipe per process; without a pipe these calls do
 * nothing. */
#ifndef CDDPI_BASE_LAUNCHER_REPORT_H
#define CDDPI_BASE_LAUNCHER_REPORT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What asks a rank of cddp-train for a checkpoint, after which the run goes on. A program that does
 * not handle this signal ignores it. */
enum { CDDPI_SAVE_SIGNAL = SIGURG };

enum {
    CDDPI_REPORT_ALIVE = 'w',
    CDDPI_REPORT_SAVED = 's',
    CDDPI_REPORT_UNSAVED = 'u',
    CDDPI_REPORT_KEPT = 'k',
    /* Followed by one number: the length of the path; then the path of the run folder. */
    CDDPI_REPORT_FOLDER = 'd',
    CDDPI_REPORT_FOLDER_BYTES = 3, /* before the path */
    /* Followed by two numbers: the failing rank, and the rank that caused the failure. Each number
     * is 2 bytes, little-endian. */
    CDDPI_REPORT_CULPRIT = 'b',
    CDDPI_REPORT_CULPRIT_BYTES = 5, /* total length */
    /* Followed by three numbers: the rank, the offset in the text at which its failure begins, and
     * the length of the text; then the text. */
    CDDPI_REPORT_FAILURE = 'f',
    CDDPI_REPORT_FAILURE_BYTES = 7, /* before the text */
    /* Followed by one number, the rank that was asked to end by someone else than its launcher, and
     * a byte: 1 if the signal came from the rank's parent, which may have passed on what the
     * launcher sent. */
    CDDPI_REPORT_LEAVES = 'l',
    CDDPI_REPORT_LEAVES_BYTES = 4, /* total length */
    /* Followed by two numbers: how many ranks follow, at most CDDPI_REPORT_SLOW_RANKS, and how many
     * milliseconds were measured; then three numbers for each rank: the rank, its time in
     * hundredths of the median's, and 1 if most of what it takes longer is waiting for data. */
    CDDPI_REPORT_SLOW = 'p',
    CDDPI_REPORT_SLOW_BYTES = 5, /* before the ranks */
    CDDPI_REPORT_SLOW_RANK_BYTES = 6,
    CDDPI_REPORT_SLOW_RANKS = 64,
    /* Followed by three numbers: the rank, the index of its card among those that it sees, and the
     * length of the text; then the text: the card's unique name, a space, and what is wrong. */
    CDDPI_REPORT_CARD = 'c',
    CDDPI_REPORT_CARD_BYTES = 7, /* before the text */
    CDDPI_REPORT_BYTES = 4096 /* the most, so that a pipe writes a report in one piece (PIPE_BUF) */
};

/** Take over the pipe from the launcher; child programs do not inherit it. Call at the start of
 *  main(), before other threads exist. A second call does nothing. */
void cddpi_launcher_report_open(void);

/** This process has become another rank, of the job's next generation (CDDP_RANK): report as if it
 *  had just begun. */
void cddpi_launcher_report_anew(void);

/** The socket by which this process asks the launcher to stay (rejoin_wire.h); -1: the launcher has
 *  given none, or did not start this process itself, so that a script waits for its end. */
int cddpi_launcher_rejoin_fd(void);

/** Start reporting: from now on cddpi_launcher_report_alive() has an effect. Safe in a signal
 *  handler. */
void cddpi_launcher_report_begin(void);

/** Report that a checkpoint was written. Any thread. */
void cddpi_launcher_report_saved(void);

/** Report that a checkpoint could not be written, and that the run goes on without it. */
void cddpi_launcher_report_unsaved(void);

/** Report that the run goes on from progress that earlier ranks of the job have kept in memory that
 *  outlives them (CDDP_KEEP_FDS), so that the job gets on although it fails. That is no checkpoint:
 *  the memory is gone when the job ends. Report the same progress only once. */
void cddpi_launcher_report_kept(void);

/** Report that this rank writes the run's files into the folder @p path, and that it writes a
 *  checkpoint when it gets CDDPI_SAVE_SIGNAL. A path that is too long is not reported. */
void cddpi_launcher_report_folder(const char *path);

/** Report that this rank, @p rank, fails because @p culprit failed. The launcher then names
 *  @p culprit, whichever of the two ends first. */
void cddpi_launcher_report_culprit(int rank, int culprit);

/** Report that this rank, @p rank, is about to write @p text to stderr. Its failure begins at
 *  offset @p named and may be that of other ranks, too. A text that is too long is cut off. */
void cddpi_launcher_report_failure(int rank, const char *text, size_t named);

/** Report, once for a card, that the card @p unique, on which @p rank computes, is ill, as @p fault
 *  says: further generations are to leave it out. @p unique: its name, a slash, and how many cards
 *  this process sees; @p index: its number among these. Any thread. */
void cddpi_launcher_report_card(int rank, int index, const char *unique, const char *fault);

/* A rank that takes longer for its steps than the others. */
struct cddpi_slow_rank {
    int rank;
    double factor;       /* its own time for a step, by the median of the ranks' */
    bool waits_for_data; /* most of what it takes longer is waiting for data */
};

/** Rank 0: report the @p count ranks, at most CDDPI_REPORT_SLOW_RANKS, that were slow in the last
 *  @p measured_ms of steps. Each such report is about all ranks: those that are not in it were not
 *  slow. */
void cddpi_launcher_report_slow(const struct cddpi_slow_rank *ranks, int count,
                                int64_t measured_ms);

/* Who has sent a signal to this process. Without a launcher that is known, always others. */
enum cddpi_sender {
    CDDPI_SENT_BY_OTHERS,
    CDDPI_SENT_BY_LAUNCHER,
    CDDPI_SENT_BY_PARENT, /* which is not the launcher: a shell or a container's first process */
    CDDPI_SENDERS
};

/** Who has sent the signal that @p info describes. Safe in a signal handler. */
enum cddpi_sender cddpi_launcher_sender(const siginfo_t *info);

/** Report, once, that this rank was asked to end by @p sender. Keeps errno, safe in a signal
 *  handler. */
void cddpi_launcher_report_leaves(enum cddpi_sender sender);

/** Report that work goes on; no effect before cddpi_launcher_report_begin(). Any thread. Never
 *  blocks, keeps errno, safe in a signal handler. */
void cddpi_launcher_report_alive(void);

#endif
