/* host_agent.c - owns one host's agent as the cddp-run that starts it sees it: its name, its
 * streams, and how it has ended; and what follows from the members of the job. */
#include "launcher/hosts/head.h"

#include "launcher/supervise/monitor.h"

#include "base/file.h"

#include <sys/wait.h>

void cddpi_head_close_input(struct cddpi_agent *agent)
{
    cddpi_fd_close(&agent->input);
}

const char *cddpi_head_agent_name(const struct cddpi_head *head, int i)
{
    static char name[CDDPI_HOST_BYTES + 32]; /* static, since one thread calls this */

    snprintf(name, sizeof name, "node %d (%s)", head->agents[i].node, head->hosts.hosts[i].name);
    return name;
}

void cddpi_head_init_agent(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    cddpi_head_free_words(agent->argv);
    agent->argv = NULL;
    agent->node = head->next_node++;
    agent->has_ended = agent->has_come = false;
    agent->due_ns = INT64_MAX;
    agent->end_steps = 0;
    agent->input = -1;
    agent->log.fd = -1;
    agent->out = (struct cddpi_relay){.fd = -1,
                                      .rank = i,
                                      .owner = 2 * i,
                                      .form = CDDPI_RELAY_LINES,
                                      .output = head->output,
                                      .secret = &head->secret,
                                      .sink = head->output->out,
                                      .log = &agent->log};
    agent->err = agent->out;
    agent->err.owner = 2 * i + 1;
    agent->err.sink = head->output->err;
    /* so that rank 0's progress line appears at once */
    agent->err.form = i == 0 && !head->is_elastic ? CDDPI_RELAY_RAW : CDDPI_RELAY_LINES;
}

void cddpi_head_say_unstarted(struct cddpi_head *head, int i, const char *text)
{
    const struct cddpi_agent *agent = &head->agents[i];

    if (agent->status == 0) {
        cddpi_output_say(head->output,
                         "%s did not start: %.200s ended with status 0 without starting cddp-run "
                         "there (a forced command, a wrapper or a login script that ends?)",
                         cddpi_head_agent_name(head, i), agent->argv[0]);
    } else if (WIFSIGNALED(agent->status) || WEXITSTATUS(agent->status) > 127 ||
               !agent->err.has_come) { /* otherwise it has printed why */
        cddpi_output_say(head->output, "%s did not start: %s", cddpi_head_agent_name(head, i),
                         text);
    }
}

void cddpi_head_word_end(const struct cddpi_head *head, int i, char *out, size_t bytes)
{
    const struct cddpi_agent *agent = &head->agents[i];

    snprintf(out, bytes, "%.200s, or cddp-run there, %s %d", agent->argv[0],
             WIFSIGNALED(agent->status) ? "was killed by signal" : "ended with status",
             WIFSIGNALED(agent->status) ? WTERMSIG(agent->status) : WEXITSTATUS(agent->status));
}

int cddpi_head_find_agent(const struct cddpi_head *head, int node)
{
    for (int i = 0; i < head->hosts.count; i++) {
        if (head->agents[i].node == node) {
            return i;
        }
    }
    return -1;
}

bool cddpi_head_is_ending(const struct cddpi_head *head)
{
    return head->steps > 0 || head->nodes.members.end.kind != CDDPI_EVENT_NONE ||
           head->asked_signal != 0 || head->nodes.members.asked_signal != 0;
}

bool cddpi_head_runs(const struct cddpi_job_member *member)
{
    return member->is_there && member->ranks > 0 && !member->is_done;
}

int cddpi_head_count_running(const struct cddpi_head *head)
{
    const struct cddpi_membership *members = &head->nodes.members;
    int count = 0;

    for (int i = 0; head->is_elastic && i < members->count; i++) {
        count += cddpi_head_runs(&members->list[i]);
    }
    return head->is_elastic ? count : head->hosts.count;
}
