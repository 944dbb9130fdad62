/* supervision.h - the state of one generation, shared by the loop (supervise.c), the start of the
 * ranks (start_ranks.c) and what follows from ends and signals (failure_policy.c). One thread. */
#ifndef CDDPI_LAUNCHER_SUPERVISION_H
#define CDDPI_LAUNCHER_SUPERVISION_H

#include "launcher/supervise/supervise.h"
#include "launcher/supervise/worker.h"

#include "base/launcher_report.h"
#include "base/memory_left.h"

enum { CDDPI_NEVER = -1 };

enum cddpi_phase {
    CDDPI_RUNNING,
    CDDPI_ASKED,  /* a signal asked the job to end; the ranks have three times the grace period */
    CDDPI_FAILED, /* a rank failed; the others have the grace period */
    CDDPI_KILLED
};

/* What an epoll event is about; the worker's index stands in the lower half of its number. */
enum cddpi_event_source {
    CDDPI_FROM_SIGNALS,
    CDDPI_FROM_MONITOR,
    CDDPI_FROM_HEAD,    /* the cddp-run on another machine that started this one is gone */
    CDDPI_FROM_NODES,   /* something has happened on some node */
    CDDPI_FROM_REPORTS, /* ranks that were asked to end say that they still save */
    CDDPI_FROM_SINK,
    CDDPI_FROM_EXEC,
    CDDPI_FROM_WORKER,
    CDDPI_FROM_STDOUT,
    CDDPI_FROM_STDERR
};

struct cddpi_supervision {
    struct cddpi_job *job;
    const struct cddpi_monitor *monitor;
    struct cddpi_output *output;
    struct cddpi_deduplicator deduplicator;
    struct cddpi_secret secret; /* the job's token */
    int signal_fd;
    int epoll;
    int reports;                  /* the pipe's end from which we read; -1: none */
    struct cddpi_worker *workers; /* job->local_world_size, from job->first_rank on */
    int alive;
    int starting; /* forked, and not known to execute the program yet */
    enum cddpi_phase phase;
    int64_t deadline_ns;            /* when what is left is killed; CDDPI_NEVER */
    struct cddpi_worker *secondary; /* ended first, but says whose failure is the cause; that rank's
                                      end is waited for. NULL: none */
    unsigned char report[CDDPI_REPORT_BYTES]; /* that is coming in */
    size_t report_bytes;                      /* that are there of it */
    bool has_unkillable;                      /* ranks that the kernel keeps */
    bool has_told;                            /* other nodes know that ranks here have failed */
    int asked_signal;                         /* the first that asked us to end; 0: none */
    int asked_node;                           /* to which that was sent; -1: to us, the only one */
    int64_t asked_ns;
    int64_t saving_ns;               /* when it may be told again that ranks save */
    bool is_paused;                  /* our reader is slow: ranks' pipes are not read */
    bool is_sink_watched[2];         /* as output->sinks */
    struct cddpi_memory_kills kills; /* before the ranks were started */
    struct cddpi_generation_outcome outcome;
};

/** start_ranks.c: start all ranks; on failure say why, and leave those that run to the caller. */
bool cddpi_supervision_start(struct cddpi_supervision *run);
/** @p worker executes its program, or could not. */
void cddpi_supervision_executed(struct cddpi_supervision *run, struct cddpi_worker *worker);

/** Watch @p fd; a file that epoll does not take is always ready and needs no watching. */
bool cddpi_supervision_watch(struct cddpi_supervision *run, int fd, uint32_t events,
                             enum cddpi_event_source source, int index);
/** The worker of @p rank, if that is one of this machine's; else NULL. */
struct cddpi_worker *cddpi_supervision_worker(const struct cddpi_supervision *run, int rank);

/** failure_policy.c: @p worker has been reaped with worker->status. */
void cddpi_supervision_ended(struct cddpi_supervision *run, struct cddpi_worker *worker);
/** A signal that was sent to us, or to cddp-run on @p node, other than SIGCHLD; @p now_ns is when
 *  we were told. */
void cddpi_supervision_signal(struct cddpi_supervision *run, int number, int node, int64_t now_ns);
/** A rank says that it is still saving: the deadline moves. */
void cddpi_supervision_alive(struct cddpi_supervision *run);
/** The deadline passed. */
void cddpi_supervision_overdue(struct cddpi_supervision *run);
/** SIGKILL to all ranks, now. */
void cddpi_supervision_kill(struct cddpi_supervision *run);
/** Ranks of this machine are to end because of @p text, which happened elsewhere. */
void cddpi_supervision_end(struct cddpi_supervision *run, int exit_status, bool may_restart);
/** What describes @p worker's end, with what it said of the cause. */
void cddpi_supervision_describe(const struct cddpi_supervision *run,
                                const struct cddpi_worker *worker, char *out, size_t bytes);

/** supervise_nodes.c: take what has happened on nodes. */
void cddpi_supervision_nodes(struct cddpi_supervision *run);
/** What was heard before the ranks ran concerns them, too. */
void cddpi_supervision_catch_up(struct cddpi_supervision *run);
/** What was waited for because of a rank that only followed did not happen: that one counts. */
void cddpi_supervision_follow(struct cddpi_supervision *run);
/** A signal was sent to us: tell all nodes. */
void cddpi_supervision_pass_signal(struct cddpi_supervision *run, int number, int64_t now_ns);
/** Tell the cddp-run that started this one that ranks here still save. */
void cddpi_supervision_publish_saving(struct cddpi_supervision *run);
/** Tell all nodes of a failure here: @p kind is FAILURE or FOLLOW; @p rank -1: of none. Once; with
 *  one machine nothing happens. */
void cddpi_supervision_publish(struct cddpi_supervision *run, enum cddpi_node_event_kind kind,
                               int rank, const char *text);

#endif
