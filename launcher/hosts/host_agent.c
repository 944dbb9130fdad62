/* host_agent.c - owns one host's agent as the cddp-run that starts it sees it: its name and
 * its streams. */
#include "launcher/hosts/head.h"

#include "base/alloc.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum { SAID_BYTES = 8192 };

const char *cddpi_head_agent_name(const struct cddpi_head *head, int i)
{
    static char name[CDDPI_HOST_BYTES + 32]; /* static, since one thread calls this */

    snprintf(name, sizeof name, "node %d (%s)", head->state.hosts[i].node,
             head->hosts.hosts[i].name);
    return name;
}

void cddpi_head_init_agent(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];

    cddpi_head_free_words(agent->argv);
    agent->argv = NULL;
    agent->pid = 0; /* the earlier one was reaped, so its id may be another process's */
    agent->is_reaped = false;
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
    agent->err.form = i == 0 && !head->state.is_elastic ? CDDPI_RELAY_RAW : CDDPI_RELAY_LINES;
}

void cddpi_head_finish_agent(struct cddpi_agent *agent)
{
    cddpi_relay_finish(&agent->out);
    cddpi_relay_finish(&agent->err);
    cddpi_buffer_fini(&agent->parcel);
    memset(&agent->parcel, 0, sizeof agent->parcel);
    agent->sent = 0;
}

/* Whether two texts differ in more than numbers, such as a node's or a time. */
static bool differ(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return true;
        }
    }
    return *a != *b;
}

void cddpi_head_release_held(struct cddpi_agent *agent, bool has_failed)
{
    char text[SAID_BYTES];
    size_t bytes = 0;
    ssize_t got;

    while (has_failed && agent->err.fd >= 0 && bytes < sizeof text - 1 &&
           (got = read(agent->err.fd, text + bytes, sizeof text - 1 - bytes)) > 0) {
        bytes += (size_t)got;
    }
    text[bytes] = '\0';
    if (bytes > 0 && (agent->said == NULL || differ(agent->said, text))) {
        cddpi_relay_pass(&agent->err, text, bytes);
        cddpi_free(agent->said);
        agent->said = cddpi_strdup(text);
    }
    if (bytes > 0) {
        agent->err.has_come = true; /* now or the last time */
    }
    (void)cddpi_relay_read(&agent->err);
}
