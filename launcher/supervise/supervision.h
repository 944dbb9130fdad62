/* supervision.h - what the supervising process knows about one generation: descriptors, the ranks'
 * processes, and the state machine that decides (job_state.h). supervise.c is the event loop,
 * start_ranks.c starts the ranks. They pass events to job_actions.c, which receives those from
 * other machines and carries out the actions. One thread. */
#ifndef CDDPI_LAUNCHER_SUPERVISION_H
#define CDDPI_LAUNCHER_SUPERVISION_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/worker.h"

#include "base/launcher_report.h"
#include "base/memory_left.h"

/* The source of an epoll event, kept in the upper half of its data; the worker's index is the lower
 * half. */
enum cddpi_event_source {
    CDDPI_FROM_SIGNALS,
    CDDPI_FROM_MONITOR,
    CDDPI_FROM_HEAD,    /* the cddp-run on another machine that started this one is gone */
    CDDPI_FROM_CTL,     /* cddp-ctl asks for something */
    CDDPI_FROM_NODES,   /* an event of some node has arrived */
    CDDPI_FROM_REPORTS, /* ranks report that they are still saving, or why they fail */
    CDDPI_FROM_SINK,
    CDDPI_FROM_EXEC,
    CDDPI_FROM_WORKER,
    CDDPI_FROM_REJOIN, /* a rank's process asks to stay */
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
    int reports;                  /* the read end of the reports pipe; -1: none */
    struct cddpi_worker *workers; /* job->local_world_size, from job->first_rank on */
    struct cddpi_job_state state;
    unsigned char report[CDDPI_REPORT_BYTES]; /* the report that is being received */
    size_t report_bytes;                      /* bytes of it received so far */
    bool is_paused;                           /* our reader is slow, so the ranks' pipes are not
                                                 read */
    bool is_sink_watched[2];                  /* one for each of output->sinks */
    struct cddpi_memory_kills kills;          /* out-of-memory kills counted before the ranks
                                                 started */
};

/** The process of @p rank; NULL if that rank runs on another machine. */
static inline struct cddpi_worker *cddpi_supervision_worker(const struct cddpi_supervision *run,
                                                            int rank)
{
    return cddpi_job_state_has(&run->state, rank) ? &run->workers[rank - run->job->first_rank]
                                                  : NULL;
}

/** job_actions.c: process @p event and carry out the actions that follow. If event->now_ns is not
 *  set, the event happened now. */
void cddpi_supervision_feed(struct cddpi_supervision *run, const struct cddpi_job_event *event);

#define CDDPI_FEED(run, ...)                                                                       \
    cddpi_supervision_feed((run), &(const struct cddpi_job_event){__VA_ARGS__})

/** start_ranks.c: start all ranks. On failure, print why and end the ranks that were started. */
void cddpi_supervision_start(struct cddpi_supervision *run);
/** The exec_fd of @p worker is readable: its program runs or could not be executed. */
void cddpi_supervision_executed(struct cddpi_supervision *run, struct cddpi_worker *worker);
/** Watch @p fd with epoll. A regular file, which epoll refuses, is always ready and needs no
 *  watching. */
bool cddpi_supervision_watch(struct cddpi_supervision *run, int fd, uint32_t events,
                             enum cddpi_event_source source, int index);

/** Start the ranks of job->generation and supervise them until the last has ended and none of their
 *  processes is left, but those that stay (held_ranks.h). Prints every failure to @p output.
 *  @param signal_fd  A signalfd of monitor->blocked. */
struct cddpi_generation_outcome cddpi_supervise(struct cddpi_job *job,
                                                const struct cddpi_monitor *monitor, int signal_fd,
                                                struct cddpi_output *output);

#endif
