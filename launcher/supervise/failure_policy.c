/* failure_policy.c - owns what follows when a rank ends, when we are sent a signal and when a
 * deadline passes: who is told, who is to blame, and with which status cddp-run will exit. */
#include "launcher/supervise/supervision.h"

#include "launcher/nodes/nodes.h"

#include "base/clock.h"

#include <string.h>
#include <sys/wait.h>

enum {
    SAME_REQUEST_MS = 200
}; /* timeout(1) and service managers send two signals for one request */

enum { KILL_MS = 30000 }; /* what the kernel has to end a process that is killed */

enum { STOPPED_EARLY = 3 }; /* as cddp-train ends once it was asked to and has saved */

static int exit_status_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);

    return name != NULL ? name : "?";
}

/* Whether it was, or may have been, the kernel that killed a rank, since memory ran out: the text
 * to add, or "". A shell tells of a child that was killed by its own status. */
static void explain_kill(const struct cddpi_supervision *run, int status, char *out, size_t bytes)
{
    struct cddpi_memory_kills kills;
    int number = exit_status_of(status) - 128;

    snprintf(out, bytes, "%s",
             number == SIGXFSZ   ? ": a file was to grow beyond ulimit -f"
             : number == SIGXCPU ? ": its processor time is over (ulimit -t)"
                                 : "");
    if (exit_status_of(status) != 128 + SIGKILL) {
        return;
    }
    cddpi_memory_kills(&kills);
    if (kills.count <= run->kills.count || kills.is_own != run->kills.is_own) {
        return;
    }
    snprintf(out, bytes,
             kills.is_own ? ": memory ran out, so the kernel killed it (oom_kill in %s)"
                          : ": the kernel killed a process of this machine because memory ran out, "
                            "probably this one (oom_kill in %s)",
             kills.counter);
}

void cddpi_supervision_describe(const struct cddpi_supervision *run,
                                const struct cddpi_worker *worker, char *out, size_t bytes)
{
    int status = worker->status;
    char cause[640];

    explain_kill(run, status, cause, sizeof cause);
    if (exit_status_of(status) == STOPPED_EARLY && run->job->options.config != NULL &&
        run->job->nodes != NULL && run->job->nodes->is_expelled) {
        snprintf(out, bytes,
                 "the job stopped early here, with a checkpoint, as the others did "
                 "(rank %d, pid %d, exited with status %d)",
                 worker->rank, (int)worker->pid, STOPPED_EARLY);
    } else if (exit_status_of(status) == STOPPED_EARLY && run->job->options.config != NULL) {
        snprintf(out, bytes,
                 "the job stopped early, with a checkpoint: a signal asked a rank to end "
                 "(rank %d, pid %d, exited with status %d)",
                 worker->rank, (int)worker->pid, STOPPED_EARLY);
    } else if (WIFSIGNALED(status)) {
        snprintf(out, bytes, "rank %d (pid %d) was killed by signal %d (SIG%s)%s%s", worker->rank,
                 (int)worker->pid, WTERMSIG(status), signal_name(WTERMSIG(status)),
                 WCOREDUMP(status) ? ", core dumped" : "", cause);
    } else {
        snprintf(out, bytes, "rank %d (pid %d) exited with status %d%s", worker->rank,
                 (int)worker->pid, WEXITSTATUS(status), cause);
    }
}

static void signal_all(struct cddpi_supervision *run, int number)
{
    for (int i = 0; i < run->job->local_world_size; i++) {
        cddpi_worker_signal(&run->workers[i], number);
    }
}

void cddpi_supervision_kill(struct cddpi_supervision *run)
{
    run->phase = CDDPI_KILLED;
    run->secondary = NULL;
    run->deadline_ns = cddpi_deadline_ns(KILL_MS);
    signal_all(run, SIGKILL);
}

/* Whether another cddp-run says what concerns all machines. */
static bool is_silent(const struct cddpi_supervision *run)
{
    return run->job->nodes != NULL && run->job->nodes->is_silent;
}

/* Give the ranks that are left here the grace period. */
static void ask_others(struct cddpi_supervision *run)
{
    const struct cddpi_launch_options *options = &run->job->options;

    if (run->alive == 0) {
        return;
    }
    if (options->grace_ms == 0) {
        cddpi_supervision_kill(run);
        return;
    }
    if (!is_silent(run)) {
        cddpi_output_say(
            run->output, "asking the other %d rank%s%s to end; in %g s they are killed", run->alive,
            run->alive == 1 ? "" : "s", run->job->nodes != NULL ? " of this machine" : "",
            (double)options->grace_ms / 1000);
    }
    signal_all(run, SIGTERM);
    signal_all(run, SIGCONT); /* one that is stopped could not hear it */
    run->deadline_ns = cddpi_deadline_ns((uint32_t)options->grace_ms);
}

