/* fleet.c - the nodes of one job, each started with --nnodes and --rdzv, all on this machine. */
#include "support/fleet.h"

void fleet_begin(struct fleet *fleet)
{
    memset(fleet, 0, sizeof *fleet);
    fleet->folder = support_mkdtemp();
    snprintf(fleet->url, sizeof fleet->url, "file://%s", fleet->folder);
    unsetenv("CDDP_TOKEN");
    setenv("SHARED", fleet->folder, 1);
    setenv("CDDP_HEARTBEAT_MS", A_DAY, 1);
}

void fleet_begin_tcp(struct fleet *fleet)
{
    fleet_begin(fleet);
    snprintf(fleet->url, sizeof fleet->url, "tcp://127.0.0.1:%u", support_free_port());
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
}

void fleet_await_all(void)
{
    launcher_settle(86400);
}

void fleet_start(struct fleet *fleet, int i, const char *nnodes, const char *rank,
                 const char *const *rest)
{
    const char *words[24] = {"--nnodes", nnodes, "--rdzv", fleet->url};
    int count = 4;

    if (rank != NULL) {
        words[count++] = "--node-rank";
        words[count++] = rank;
    }
    while (*rest != NULL) {
        words[count++] = *rest++;
    }
    words[count] = NULL;
    launcher_start(&fleet->nodes[i], words);
}

void fleet_start_pod(struct fleet *fleet, int i, const char *port, const char *const *words)
{
    support_setenv_number("PET_NODE_RANK", i);
    setenv("PET_NNODES", "2", 1);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("PET_MASTER_ADDR", "127.0.0.1", 1);
    setenv("PET_MASTER_PORT", port, 1);
    launcher_start(&fleet->nodes[i], words);
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_NNODES");
    unsetenv("PET_NPROC_PER_NODE");
    unsetenv("PET_MASTER_ADDR");
    unsetenv("PET_MASTER_PORT");
}

void fleet_end(struct fleet *fleet)
{
    for (int i = 0; i < FLEET_NODES; i++) {
        if (fleet->nodes[i].dir != NULL) {
            launcher_end(&fleet->nodes[i]);
        }
    }
    support_rmdir(fleet->folder);
    unsetenv("CDDP_TOKEN");
    unsetenv("SHARED");
    unsetenv("CDDP_HEARTBEAT_MS");
    launcher_settle(0);
}

void fleet_wait(struct fleet *fleet, int count)
{
    for (int i = 0; i < count; i++) {
        launcher_wait(&fleet->nodes[i]);
    }
}

void fleet_ends_with(struct fleet *fleet, int count, int exit_status)
{
    fleet_wait(fleet, count);
    for (int i = 0; i < count; i++) {
        if (fleet->nodes[i].exit_status != exit_status) {
            fail_msg("node %d ended with %d, not %d: %s", i, fleet->nodes[i].exit_status,
                     exit_status, fleet->nodes[i].err);
        }
    }
}

pid_t fleet_supervisor(const struct fleet *fleet, int rank)
{
    struct launched shared = fleet->nodes[0];
    char name[32];

    shared.dir = fleet->folder;
    snprintf(name, sizeof name, "parent%d", rank);
    return (pid_t)launcher_number(&shared, name);
}
