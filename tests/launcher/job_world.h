/* job_world.h - a job in which only cddp-run's decisions are real: the ranks and the clock are
 * simulated, and after each step the rules that hold in every history are checked. */
#ifndef CDDP_TESTS_LAUNCHER_JOB_WORLD_H
#define CDDP_TESTS_LAUNCHER_JOB_WORLD_H

#include "launcher/supervise/job_state.h"
#include "support/test.h"

/* Ranks here are numbered from FIRST_RANK on; ELSEWHERE is one of another machine. */
enum { FIRST_RANK = 2, MOST_RANKS = 6, ELSEWHERE = 100, GRACE_MS = 5000 };

struct world {
    const char *history; /* its name, for messages */
    struct cddpi_job_state state;
    struct cddpi_job_rank ranks[MOST_RANKS];
    struct cddpi_job_actions actions; /* of the last step */
    int64_t now_ns;
    bool is_alive[MOST_RANKS];
    int ends[MOST_RANKS]; /* exit statuses */
    int64_t
        told_ns[MOST_RANKS]; /* when it was last asked to end, or said that it saves; -1: never */
    bool is_killed;
    bool may_kill; /* something has just happened after which ranks are killed without waiting */
    bool is_overruled; /* something has happened that gives the job another exit status */
    int first;         /* the first rank that ended badly; -1: none */
    int named;         /* the rank whose end was said; -1: none */
    int published;
    unsigned seen[CDDPI_JOB_OVER + 1]; /* by phase: the kinds of event that came in it, as bits */
};

/* A job of @p count ranks, none of which is started. */
void world_begin(struct world *world, const char *history, int count, int64_t grace_ms,
                 bool has_nodes);

/* Let @p event happen now. */
void world_feed(struct world *world, struct cddpi_job_event event);

#define FEED(world, ...) world_feed((world), (struct cddpi_job_event){__VA_ARGS__})

/* Start all ranks. */
void world_start(struct world *world);
void world_end_rank(struct world *world, int rank, int exit_status);
/* Let time pass. */
void world_wait(struct world *world, int64_t milliseconds);

/* How often the last step asks for @p kind. */
int world_count(const struct world *world, enum cddpi_job_action_kind kind);
/* Whether the last step sends signal @p number to all ranks. */
bool world_sends(const struct world *world, int number);

#define HOLDS(world, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_msg("%s: not so in phase %d: %s", (world)->history, (int)(world)->state.phase,    \
                     #condition);                                                                  \
        }                                                                                          \
    } while (0)

#endif