void cddpi_supervision_end(struct cddpi_supervision *run, int exit_status, bool may_restart)
{
    if (run->phase != CDDPI_RUNNING) {
        return;
    }
    run->secondary = NULL;
    run->phase = CDDPI_FAILED;
    run->outcome.exit_status = exit_status;
    run->outcome.may_restart = may_restart;
    ask_others(run);
}

/* The first failure: say it, tell the others, and give them the grace period. */
static void fail(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    bool is_gone = nodes != NULL && run->asked_signal == 0 && nodes->asked_signal == 0 &&
                   cddpi_nodes_are_gone(nodes, run->output);
    char text[1024];

    cddpi_supervision_describe(run, worker, text, sizeof text);
    cddpi_output_say(run->output, "%s", text);
    cddpi_tail_print(&worker->tail, worker->rank, run->output);
    run->outcome.exit_status = is_gone ? 1 : exit_status_of(worker->status);
    run->outcome.may_restart = run->asked_signal == 0 && !is_gone;
    run->phase = CDDPI_FAILED;
    cddpi_supervision_publish(run, CDDPI_EVENT_FAILURE, worker->rank, text);
    if (run->alive > 0 || run->job->nodes != NULL) {
        cddpi_rendezvous_tell(&run->job->rendezvous, run->job->generation, text);
    }
    ask_others(run);
}

/* The rank whose end tells why @p worker failed, as far as that is said and it still runs. NULL:
 * there is none, and @p worker itself is to be named. */
static struct cddpi_worker *cause_of(struct cddpi_supervision *run,
                                     const struct cddpi_worker *worker)
{
    struct cddpi_worker *cause = cddpi_supervision_worker(run, worker->culprit);

    return cause != NULL && !cause->has_ended ? cause : NULL;
}

/* Whether that rank is another machine's, from where its end will be heard. */
static bool is_caused_elsewhere(const struct cddpi_supervision *run,
                                const struct cddpi_worker *worker)
{
    return worker->culprit >= 0 && cddpi_supervision_worker(run, worker->culprit) == NULL;
}

/* All ranks here have ended because of one elsewhere, whose end has not been heard of yet: say so,
 * in case it never is. */
static void tell_secondary(struct cddpi_supervision *run)
{
    char text[1024];

    cddpi_supervision_describe(run, run->secondary, text, sizeof text);
    run->outcome.exit_status = exit_status_of(run->secondary->status);
    cddpi_supervision_publish(run, CDDPI_EVENT_FOLLOW, run->secondary->rank, text);
    run->secondary = NULL;
    run->phase = CDDPI_FAILED;
}

/* Name whoever is known to have failed first. */
static void name_secondary(struct cddpi_supervision *run)
{
    struct cddpi_worker *secondary = run->secondary;

    if (run->alive == 0 && is_caused_elsewhere(run, secondary)) {
        tell_secondary(run);
        return;
    }
    run->secondary = NULL;
    fail(run, secondary);
}

/* @p worker has failed. The ranks that follow a failure may well end before the one that is the
 * cause, which has as long as a rank that was asked to end. */
static void take_failure(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    if (run->secondary != NULL &&
        worker != cddpi_supervision_worker(run, run->secondary->culprit)) {
        if (run->alive == 0) {
            name_secondary(run);
        }
        return; /* another that follows */
    }
    if (run->secondary == NULL && run->phase == CDDPI_RUNNING && run->job->options.grace_ms > 0 &&
        (cause_of(run, worker) != NULL || is_caused_elsewhere(run, worker))) {
        run->secondary = worker;
        run->deadline_ns = cddpi_deadline_ns((uint32_t)run->job->options.grace_ms);
        if (run->alive == 0) {
            name_secondary(run);
        }
        return;
    }
    run->secondary = NULL;
    fail(run, worker);
}

/* Whether @p status is how a process ends that was asked to by @p number. */
static bool ended_as_asked(int status, int number)
{
    return exit_status_of(status) == 128 + number || exit_status_of(status) == STOPPED_EARLY;
}

void cddpi_supervision_ended(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    worker->has_ended = true;
    run->alive--;
    if (worker->status == 0 && (run->alive > 0 || run->job->nodes != NULL)) {
        cddpi_rendezvous_tell_end(&run->job->rendezvous, run->job->generation, worker->rank);
    }
    if (worker->status == 0 && run->secondary != NULL && run->alive == 0) {
        name_secondary(run);
        return;
    }
    if (worker->status == 0 || run->phase == CDDPI_FAILED || run->phase == CDDPI_KILLED) {
        return; /* it ended well, or its failure follows from an earlier one */
    }
    if (run->phase == CDDPI_ASKED) {
        if (run->outcome.exit_status != 0) {
            return; /* peers of a rank that obeyed may complain that it is gone */
        }
        if (ended_as_asked(worker->status, run->asked_signal)) {
            run->outcome.exit_status = exit_status_of(worker->status);
            return;
        }
    }
    take_failure(run, worker);
}

