/* meet.c - the nodes of a job that a head has started, until they have met. */
#include "tests/sim/meet.h"

#include "tests/sim/sim_head.h"

enum { LOOK_MS = 50, SPARE_MS = 5000 /* in addition to --timeout */ };

bool sim_meet_come(int host, int number)
{
    struct sim_node *node = &sim.nodes[number];

    if (number >= SIM_NODES) {
        sim.may_end = true;
        return false;
    }
    if (node->meets || node->has_begun) {
        sim_break("node %d is started twice", number);
        return false;
    }
    *node = (struct sim_node){.is_alive = true,
                              .meets = true,
                              .host = host,
                              .number = number,
                              .nproc = sim.plan.nproc[host],
                              .lost_at = -1,
                              .left_at = -1};
    node->meet_until_ns = sim_clock(host) + (sim.plan.gather_ms + SPARE_MS) * SIM_MS;
    sim.node_count = number >= sim.node_count ? number + 1 : sim.node_count;
    sim_in(sim_between(5, 200) * SIM_MS, SIM_MEET, number, 0, 0);
    return true;
}

bool sim_meet_has_come(int number)
{
    return number < SIM_NODES && sim.nodes[number].has_record;
}

void sim_meet_add(int number, int host)
{
    int i = sim.met_count++;

    for (; i > 0 && sim.met[i - 1].number > number; i--) { /* by number, as the plan has them */
        sim.met[i] = sim.met[i - 1];
    }
    sim.met[i].number = number;
    sim.met[i].host = host;
}

/* In a job with a fixed number of hosts, node 0 lets them meet. */
static void gather(void)
{
    for (int i = 0; i < sim.plan.hosts; i++) {
        if (!sim.nodes[i].has_record) {
            return;
        }
    }
    sim_head.has_plan = true;
}

static void end(struct sim_node *node)
{
    node->is_over = true;
    node->exit_status = 1;
    sim_say("%s ends before the nodes have met", sim_node_name(node));
    sim_node_gone(node, false);
}

void sim_meet_input_ends(struct sim_node *node)
{
    if (node->meets) {
        end(node);
    } else if (!node->is_over && !node->orphaned) {
        sim_say("the input of %s ends", sim_node_name(node));
        sim_node_orphan(node);
    }
}

void sim_meet_look(struct sim_node *node)
{
    bool is_reached = sim_can_reach(node->host, SIM_STORE_HOST) &&
                      !sim.hosts[SIM_STORE_HOST].is_off;

    if (!node->meets) {
        return;
    }
    if (sim_clock(node->host) > node->meet_until_ns || (is_reached && !sim_head.is_alive)) {
        end(node);
        return;
    }
    if (is_reached) {
        node->has_record = true;
        if (node->number == 0 && !sim.plan.is_elastic) {
            gather();
        }
    }
    if (is_reached && sim_head.has_plan && sim_chance(50)) {
        node->meets = false;
        sim_node_meets(node);
        return;
    }
    sim_in(LOOK_MS * SIM_MS, SIM_MEET, node->number, 0, 0);
}
