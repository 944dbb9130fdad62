/* kept.c - histories that have found something, as plans: what kind of job it is, and what is done
 * to it when. Each is told with many numbers, since what exactly meets what is a matter of
 * milliseconds. */
#include "tests/sim/sim.h"

/* An elastic job of up to four nodes that trains for some seconds. */
#define JOB(first, fewest, grace) SIZED(first, fewest, 4, grace)
#define SIZED(first, fewest, greatest, grace)                                                      \
    .is_elastic = true, .hosts = (first), .least = (fewest), .most = (greatest),                   \
    .nproc = {1, 2, 2, 1}, .max_restarts = -1, .steps = 80, .save_every = 5,                       \
    .step_ns = 100 * SIM_MS, .save_ns = 50 * SIM_MS, .limit_ms = 3000, .grace_ms = (grace),        \
    .gather_ms = 20000, .group_ms = 15000, .refuses = -1

/* The same, started by a head. */
#define HEAD(first, fewest, greatest)                                                              \
    SIZED(first, fewest, greatest, 1000), .has_store = true, .has_head = true

/* A fixed job, started by a head. */
#define FIXED_HEAD(first)                                                                          \
    .hosts = (first), .least = (first), .most = (first), .nproc = {1, 2, 2, 1}, .steps = 80,       \
    .save_every = 5, .step_ns = 100 * SIM_MS, .save_ns = 50 * SIM_MS, .limit_ms = 3000,            \
    .grace_ms = 1000, .gather_ms = 20000, .group_ms = 15000, .refuses = -1, .has_head = true

/* At @p at_ms, something is done to the node or rank that is the @p which-th living one. */
#define AT(at_ms, harm, which)                                                                     \
    {                                                                                              \
        (harm), (at_ms)*SIM_MS, 0, (which), false                                                  \
    }

#define FREEZE(at_ms, lasts_ms, which)                                                             \
    {                                                                                              \
        SIM_FREEZE, (at_ms)*SIM_MS, (lasts_ms)*SIM_MS, (which), false                              \
    }

const struct sim_kept sim_kept[] = {
    {"undisturbed", "nothing: three nodes train to the end", {JOB(3, 1, 1000)}},
    {"two-at-once",
     "START named a node that waited and was lost together with another, and all waited for its "
     "ranks",
     {JOB(3, 1, 1000), .count = 3,
      .list = {AT(1000, SIM_NEW_NODE, 3), AT(1400, SIM_CRASH_NODE, 1),
               AT(1401, SIM_CRASH_NODE, 2)}}},
    {"orphan",
     "node 0 lost its parent while START was on its way, and started ranks after the end",
     {JOB(2, 1, 1000), .count = 2, .list = {AT(2000, SIM_KILL_RANK, 1), AT(2080, SIM_ORPHAN, 0)}}},
    {"told-restarts",
     "a loss was told as a restart if a failure that followed from it came first",
     {JOB(3, 1, 0), .count = 1, .list = {AT(2000, SIM_CRASH_NODE, 1)}}},
    {"leave-while-waiting",
     "a node that was asked to leave while others were waited for stayed until --timeout",
     {JOB(3, 3, 1000), .count = 2,
      .list = {AT(2000, SIM_TERM_NODE, 1), AT(4000, SIM_TERM_NODE, 1)}}},
    {"killed-launcher",
     "kill -9 of a cddp-run whose supervisor lived ended the whole job, not only its node",
     {JOB(3, 1, 1000), .count = 1, .list = {AT(2000, SIM_ORPHAN, 1)}}},
    {"lost-when-done",
     "a node was lost after its ranks had ended with 0, and the job ended with 1 although all had",
     {JOB(3, 1, 1000), .count = 1, .list = {AT(10000, SIM_CRASH_NODE, 1)}}},
    {"no-grace",
     "with a grace period of 0, ranks were killed when members changed, and lost steps",
     {JOB(2, 1, 0), .count = 1, .list = {AT(2000, SIM_NEW_NODE, 2)}}},
    {"reset",
     "a connection that something between hosts reset cost the node",
     {JOB(2, 1, 1000), .count = 2,
      .list = {AT(2000, SIM_BREAK_CONNECTION, 1), AT(2500, SIM_BREAK_CONNECTION, 3)}}},
    {"first-stood-still",
     "node 0 stood still, and then took every loss and failure for the others going on without it",
     {JOB(3, 1, 1000), .count = 2, .list = {FREEZE(2000, 4000, 0), AT(7000, SIM_CRASH_NODE, 1)}}},
    {"no-process-left",
     "a host on which no rank could be started ended a job that the others could go on with",
     {JOB(3, 1, 1000), .count = 2,
      .list = {{SIM_NO_START, 1900 * SIM_MS, 5 * SIM_S, 1, false}, AT(2000, SIM_CRASH_NODE, 2)}}},
    {"no-process-left-to-lead",
     "the same, with an outside store, where it was the node that leads",
     {JOB(3, 1, 1000), .has_store = true, .count = 2,
      .list = {{SIM_NO_START, 1900 * SIM_MS, 5 * SIM_S, 0, false}, AT(2000, SIM_KILL_RANK, 3)}}},
    {"held-for-nothing",
     "a node that could start nothing made a newcomer wait, and then ended the job without it",
     {JOB(1, 1, 1000), .has_store = true, .count = 2,
      .list = {{SIM_NO_START, 1000 * SIM_MS, 15 * SIM_S, 0, false}, AT(1500, SIM_NEW_NODE, 13)}}},
    {"way-ends-early",
     "what led to a host ended before the nodes had met, its node came late all the same, and the "
     "head never started another one there",
     {HEAD(4, 3, 3), .count = 1, .list = {AT(600, SIM_ORPHAN, 8)}}},
    {"cut-before-start",
     "the head's machine was lost when node 0 of a fixed job had decided to start, and it waited "
     "for ever",
     {FIXED_HEAD(2), .count = 2,
      .list = {{SIM_FREEZE_HEAD, 200 * SIM_MS, 8 * SIM_S, 0, false}, AT(4000, SIM_HEAD_OFF, 0)}}},
};

const int sim_kept_count = sizeof sim_kept / sizeof sim_kept[0];
