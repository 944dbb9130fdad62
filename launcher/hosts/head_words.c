/* head_words.c - owns what the cddp-run that started a job on a list of hosts tells its user. */
#include "launcher/hosts/head.h"

#include "launcher/supervise/monitor.h"

#include <string.h>
#include <sys/wait.h>

void cddpi_head_word_end(const struct cddpi_head *head, int i, char *out, size_t bytes)
{
    const struct cddpi_agent *agent = &head->agents[i];

    snprintf(out, bytes, "%.200s, or cddp-run there, %s %d", agent->argv[0],
             WIFSIGNALED(agent->status) ? "was killed by signal" : "ended with status",
             WIFSIGNALED(agent->status) ? WTERMSIG(agent->status) : WEXITSTATUS(agent->status));
}

/* Agent @p i has ended without starting cddp-run on its host: say so, unless it has itself. */
static void say_unstarted(const struct cddpi_head *head, int i, const char *end)
{
    const struct cddpi_agent *agent = &head->agents[i];

    if (agent->status == 0) {
        cddpi_output_say(head->output,
                         "%s did not start: %.200s ended with status 0 without starting cddp-run "
                         "there (a forced command, a wrapper or a login script that ends?)",
                         cddpi_head_agent_name(head, i), agent->argv[0]);
    } else if (WIFSIGNALED(agent->status) || WEXITSTATUS(agent->status) > 127 ||
               !agent->err.has_come) { /* otherwise it has printed why */
        cddpi_output_say(head->output, "%s did not start: %s", cddpi_head_agent_name(head, i), end);
    }
}

/* Say what the action tells of the agent of one host. */
static void say_of_agent(const struct cddpi_head *head, const struct cddpi_head_action *action)
{
    const char *name = cddpi_head_agent_name(head, action->host);
    const char *host = head->hosts.hosts[action->host].name;
    struct cddpi_output *output = head->output;
    char end[256];

    switch (action->kind) {
    case CDDPI_HEAD_SAY_CLOSING:
        cddpi_output_say(output, "%s has not ended: closing the connection to it", name);
        break;
    case CDDPI_HEAD_SAY_KILLING:
        cddpi_output_say(output,
                         "%s has still not ended: killing what leads to it; processes of the job "
                         "may be left there",
                         name);
        break;
    case CDDPI_HEAD_SAY_AGAIN:
        cddpi_output_say(output,
                         "starting cddp-run on %s again, as node %d; if that fails, again after "
                         "longer and longer pauses",
                         host, head->state.hosts[action->host].node);
        break;
    case CDDPI_HEAD_SAY_TOO_OFTEN:
        cddpi_output_say(output, "cddp-run was started so often that it is not started again on %s",
                         host);
        break;
    case CDDPI_HEAD_SAY_NOT_COME:
        cddpi_output_say(output, "%s did not come within %g s (--timeout)", name,
                         head->state.timeout_ms / 1000.0);
        break;
    default:
        cddpi_head_word_end(head, action->host, end, sizeof end);
        if (action->kind == CDDPI_HEAD_SAY_UNSTARTED) {
            say_unstarted(head, action->host, end);
        } else if (action->kind == CDDPI_HEAD_SAY_LATE_END) {
            cddpi_output_say(output, "%s: %s after the job's end", name, end);
        } else {
            cddpi_output_say(output, "%s is lost: %s", name, end);
        }
        break;
    }
}

