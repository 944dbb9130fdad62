/* start_ranks.c - starts all ranks of a generation. */
#include "launcher/nodes/nodes.h"
#include "launcher/supervise/replace_card.h"
#include "launcher/supervise/supervision.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_EARLY = 64 };

/* Choose how a rank's stream is relayed. Rank 0's stderr is relayed byte for byte (unless tagged),
 * because rank 0 redraws its progress line. */
static enum cddpi_relay_form choose_form(const struct cddpi_job *job, int rank, bool is_stderr)
{
    enum cddpi_tag tag = job->options.tag;

    if (tag == CDDPI_TAG_ALL || (tag == CDDPI_TAG_AUTO && rank > 0)) {
        return CDDPI_RELAY_TAGGED;
    }
    if (job->world_size == 1 || (rank == 0 && is_stderr)) {
        return CDDPI_RELAY_RAW;
    }
    return CDDPI_RELAY_LINES;
}

/* Make the log private: it may be left from an earlier run and readable by everybody, and what
 * programs print is private. */
static bool close_to_others(struct cddpi_supervision *run, struct cddpi_rank_log *log)
{
    struct stat info;

    if (fchmod(log->fd, S_IRUSR | S_IWUSR) == 0 ||
        (fstat(log->fd, &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0)) {
        return true;
    }
    cddpi_output_say(run->output,
                     "%s: others may read or write it, and its mode cannot be changed to 0600: "
                     "use another --log-dir",
                     log->path);
    close(log->fd);
    log->fd = -1;
    return false;
}

static bool open_log(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    struct cddpi_rank_log *log = &worker->log;

    if (run->job->log_dir[0] == '\0') {
        return true;
    }
    snprintf(log->path, sizeof log->path, "%s/rank-%d.log", run->job->log_dir, worker->rank);
    if (cddpi_file_open_own(log->path, O_WRONLY | O_CREAT | O_APPEND, S_IRUSR | S_IWUSR, true,
                            &log->fd) != CDDP_OK) {
        cddpi_output_say(run->output, "%s: %s", log->path, cddp_last_error());
        return false;
    }
    return close_to_others(run, log);
}

static void init_worker(struct cddpi_supervision *run, struct cddpi_worker *worker, int rank)
{
    worker->rank = rank;
    worker->pidfd = -1;
    worker->exec_fd = -1;
    worker->rejoin_fd = -1;
    worker->log.fd = -1;
    worker->out = (struct cddpi_relay){.fd = -1,
                                       .rank = rank,
                                       .index = rank - run->job->first_rank,
                                       .owner = 2 * rank,
                                       .form = choose_form(run->job, rank, false),
                                       .sink = run->output->out,
                                       .secret = &run->secret,
                                       .log = &worker->log};
    worker->err = worker->out;
    worker->err.owner = 2 * rank + 1;
    worker->err.form = choose_form(run->job, rank, true);
    worker->err.sink = run->output->err;
    worker->err.tail = &worker->tail;
    if (run->job->options.tag == CDDPI_TAG_AUTO) {
        worker->err.deduplicator = &run->deduplicator;
    }
}

bool cddpi_supervision_watch(struct cddpi_supervision *run, int fd, uint32_t events,
                             enum cddpi_event_source source, int index)
{
    struct epoll_event event = {.events = events};

    event.data.u64 = (uint64_t)source << 32 | (uint32_t)index;
    return epoll_ctl(run->epoll, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EPERM;
}

/* Watch @p fd, if there is one. A process that has stayed may have closed its output. */
static bool watch_open(struct cddpi_supervision *run, int fd, enum cddpi_event_source source,
                       int index)
{
    return fd < 0 || cddpi_supervision_watch(run, fd, EPOLLIN, source, index);
}

static bool watch_worker(struct cddpi_supervision *run, const struct cddpi_worker *worker)
{
    int index = worker->rank - run->job->first_rank;

    /* exec_fd first: for a rank that could not be executed, the failed exec is seen before its
     * end */
    return watch_open(run, worker->exec_fd, CDDPI_FROM_EXEC, index) &&
           watch_open(run, worker->out.fd, CDDPI_FROM_STDOUT, index) &&
           watch_open(run, worker->err.fd, CDDPI_FROM_STDERR, index) &&
           watch_open(run, worker->pidfd, CDDPI_FROM_WORKER, index) &&
           watch_open(run, worker->rejoin_fd, CDDPI_FROM_REJOIN, index);
}

static bool start_worker(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    if (!open_log(run, worker)) {
        return false;
    }
    if (!cddpi_held_start(run->job, worker, run->output) &&
        cddpi_worker_start(worker, run->job, run->output, &run->monitor->inherited) != CDDP_OK) {
        cddpi_output_say(run->output, "%s", cddp_last_error());
        return false;
    }
    CDDPI_FEED(run, .kind = CDDPI_JOB_STARTED, .rank = worker->rank);
    if (!watch_worker(run, worker)) {
        cddpi_output_say(run->output, "rank %d: watching it: %s", worker->rank, strerror(errno));
        return false;
    }
    return true;
}

/* For how many ranks there is memory. A process has the descriptors that were there when it was
 * started, so ranks that may come later have theirs from the start, if they are not too many. */
static int memory_ranks(const struct cddpi_job *job)
{
    int ranks = job->local_world_size;
    int most = job->options.rdzv == NULL ? job->options.most : 0;

    return ranks < most && most <= MOST_EARLY ? most : ranks;
}

/* If a further generation may follow this one, ranks have memory that outlives them. A job goes on
 * without it. */
static void hold_memory(struct cddpi_supervision *run)
{
    struct cddpi_job *job = run->job;

    if ((job->options.max_restarts != 0 || job->nodes->members.is_elastic) &&
        cddpi_rank_memory_hold(&job->memory, memory_ranks(job), job->file_limit.rlim_cur) !=
            CDDP_OK) {
        cddpi_output_say(run->output, "warning: %s", cddp_last_error());
    }
}

static bool start_all(struct cddpi_supervision *run)
{
    struct cddpi_job *job = run->job;

    cddpi_secret_init(&run->secret, job->rendezvous.token);
    hold_memory(run);
    cddpi_held_place(job);
    for (int i = 0; i < job->local_world_size; i++) {
        if (!start_worker(run, &run->workers[i])) {
            return false;
        }
    }
    return true;
}

/* Ranks whose processes have stayed run their programs already. */
static void tell_held(struct cddpi_supervision *run)
{
    for (int i = 0; i < run->job->local_world_size; i++) {
        if (run->workers[i].exec_fd < 0) {
            CDDPI_FEED(run, .kind = CDDPI_JOB_EXECUTED, .rank = run->workers[i].rank);
        }
    }
}

void cddpi_supervision_start(struct cddpi_supervision *run)
{
    char why[CDDPI_CARD_TEXT_BYTES];

    for (int i = 0; i < run->job->local_world_size; i++) {
        init_worker(run, &run->workers[i], run->job->first_rank + i);
    }
    if (!cddpi_cards_suffice(run->job, why)) {
        cddpi_output_say(run->output, "%s", why);
        CDDPI_FEED(run, .kind = CDDPI_JOB_NOT_STARTED, .text = why);
    } else if (start_all(run)) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_BEGUN);
        tell_held(run);
    } else {
        CDDPI_FEED(run, .kind = CDDPI_JOB_NOT_STARTED, .text = "its ranks cannot be started");
    }
}

void cddpi_supervision_executed(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    int error = cddpi_worker_exec_error(worker);
    char text[1024];

    if (error == 0) {
        CDDPI_FEED(run, .kind = CDDPI_JOB_EXECUTED, .rank = worker->rank);
        return;
    }
    snprintf(text, sizeof text, "%.800s cannot be executed: %s%s", run->job->command.path,
             strerror(error), error == ENOENT ? " (is its interpreter there?)" : "");
    CDDPI_FEED(run, .kind = CDDPI_JOB_NOT_EXECUTED, .rank = worker->rank,
               .exit_status = error == ENOENT ? 127 : 126, .text = text);
}
