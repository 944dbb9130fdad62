/* outside.c - jobs whose store is in a process of its own (cddp-run --store, on a host that is
 * never disturbed, or the head). That process watches all nodes, with a real link, and tells their
 * losses. A shadow of the members follows the log at once, and says who leads at its end. */
#include "tests/sim/sim_head.h"

#include "launcher/nodes/membership_own.h"

#include <string.h>

static struct cddpi_membership shadow;
static struct cddpi_job_member shadow_list[SIM_NODES];

int sim_store_host(void)
{
    return sim.plan.has_store || sim.plan.has_head ? SIM_STORE_HOST : sim.nodes[CDDPI_LEADER].host;
}

bool sim_store_is_served(void)
{
    return sim.plan.has_head ? sim_head.is_alive
                             : sim.plan.has_store || sim.nodes[CDDPI_LEADER].is_alive;
}

struct sim_node *sim_leader(void)
{
    int node = sim.plan.has_store ? cddpi_member_leader(&shadow) : CDDPI_LEADER;

    return &sim.nodes[node >= 0 ? node : CDDPI_LEADER];
}

void sim_outside_begin(void)
{
    struct sim_node *watcher = &sim.nodes[SIM_WATCHER];

    if (!sim.plan.has_store && !sim.plan.has_head) {
        return;
    }
    *watcher = (struct sim_node){
        .is_alive = true, .host = SIM_STORE_HOST, .number = SIM_WATCHER, .lost_at = -1};
    shadow = (struct cddpi_membership){.list = shadow_list,
                                       .room = SIM_NODES,
                                       .self = -1,
                                       .outside_store = SIM_STORE,
                                       .is_elastic = sim.plan.is_elastic,
                                       .max_restarts = -1,
                                       .generation = -1};
    for (int i = 0; i < sim.met_count; i++) {
        (void)cddpi_membership_add(&shadow, sim.met[i].number, "", sim.plan.nproc[sim.met[i].host]);
    }
    sim_link_open(watcher);
}

bool sim_outside_counts(const struct cddpi_node_event *event)
{
    static struct cddpi_membership_actions actions; /* static, since it is large */
    const struct cddpi_membership_event heard = {
        .kind = CDDPI_MEMBERS_HEARD, .now_ns = sim.now_ns + 1, .heard = event};
    bool is_decision = event->kind == CDDPI_EVENT_START || event->kind == CDDPI_EVENT_END ||
                       event->kind == CDDPI_EVENT_CHANGE;
    bool counts = !is_decision || cddpi_member_may_decide(&shadow, event->node);

    if (!sim.plan.has_store) {
        return true;
    }
    cddpi_membership_step(&shadow, &heard, &actions);
    if (!counts) {
        sim_say("  which does not count: node %d does not lead", event->node);
    }
    return counts;
}
