/* reached.c - starts jobs on a list of hosts that may be lost, all on this machine. */
#include "support/reached.h"

#include <signal.h>

const char *const reached_hosts[REACHED_HOSTS] = {"alpha", "beta", "gamma"};

static const char reach[] = "#!/bin/sh\n"
                            "host=$1\n"
                            "shift\n"
                            "echo >>tries-$host\n"
                            "[ ! -e hang-$host ] || exec sleep 1000\n"
                            "if [ -e away-$host ]; then\n"
                            "    echo \"ssh: connect to host $host: No route to host\" >&2\n"
                            "    exit 255\n"
                            "fi\n"
                            "more=\n"
                            "[ ! -e other-$host ] || more=' more'\n"
                            "echo $$ >agent-$host\n"
                            "exec sh -c \"exec $*$more\"\n";

void reached_prepare(struct launched *job)
{
    memset(job, 0, sizeof *job);
    job->dir = support_mkdtemp();
    launcher_write(job->dir, "reach", reach);
    unsetenv("CDDP_TOKEN");
    setenv("CDDP_HEARTBEAT_MS", "86400000", 1);
    launcher_settle(86400);
}

void reached_mark(const struct launched *job, const char *what, const char *host, bool is_set)
{
    char path[4300];

    snprintf(path, sizeof path, "%s-%s", what, host);
    if (is_set) {
        launcher_write(job->dir, path, "");
    } else {
        snprintf(path, sizeof path, "%s/%s-%s", job->dir, what, host);
        assert_int_equal(unlink(path), 0);
    }
}

void reached_await(const struct launched *job, int generation, int rank, const char *text)
{
    char name[32];

    snprintf(name, sizeof name, "up%d.%d", generation, rank);
    launcher_await_text(job->dir, name, text);
}

void reached_begin(struct launched *job, const char *nnodes, const char *timeout)
{
    reached_prepare(job);
    TRAIN(job, "alpha:1,beta:2,gamma:1", nnodes, timeout);
    for (int rank = 0; rank < 4; rank++) {
        reached_await(job, 0, rank, "/4 on 3");
    }
}

void reached_kill(const struct launched *job, const char *host)
{
    char name[32];

    reached_mark(job, "away", host, true);
    snprintf(name, sizeof name, "agent-%s", host);
    kill(-(pid_t)launcher_number(job, name), SIGKILL);
}

void reached_finish(struct launched *job, int exit_status)
{
    launcher_write(job->dir, "go", "");
    launcher_wait(job);
    if (job->exit_status != exit_status) {
        fail_msg("status %d, not %d: %s", job->exit_status, exit_status, job->err);
    }
}

void reached_end(struct launched *job)
{
    unsetenv("CDDP_HEARTBEAT_MS");
    launcher_settle(0);
    launcher_end(job);
}
