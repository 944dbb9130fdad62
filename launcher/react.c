/* react.c - owns what follows when a rank ends, when we are sent a signal and when a deadline
 * passes: who is told, who is to blame, and with which status cddp-run will exit. */
#include "supervision.h"

#include "base/clock.h"

#include <string.h>
#include <sys/wait.h>

enum { SAME_WISH_MS = 200 }; /* timeout(1) and service managers send two signals for one wish */

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

static void describe(const struct cddpi_supervision *run, const struct cddpi_worker *worker,
                     char *out, size_t bytes)
{
    int status = worker->status;

    if (exit_status_of(status) == STOPPED_EARLY && run->job->options.config != NULL) {
        snprintf(out, bytes,
                 "the job stopped early, with a checkpoint: a signal that cddp-run did not pass on "
                 "asked a rank to end (rank %d, pid %d, exited with status %d)",
                 worker->rank, (int)worker->pid, STOPPED_EARLY);
    } else if (WIFSIGNALED(status)) {
        snprintf(out, bytes, "rank %d (pid %d) was killed by signal %d (SIG%s)%s", worker->rank,
                 (int)worker->pid, WTERMSIG(status), signal_name(WTERMSIG(status)),
                 WCOREDUMP(status) ? ", core dumped" : "");
    } else {
        snprintf(out, bytes, "rank %d (pid %d) exited with status %d", worker->rank,
                 (int)worker->pid, WEXITSTATUS(status));
    }
}

static void signal_all(struct cddpi_supervision *run, int number)
{
    for (int rank = 0; rank < run->job->world_size; rank++) {
        cddpi_worker_signal(&run->workers[rank], number);
    }
}

void cddpi_supervision_kill(struct cddpi_supervision *run)
{
    run->phase = CDDPI_KILLED;
    run->deadline_ns = CDDPI_NEVER;
    signal_all(run, SIGKILL);
}

/* The first failure: say it, tell the others, and give them the grace period. */
static void fail(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    const struct cddpi_launch_options *options = &run->job->options;
    char text[256];

    describe(run, worker, text, sizeof text);
    cddpi_output_say(run->output, "%s", text);
    cddpi_tail_print(&worker->tail, worker->rank, run->output);
    run->outcome.exit_status = exit_status_of(worker->status);
    run->outcome.may_restart = run->asked_signal == 0;
    run->phase = CDDPI_FAILED;
    if (run->alive == 0) {
        return;
    }
    cddpi_rendezvous_tell(&run->job->rendezvous, run->job->generation, text);
    if (options->grace_ms == 0) {
        cddpi_supervision_kill(run);
        return;
    }
    cddpi_output_say(run->output, "asking the other %d rank%s to end; in %g s they are killed",
                     run->alive, run->alive == 1 ? "" : "s", (double)options->grace_ms / 1000);
    signal_all(run, SIGTERM);
    signal_all(run, SIGCONT); /* one that is stopped could not hear it */
    run->deadline_ns = cddpi_deadline_ns((uint32_t)options->grace_ms);
}

/* Whether @status is how a process ends that was asked to by @number. */
static bool is_obedient(int status, int number)
{
    return exit_status_of(status) == 128 + number || exit_status_of(status) == STOPPED_EARLY;
}

void cddpi_supervision_ended(struct cddpi_supervision *run, struct cddpi_worker *worker)
{
    worker->has_ended = true;
    run->alive--;
    if (worker->status == 0 && run->alive > 0) {
        cddpi_rendezvous_tell_end(&run->job->rendezvous, run->job->generation, worker->rank);
    }
    if (worker->status == 0 || run->phase == CDDPI_FAILED || run->phase == CDDPI_KILLED) {
        return; /* it did well, or what it did follows from an earlier failure */
    }
    if (run->phase == CDDPI_ASKED) {
        if (run->outcome.exit_status != 0) {
            return; /* peers of a rank that obeyed may complain that it is gone */
        }
        if (is_obedient(worker->status, run->asked_signal)) {
            run->outcome.exit_status = exit_status_of(worker->status);
            return;
        }
    }
    fail(run, worker);
}

static void ask(struct cddpi_supervision *run, int number, int64_t now_ns)
{
    int64_t limit_ms = run->job->options.grace_ms * 3;

    run->asked_signal = number;
    run->asked_ns = now_ns;
    run->phase = CDDPI_ASKED;
    run->deadline_ns = cddpi_deadline_ns((uint32_t)limit_ms);
    cddpi_output_say(run->output,
                     "SIG%s: asking %d rank%s to end; in %g s, or at a second signal, they are "
                     "killed",
                     signal_name(number), run->alive, run->alive == 1 ? "" : "s",
                     (double)limit_ms / 1000);
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

void cddpi_supervision_signal(struct cddpi_supervision *run, int number, int64_t now_ns)
{
    switch (number) {
    case SIGUSR1:
    case SIGUSR2: /* to the rank alone: what it started need not know them, and would die */
        for (int rank = 0; rank < run->job->world_size; rank++) {
            if (!run->workers[rank].has_ended) {
                kill(run->workers[rank].pid, number);
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
    if (run->phase == CDDPI_RUNNING) {
        ask(run, number, now_ns);
    } else if (number == SIGHUP) {
        return; /* nobody is at the terminal to insist: the kernel and the shell both tell */
    } else if (run->asked_signal == 0 || now_ns - run->asked_ns > (int64_t)SAME_WISH_MS * 1000000) {
        end_now(run, number);
    }
}

/* How long ranks that were asked to end may take. */
static int64_t limit_of(const struct cddpi_supervision *run)
{
    return run->job->options.grace_ms * (run->phase == CDDPI_ASKED ? 3 : 1);
}

void cddpi_supervision_at_work(struct cddpi_supervision *run)
{
    if (run->phase == CDDPI_ASKED || run->phase == CDDPI_FAILED) {
        run->deadline_ns = cddpi_deadline_ns((uint32_t)limit_of(run));
    }
}

void cddpi_supervision_overdue(struct cddpi_supervision *run)
{
    int64_t limit_ms = limit_of(run);

    for (int rank = 0; rank < run->job->world_size; rank++) {
        if (!run->workers[rank].has_ended) {
            cddpi_output_say(run->output, "rank %d (pid %d) did not end within %g s: killing it",
                             rank, (int)run->workers[rank].pid, (double)limit_ms / 1000);
        }
    }
    if (run->outcome.exit_status == 0) {
        run->outcome.exit_status = 128 + SIGKILL;
    }
    cddpi_supervision_kill(run);
}
