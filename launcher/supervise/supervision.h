/* supervision.h - one generation as the process that supervises it sees it: the descriptors, the
 * ranks' processes, and the state machine that decides (job_state.h). supervise.c is the loop,
 * start_ranks.c starts the ranks, supervise_nodes.c hears of other machines, and all of them feed
 * what happens to job_actions.c, which does what follows. One thread. */
#ifndef CDDPI_LAUNCHER_SUPERVISION_H
#define CDDPI_LAUNCHER_SUPERVISION_H

#include "launcher/supervise/job_state.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/worker.h"

#include "base/launcher_report.h"
#include "base/memory_left.h"

/* What an epoll event is about; the worker's index stands in the lower half of its number. */
enum cddpi_event_source {
    CDDPI_FROM_SIGNALS,
    CDDPI_FROM_MONITOR,
    CDDPI_FROM_HEAD,    /* the cddp-run on another machine that started this one is gone */
    CDDPI_FROM_NODES,   /* something has happened on some node */
    CDDPI_FROM_REPORTS, /* ranks report that they still save, or why they fail */
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
    int reports;                  /* the end of the pipe from which we read; -1: none */
    struct cddpi_worker *workers; /* job->local_world_size, from job->first_rank on */
    struct cddpi_job_state state;
    unsigned char report[CDDPI_REPORT_BYTES]; /* the report that is coming in */
    size_t report_bytes;                      /* how much of it has come */
    bool is_paused;                           /* our reader is slow: ranks' pipes are not read */
    bool is_sink_watched[2];                  /* as output->sinks */
    struct cddpi_memory_kills kills;          /* before the ranks were started */
};

/** The process of @p rank, if this machine has that rank; else NULL. */
static inline struct cddpi_worker *cddpi_supervision_worker(const struct cddpi_supervision *run,
                                                            int rank)
{
    return cddpi_job_state_has(&run->state, rank) ? &run->workers[rank - run->job->first_rank]
                                                  : NULL;
}

/** job_actions.c: @p event has happened, now unless it says when: do what follows. */
void cddpi_supervision_feed(struct cddpi_supervision *run, const struct cddpi_job_event *event);

#define CDDPI_FEED(run, ...)                                                                       \
    cddpi_supervision_feed((run), &(const struct cddpi_job_event){__VA_ARGS__})

/** start_ranks.c: start all ranks. On failure say why; the ranks that were started are ended. */
void cddpi_supervision_start(struct cddpi_supervision *run);
/** @p worker executes its program, or could not. */
void cddpi_supervision_executed(struct cddpi_supervision *run, struct cddpi_worker *worker);
/** Watch @p fd; a file that epoll does not take is always ready and needs no watching. */
bool cddpi_supervision_watch(struct cddpi_supervision *run, int fd, uint32_t events,
                             enum cddpi_event_source source, int index);

/** supervise_nodes.c: take what has happened on nodes. */
void cddpi_supervision_nodes(struct cddpi_supervision *run);
/** What was heard before the ranks ran concerns them, too. */
void cddpi_supervision_catch_up(struct cddpi_supervision *run);
/** Signal @p number was sent to us: it is for the ranks of all nodes. */
void cddpi_supervision_pass_signal(struct cddpi_supervision *run, int number, int64_t now_ns);

#endif
