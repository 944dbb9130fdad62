/* job_actions.c - carries out what the state machine of the ranks (job_state.c) has decided:
 * signals to the ranks, messages to the user, and messages to ranks and other nodes. */
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/nodes.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/supervision.h"

#include "base/clock.h"
#include "base/launcher_report.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);

    return name != NULL ? name : "?";
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* Write the probable cause of a kill to @p out, as text to append, or "". For SIGKILL the cause is
 * lack of memory, if the kernel counted such a kill. @p exit_status may come from a shell that
 * reports its child's signal. */
static void explain_kill(const struct cddpi_supervision *run, int exit_status, char *out,
                         size_t bytes)
{
    struct cddpi_memory_kills kills;

    snprintf(out, bytes, "%s",
             exit_status == 128 + SIGXFSZ   ? ": a file was to grow beyond ulimit -f"
             : exit_status == 128 + SIGXCPU ? ": its processor time is over (ulimit -t)"
                                            : "");
    if (exit_status != 128 + SIGKILL) {
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

/* Describe how @p worker ended. */
static void describe_end(const struct cddpi_supervision *run, const struct cddpi_worker *worker,
                         char *out, size_t bytes)
{
    int status = worker->status;
    bool stopped_early = cddpi_exit_status(status) == CDDPI_STOPPED_EARLY &&
                         run->job->options.config != NULL;
    char cause[640];

    explain_kill(run, cddpi_exit_status(status), cause, sizeof cause);
    if (worker->is_held && !stopped_early) {
        snprintf(out, bytes, "rank %d (pid %d) has lost other ranks, and waits to go on",
                 worker->rank, (int)worker->pid);
    } else if (stopped_early && run->job->nodes->members.is_expelled) {
        snprintf(out, bytes,
                 "the job stopped early here, with a checkpoint, as the others did "
                 "(rank %d, pid %d, exited with status %d)",
                 worker->rank, (int)worker->pid, CDDPI_STOPPED_EARLY);
    } else if (stopped_early) {
        snprintf(out, bytes,
                 "the job stopped early, with a checkpoint: a signal asked a rank to end "
                 "(rank %d, pid %d, exited with status %d)",
                 worker->rank, (int)worker->pid, CDDPI_STOPPED_EARLY);
    } else if (WIFSIGNALED(status)) {
        snprintf(out, bytes, "rank %d (pid %d) was killed by signal %d (SIG%s)%s%s", worker->rank,
                 (int)worker->pid, WTERMSIG(status), signal_name(WTERMSIG(status)),
                 WCOREDUMP(status) ? ", core dumped" : "", cause);
    } else {
        snprintf(out, bytes, "rank %d (pid %d) exited with status %d%s", worker->rank,
                 (int)worker->pid, WEXITSTATUS(status), cause);
    }
}

/* Append to @p text the failure that @p rank itself reported, on one line. */
static void add_cause(const struct cddpi_supervision *run, int rank, char *text, size_t bytes)
{
    const struct cddpi_reported_failure *failure =
        &run->deduplicator.failures[rank - run->job->first_rank];
    size_t used = strlen(text);

    if (failure->text == NULL) {
        return;
    }
    snprintf(text + used, bytes - used, ": %.*s", (int)(failure->bytes - failure->named),
             failure->text + failure->named);
    for (char *at = text + used; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    for (used = strlen(text); used > 0 && text[used - 1] == ' '; used--) {
        text[used - 1] = '\0';
    }
}

/* An action that is being carried out. */
struct job_deed {
    struct cddpi_supervision *run;
    const struct cddpi_job_action *action;
    const char *end; /* how the action's rank ended; "": it has no rank */
};

static void say_given_up(const struct job_deed *deed)
{
    cddpi_nodes_say_given_up(deed->run->job->nodes, deed->run->output);
}

static void say_end(const struct job_deed *deed)
{
    int rank = deed->action->rank;

    cddpi_output_say(deed->run->output, "%s", deed->end);
    cddpi_tail_print(&cddpi_supervision_worker(deed->run, rank)->tail, rank, deed->run->output);
}

static void say_text(const struct job_deed *deed)
{
    cddpi_output_say(deed->run->output, "%s", deed->action->text);
}

static void say_heard(const struct job_deed *deed)
{
    const struct cddpi_membership *members = &deed->run->job->nodes->members;

    cddpi_output_say(deed->run->output, "%s: %s", cddpi_member_name(members, members->follow.node),
                     members->follow.text);
}

static void say_stopping(const struct job_deed *deed)
{
    int alive = deed->run->state.alive;

    cddpi_output_say(deed->run->output,
                     "SIG%s: stopping %d rank%s; after %g s, or at a second signal, they are "
                     "killed",
                     signal_name(deed->action->number), alive, plural(alive),
                     (double)deed->action->limit_ms / 1000);
}

static void say_ending(const struct job_deed *deed)
{
    int alive = deed->run->state.alive;

    cddpi_output_say(deed->run->output,
                     "stopping the other %d rank%s%s; after %g s they are killed", alive,
                     plural(alive), deed->run->job->nodes->link != NULL ? " on this machine" : "",
                     (double)deed->action->limit_ms / 1000);
}

static void say_killing(const struct job_deed *deed)
{
    int alive = deed->run->state.alive;

    cddpi_output_say(deed->run->output, "SIG%s: killing %d rank%s",
                     signal_name(deed->action->number), alive, plural(alive));
}

static void say_overdue(const struct job_deed *deed)
{
    const struct cddpi_supervision *run = deed->run;

    for (int i = 0; i < run->job->local_world_size; i++) {
        const struct cddpi_worker *worker = &run->workers[i];

        if (!worker->has_ended) {
            cddpi_output_say(run->output, "rank %d (pid %d) did not end within %g s: killing it",
                             worker->rank, (int)worker->pid, (double)deed->action->limit_ms / 1000);
        }
    }
}

static void abandon(const struct job_deed *deed)
{
    const struct cddpi_supervision *run = deed->run;

    for (int i = 0; i < run->job->local_world_size; i++) {
        struct cddpi_worker *worker = &run->workers[i];

        if (worker->pid > 0 && !worker->has_ended) {
            cddpi_output_say(run->output,
                             "rank %d (pid %d) was killed %d s ago and has not ended: the kernel "
                             "keeps it (a file system or a device that does not answer?)",
                             worker->rank, (int)worker->pid, CDDPI_JOB_KILL_S);
            worker->has_ended = true;
            worker->status = SIGKILL;
        }
    }
}

/* Whether a process that stays forgets this signal if it comes before it is ready. */
static bool is_forgotten(int number)
{
    return number != SIGCONT && number != SIGSTOP && number != CDDPI_SAVE_SIGNAL;
}

/* Send a signal to the ranks or to their process groups. */
static void signal_ranks(const struct job_deed *deed)
{
    int sign = deed->action->kind == CDDPI_JOB_SIGNAL_GROUPS ? -1 : 1;

    for (int i = 0; i < deed->run->job->local_world_size; i++) {
        struct cddpi_worker *worker = &deed->run->workers[i];

        if (worker->pid > 0 && !worker->has_ended) {
            kill(sign * worker->pid, deed->action->number);
            if (worker->awaits_ready && is_forgotten(deed->action->number)) {
                worker->late_signal = deed->action->number;
            }
        }
    }
}

static void tell_failure(const struct job_deed *deed)
{
    cddpi_rendezvous_tell(&deed->run->job->rendezvous, deed->run->job->generation, deed->end);
}

static void tell_end(const struct job_deed *deed)
{
    int rank = deed->action->rank;
    const struct cddpi_worker *worker = cddpi_supervision_worker(deed->run, rank);
    char line[200];

    cddpi_tail_last_line(&worker->tail, line, sizeof line);
    cddpi_rendezvous_tell_end(&deed->run->job->rendezvous, deed->run->job->generation, rank,
                              cddpi_exit_status(worker->status), line);
}

static void publish(const struct job_deed *deed)
{
    const struct cddpi_job *job = deed->run->job;
    const struct cddpi_job_action *action = deed->action;
    struct cddpi_node_event event = {
        .kind = action->kind == CDDPI_JOB_PUBLISH_FAILURE  ? CDDPI_EVENT_FAILURE
                : action->kind == CDDPI_JOB_PUBLISH_FOLLOW ? CDDPI_EVENT_FOLLOW
                                                           : CDDPI_EVENT_SAVING,
        .generation = job->generation,
        .node = job->nodes->members.self,
        .rank = action->rank,
        .exit_status = action->exit_status & 255,
        .may_restart = action->may_restart};

    if (action->rank >= 0) {
        snprintf(event.text, sizeof event.text, "%s", deed->end);
        add_cause(deed->run, action->rank, event.text, sizeof event.text);
    } else if (action->text != NULL) {
        snprintf(event.text, sizeof event.text, "%s", action->text);
    }
    cddpi_node_link_publish(job->nodes->link, &event);
}

static void free_ports(const struct job_deed *deed)
{
    cddpi_rendezvous_release(&deed->run->job->rendezvous);
    cddpi_rendezvous_leave_room(&deed->run->job->rendezvous, 0);
}

static void (*const deeds[])(const struct job_deed *deed) = {
    [CDDPI_JOB_SAY_GIVEN_UP] = say_given_up, [CDDPI_JOB_SAY_END] = say_end,
    [CDDPI_JOB_SAY_TEXT] = say_text,         [CDDPI_JOB_SAY_HEARD] = say_heard,
    [CDDPI_JOB_SAY_STOPPING] = say_stopping, [CDDPI_JOB_SAY_ENDING] = say_ending,
    [CDDPI_JOB_SAY_KILLING] = say_killing,   [CDDPI_JOB_SAY_OVERDUE] = say_overdue,
    [CDDPI_JOB_ABANDON] = abandon,           [CDDPI_JOB_SIGNAL_GROUPS] = signal_ranks,
    [CDDPI_JOB_SIGNAL_RANKS] = signal_ranks, [CDDPI_JOB_TELL_FAILURE] = tell_failure,
    [CDDPI_JOB_TELL_END] = tell_end,         [CDDPI_JOB_PUBLISH_FAILURE] = publish,
    [CDDPI_JOB_PUBLISH_FOLLOW] = publish,    [CDDPI_JOB_PUBLISH_SAVING] = publish,
    [CDDPI_JOB_FREE_PORTS] = free_ports,
};

_Static_assert(sizeof deeds / sizeof *deeds == CDDPI_JOB_ACTIONS, "a function for each action");

void cddpi_supervision_feed(struct cddpi_supervision *run, const struct cddpi_job_event *event)
{
    const struct cddpi_nodes *nodes = run->job->nodes;
    struct cddpi_job_event timed = *event;
    struct cddpi_job_actions actions;
    char end[1024] = "";
    int described = -1;

    if (timed.now_ns == 0) {
        timed.now_ns = cddpi_now_ns();
    }
    timed.is_given_up = nodes->members.asked_signal == 0 && cddpi_nodes_given_up(nodes);
    cddpi_job_state_step(&run->state, &timed, &actions);
    for (int i = 0; i < actions.count; i++) {
        const struct cddpi_job_action *action = &actions.list[i];

        if (action->rank >= 0 && action->rank != described) {
            described = action->rank;
            describe_end(run, cddpi_supervision_worker(run, described), end, sizeof end);
        }
        deeds[action->kind](&(const struct job_deed){run, action, end});
    }
}
