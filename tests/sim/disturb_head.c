/* disturb_head.c - what is done to a job that a head starts on a list of hosts: to the head, and to
 * what leads to the hosts. */
#include "tests/sim/sim_head.h"

#include <signal.h>

/* What happens to the head happens to the whole job, so it is drawn seldom. */
static enum sim_harm draw_harm(void)
{
    static const enum sim_harm often[] = {SIM_AGENT_FAILS, SIM_AGENT_HANGS, SIM_ORPHAN, SIM_STOP,
                                          SIM_STOP};
    static const enum sim_harm seldom[] = {SIM_KILL_HEAD, SIM_HEAD_OFF, SIM_FREEZE_HEAD,
                                           SIM_TERM_HEAD, SIM_TERM_HEAD};

    return sim_chance(75) ? often[sim_between(0, 4)] : seldom[sim_between(0, 4)];
}

void sim_draw_head(void)
{
    static const int64_t timeouts_ms[] = {5000, 20000, 60000};
    struct sim_plan *plan = &sim.plan;

    plan->has_head = true;
    plan->has_store = plan->is_elastic;
    if (plan->is_alone) {
        plan->is_alone = false;
        plan->least = plan->is_elastic ? 1 : plan->hosts;
    }
    if (plan->hosts < 4 && sim_chance(60)) { /* more than one host is more interesting */
        plan->hosts++;
        plan->least += !plan->is_elastic;
    }
    plan->most = plan->is_elastic ? (int)sim_between(plan->least, plan->hosts) : plan->hosts;
    plan->gather_ms = timeouts_ms[sim_between(0, 2)];
    for (int i = 0; i < plan->count; i++) {
        struct sim_disturbance *next = &plan->list[i];

        if (next->harm == SIM_NEW_NODE || sim_chance(35)) {
            next->harm = draw_harm();
        }
        if (sim_chance(10)) { /* also while hosts come */
            next->at_ns /= 10;
        }
    }
}

static void say(const struct sim_disturbance *next, int host)
{
    sim_say("%s: h%d (%.1f s)", sim_harm_name(next->harm), host, (double)next->lasts_ns / 1e9);
}

static int64_t *longer(int64_t *until_ns, int64_t lasts_ns)
{
    *until_ns = sim.now_ns + lasts_ns > *until_ns ? sim.now_ns + lasts_ns : *until_ns;
    return until_ns;
}

static void disturb_agent(const struct sim_disturbance *next)
{
    int host = next->target % sim.plan.hosts;

    say(next, host);
    switch (next->harm) {
    case SIM_AGENT_FAILS:
        (void)longer(&sim_head.fails_until_ns[host], next->lasts_ns);
        break;
    case SIM_AGENT_HANGS:
        (void)longer(&sim_head.hangs_until_ns[host], next->lasts_ns);
        break;
    case SIM_STOP: /* its kernel answers, and no process does */
        if (!sim_is_frozen(host)) {
            (void)longer(&sim.hosts[host].frozen_until_ns, next->lasts_ns);
            (void)longer(&sim.hosts[host].answers_until_ns, next->lasts_ns);
        }
        break;
    default: /* cddp-run may not notice */
        sim_agent_ends(host, next->target % 3 == 0 ? 0 : 255, next->target % 4 != 0);
        break;
    }
}

void sim_disturb_head(const struct sim_disturbance *next)
{
    if (next->harm == SIM_ORPHAN || next->harm == SIM_AGENT_FAILS ||
        next->harm == SIM_AGENT_HANGS || next->harm == SIM_STOP) {
        disturb_agent(next);
        return;
    }
    if (!sim_head.is_alive) {
        return;
    }
    if (sim_is_frozen(SIM_STORE_HOST) && next->harm != SIM_HEAD_OFF) {
        sim_at(sim.hosts[SIM_STORE_HOST].frozen_until_ns, SIM_DISTURB, (int)(next - sim.plan.list),
               0, 0);
        return;
    }
    say(next, SIM_STORE_HOST);
    sim.may_end = true;
    switch (next->harm) {
    case SIM_FREEZE_HEAD:
        (void)longer(&sim.hosts[SIM_STORE_HOST].frozen_until_ns, next->lasts_ns);
        break;
    case SIM_TERM_HEAD:
        if (sim.was_asked) { /* a second signal hurries */
            sim_note_harm(next);
        }
        sim.was_asked = true;
        sim_head_signal(next->target % 2 == 0 ? SIGINT : SIGTERM);
        break;
    default:
        sim_head_gone(next->harm == SIM_HEAD_OFF);
        break;
    }
}
