/* plants.c - faults that are planted on purpose, one at a time, to see that the rules find them.
 * The hooks are in node.c, supervise.c, link.c, group.c and agents.c: production code has none. */
#include "tests/sim/sim.h"

#include <string.h>

static const struct {
    const char *name, *sentence;
} plants[SIM_PLANTS] = {
    [SIM_PLANT_FORGET_LOST] = {"forget-lost", "a node does not hear that it was given up"},
    [SIM_PLANT_LOSE_EVENT] = {"lose-event", "a node misses an event of the log"},
    [SIM_PLANT_SWAP_EVENTS] = {"swap-events", "a node hears an event too early, and then again"},
    [SIM_PLANT_START_EARLY] = {"start-early", "node 0 starts a generation at the first DONE"},
    [SIM_PLANT_STALE_DONE] = {"stale-done", "DONE of the last generation counts in the next"},
    [SIM_PLANT_NO_DEADLINE] = {"no-deadline", "a cddp-run forgets its deadlines"},
    [SIM_PLANT_NO_KILL] = {"no-kill", "SIGKILL reaches no rank"},
    [SIM_PLANT_WRONG_STATUS] = {"wrong-status", "a node reports status 0 whatever happened"},
    [SIM_PLANT_HIDE_FAILURE] = {"hide-failure", "a rank's failure is not told to other nodes"},
    [SIM_PLANT_LEAVE_RANKS] = {"leave-ranks", "a node does not wait for its last ranks"},
    [SIM_PLANT_HASTY_CHANGE] = {"hasty-change", "ranks are killed when members change"},
    [SIM_PLANT_NO_WATCH] = {"no-watch", "node 0 does not miss a node that is silent"},
    [SIM_PLANT_LATE_WRITE] = {"late-write", "a checkpoint is written after its rank has ended"},
    [SIM_PLANT_BLAME_OTHER] = {"blame-other", "another rank is named as the cause"},
    [SIM_PLANT_HIDE_UNABLE] = {"hide-unable", "ranks that cannot be started are not told apart"},
    [SIM_PLANT_EVER_NEW] = {"ever-new", "a node that came late is new for ever"},
    [SIM_PLANT_HEAD_DEAF] = {"head-deaf", "the head does not hear that a node is lost"},
    [SIM_PLANT_HEAD_UNEXPLAINED] = {"head-unexplained", "the head never explains an agent's end"},
    [SIM_PLANT_HEAD_HIDE_END] = {"head-hide-end", "the head does not tell that an agent has ended"},
    [SIM_PLANT_HEAD_NO_END] = {"head-no-end", "what the head does to end an agent has no effect"},
    [SIM_PLANT_HEAD_NO_TIME] = {"head-no-time", "the head forgets its deadlines"},
    [SIM_PLANT_HEAD_HASTY] = {"head-hasty", "the head's deadlines pass 100 s too early"},
    [SIM_PLANT_HEAD_STATUS] = {"head-status", "the head takes each end of an agent for success"},
    [SIM_PLANT_HEAD_EARLY] = {"head-early", "the head begins with a node less than it needs"},
};

bool sim_planted(enum sim_plant plant)
{
    return sim.plant == (int)plant;
}

const char *sim_plant_name(int plant)
{
    return plants[plant].name;
}

const char *sim_plant_sentence(int plant)
{
    return plants[plant].sentence;
}

int sim_plant_find(const char *name)
{
    for (int i = 0; i < SIM_PLANTS; i++) {
        if (strcmp(plants[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}