/* Say who is missing, while the head waits or as it gives up. */
static void say_of_coming(struct cddpi_head *head, const struct cddpi_head_action *action)
{
    const struct cddpi_head_state *state = &head->state;
    char missing[2048];
    char refused[CDDPI_REFUSED_BYTES];
    const char *has_refused = "";
    bool first_is_there;

    (void)cddpi_head_list_missing(head, missing, sizeof missing, &first_is_there);
    cddpi_refused_say(&head->refused, refused);
    if (refused[0] != '\0') {
        has_refused = " The job's store has refused ";
    }
    if (action->kind == CDDPI_HEAD_SAY_MISSING) {
        cddpi_output_say(head->output, "of %d hosts these have not come yet: %s", state->count,
                         missing);
    } else if (action->kind == CDDPI_HEAD_SAY_BEGINS) {
        cddpi_output_say(head->output,
                         "the job begins on %d of %d hosts; not there yet: %s: let in when they "
                         "come",
                         action->number, state->count, missing);
    } else if (action->kind == CDDPI_HEAD_SAY_TOO_FEW) {
        cddpi_output_say(head->output,
                         "of at least %d hosts %d came within %g s. Not there: %s. Does %.200s "
                         "reach them, and run the command that it is given?%s%s",
                         state->least, action->number, state->timeout_ms / 1000.0, missing,
                         head->options->ssh, has_refused, refused);
    } else if (missing[0] != '\0') {
        cddpi_output_say(head->output,
                         "of %d hosts these did not come within %g s: %s. Does %.200s reach them, "
                         "and run the command that it is given?%s%s",
                         state->count, state->timeout_ms / 1000.0, missing, head->options->ssh,
                         has_refused, refused);
    } else {
        cddpi_output_say(head->output,
                         "%d hosts have come within %g s, but the job did not start%s%s",
                         state->count, state->timeout_ms / 1000.0, has_refused, refused);
    }
}

/* Say what the action tells of the job. */
static void say_of_job(struct cddpi_head *head, const struct cddpi_head_action *action)
{
    struct cddpi_output *output = head->output;
    double grace_s = (double)head->state.grace_ms / 1000;
    double timeout_s = head->state.timeout_ms / 1000.0;
    int number = action->number;

    switch (action->kind) {
    case CDDPI_HEAD_SAY_LOST:
        cddpi_output_say(output, "%s is lost: %s", cddpi_node_name(&head->nodes, number),
                         action->text);
        break;
    case CDDPI_HEAD_SAY_CAME:
        cddpi_output_say(output, "%s has come", cddpi_node_name(&head->nodes, number));
        break;
    case CDDPI_HEAD_SAY_LEAVES:
        cddpi_output_say(output, "%s leaves the job", cddpi_node_name(&head->nodes, number));
        break;
    case CDDPI_HEAD_SAY_EARLY_SIGNAL:
        cddpi_output_say(output, "SIG%s: ending before all hosts had come", sigabbrev_np(number));
        break;
    case CDDPI_HEAD_SAY_STOPPING:
        cddpi_output_say(output,
                         "SIG%s: stopping all ranks on %d hosts; after %g s, or at a second "
                         "signal, they are killed",
                         sigabbrev_np(number), cddpi_head_count_running(&head->state), 3 * grace_s);
        break;
    case CDDPI_HEAD_SAY_ENDING:
        cddpi_output_say(output,
                         "stopping the other ranks on %d host%s; after %g s they are killed",
                         number, number == 1 && head->state.is_elastic ? "" : "s", grace_s);
        break;
    case CDDPI_HEAD_SAY_CUT:
        cddpi_output_say(output, "this cddp-run has lost the job's store: %s", action->text);
        break;
    case CDDPI_HEAD_SAY_NONE_LEFT:
        cddpi_output_say(output,
                         "no host is left: waiting for one to come back for up to %g s (--timeout)",
                         timeout_s);
        break;
    case CDDPI_HEAD_SAY_ALL_LEFT:
        cddpi_output_say(output,
                         "all hosts have left. The job ends; started again, it goes on from "
                         "its last checkpoint");
        break;
    case CDDPI_HEAD_SAY_NONE_BACK:
        cddpi_output_say(output,
                         "no host came back within %g s. The job ends; started again, it goes on "
                         "from its last checkpoint",
                         timeout_s);
        break;
    default:
        say_of_coming(head, action);
        break;
    }
}

void cddpi_head_say(struct cddpi_head *head, const struct cddpi_head_action *action)
{
    if (action->kind == CDDPI_HEAD_SAY) {
        cddpi_output_say(head->output, "%s", action->text);
    } else if (action->host >= 0) {
        say_of_agent(head, action);
    } else {
        say_of_job(head, action);
    }
}

void cddpi_head_say_first_failure(const struct cddpi_head *head)
{
    const struct cddpi_node_event *failure = cddpi_head_first_failure(&head->state);

    if (failure != NULL) {
        cddpi_output_say(head->output, "the first to fail was %s: %s",
                         cddpi_member_name(&head->nodes.members, failure->node), failure->text);
    }
}
