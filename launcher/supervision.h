/* supervision.h - the state of one generation, shared by the loop (supervise.c), the start of the
 * ranks (start.c) and what follows from ends and signals (react.c). One thread. */
#ifndef CDDPI_LAUNCHER_SUPERVISION_H
#define CDDPI_LAUNCHER_SUPERVISION_H

#include "supervise.h"
#include "worker.h"

enum { CDDPI_NEVER = -1 };

enum cddpi_phase {
    CDDPI_RUNNING,
    CDDPI_ASKED,  /* a signal asked the job to end; the ranks have three times the grace period */
    CDDPI_FAILED, /* a rank failed; the others have the grace period */
    CDDPI_KILLED
};

/* What an epoll event is about; the rank stands in the lower half of its number. */
enum cddpi_source {
    CDDPI_FROM_SIGNALS,
    CDDPI_FROM_GUARD,
    CDDPI_FROM_REPORTS, /* ranks that were asked to end say that they still save */
    CDDPI_FROM_SINK,
    CDDPI_FROM_WORKER,
    CDDPI_FROM_STDOUT,
    CDDPI_FROM_STDERR
};

struct cddpi_supervision {
    struct cddpi_job *job;
    const struct cddpi_guard *guard;
    struct cddpi_output *output;
    struct cddpi_echo echo;
    int signal_fd;
    int epoll;
    int reports;                  /* the pipe's end from which we read; -1: none */
    struct cddpi_worker *workers; /* job->world_size */
    int alive;
    enum cddpi_phase phase;
    int64_t deadline_ns; /* when what is left is killed; CDDPI_NEVER */
    int asked_signal;    /* the first that asked us to end; 0: none */
    int64_t asked_ns;
    bool is_paused;          /* our reader is slow: ranks' pipes are not read */
    bool is_sink_watched[2]; /* as output->sinks */
    struct cddpi_outcome outcome;
};

/** start.c: start all ranks; on failure say why, and leave those that run to the caller. */
bool cddpi_supervision_start(struct cddpi_supervision *run);

/** Watch @p fd; a file that epoll does not take is always ready and needs no watching. */
bool cddpi_supervision_watch(struct cddpi_supervision *run, int fd, uint32_t events,
                             enum cddpi_source source, int rank);

/** react.c: @p worker has been reaped with worker->status. */
void cddpi_supervision_ended(struct cddpi_supervision *run, struct cddpi_worker *worker);
/** A signal that was sent to us, other than SIGCHLD; @p now_ns is when we were told. */
void cddpi_supervision_signal(struct cddpi_supervision *run, int number, int64_t now_ns);
/** A rank says that it is still saving: the deadline moves. */
void cddpi_supervision_at_work(struct cddpi_supervision *run);
/** The deadline passed. */
void cddpi_supervision_overdue(struct cddpi_supervision *run);
/** SIGKILL to all ranks, now. */
void cddpi_supervision_kill(struct cddpi_supervision *run);

#endif