static void ask(struct cddpi_supervision *run, int number, int64_t now_ns)
{
    int64_t limit_ms = run->job->options.grace_ms * 3;

    run->asked_signal = number;
    run->asked_ns = now_ns;
    run->phase = CDDPI_ASKED;
    run->deadline_ns = cddpi_deadline_ns((uint32_t)limit_ms);
    if (!is_silent(run)) {
        cddpi_output_say(run->output,
                         "SIG%s: asking %d rank%s to end; in %g s, or at a second signal, they are "
                         "killed",
                         signal_name(number), run->alive, run->alive == 1 ? "" : "s",
                         (double)limit_ms / 1000);
    }
    signal_all(run, number);
    signal_all(run, SIGCONT);
}

static void end_now(struct cddpi_supervision *run, int number)
{
    cddpi_output_say(run->output, "SIG%s: killing %d rank%s", signal_name(number), run->alive,
                     run->alive == 1 ? "" : "s");
    if (run->outcome.exit_status == 0) {
        run->outcome.exit_status = 128 + number;
    }
    run->outcome.may_restart = false;
    run->asked_signal = number;
    cddpi_supervision_kill(run);
}

void cddpi_supervision_signal(struct cddpi_supervision *run, int number, int node, int64_t now_ns)
{
    switch (number) {
    case SIGUSR1:
    case SIGUSR2: /* to the rank alone: what it started need not know them, and would die */
        for (int i = 0; i < run->job->local_world_size; i++) {
            if (!run->workers[i].has_ended) {
                kill(run->workers[i].pid, number);
            }
        }
        return;
    case SIGTSTP: /* SIGTSTP itself has no effect outside the terminal's session */
        signal_all(run, SIGSTOP);
        return;
    case SIGCONT:
        signal_all(run, SIGCONT);
        return;
    default:
        break;
    }
    if (run->phase == CDDPI_KILLED) {
        return;
    }
    if (run->secondary != NULL) {
        name_secondary(run);
    }
    if (run->phase == CDDPI_RUNNING) {
        run->asked_node = node;
        ask(run, number, now_ns);
    } else if (number == SIGHUP || (run->asked_signal != 0 && node != run->asked_node)) {
        return; /* a closed terminal sends it more than once; and each node may be sent the same */
    } else if (run->asked_signal == 0 ||
               now_ns - run->asked_ns > (int64_t)SAME_REQUEST_MS * 1000000) {
        end_now(run, number);
    }
}

/* How long ranks that were asked to end may take. */
static int64_t limit_of(const struct cddpi_supervision *run)
{
    return run->job->options.grace_ms * (run->phase == CDDPI_ASKED ? 3 : 1);
}

void cddpi_supervision_alive(struct cddpi_supervision *run)
{
    if (run->phase == CDDPI_ASKED || run->phase == CDDPI_FAILED) {
        run->deadline_ns = cddpi_deadline_ns((uint32_t)limit_of(run));
        cddpi_supervision_publish_saving(run);
    }
}

/* What waits in the kernel, for a file system that is gone, say, cannot be killed: we do not wait
 * with it. */
static void leave_unkillable(struct cddpi_supervision *run)
{
    for (int i = 0; i < run->job->local_world_size; i++) {
        struct cddpi_worker *worker = &run->workers[i];

        if (worker->pid > 0 && !worker->has_ended) {
            cddpi_output_say(run->output,
                             "rank %d (pid %d) was killed %d s ago and has not ended: the kernel "
                             "keeps it (a file system or a device that does not answer?)",
                             worker->rank, (int)worker->pid, KILL_MS / 1000);
            worker->has_ended = true;
            worker->status = SIGKILL;
            run->alive--;
        }
    }
    run->has_unkillable = true;
    run->outcome.may_restart = false;
    if (run->outcome.exit_status == 0) {
        run->outcome.exit_status = 128 + SIGKILL;
    }
}

void cddpi_supervision_overdue(struct cddpi_supervision *run)
{
    int64_t limit_ms = limit_of(run);

    if (run->phase == CDDPI_KILLED) {
        leave_unkillable(run);
        return;
    }

    if (run->secondary != NULL) {
        name_secondary(run);
        return;
    }
    if (run->phase == CDDPI_RUNNING) { /* the rank that another node waits for did not end */
        cddpi_supervision_follow(run);
        return;
    }
    for (int i = 0; i < run->job->local_world_size; i++) {
        const struct cddpi_worker *worker = &run->workers[i];

        if (!worker->has_ended) {
            cddpi_output_say(run->output, "rank %d (pid %d) did not end within %g s: killing it",
                             worker->rank, (int)worker->pid, (double)limit_ms / 1000);
        }
    }
    if (run->outcome.exit_status == 0) {
        run->outcome.exit_status = 128 + SIGKILL;
    }
    cddpi_supervision_kill(run);
}
