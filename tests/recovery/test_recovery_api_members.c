/* test_recovery_api_members.c - jobs of cddp/recovery.h of several launchers, of which one is lost,
 * and jobs whose ranks are killed at any moment. */
#include "support/fleet.h"
#include "support/recovery_api.h"

#define ALL STATE_ALL "ddp=s "

/* Start node @p i of a job, as a machine of its own, with @p ranks ranks, a digit. */
static void start_node(struct fleet *fleet, int i, const char *nnodes, char ranks,
                       const char *words)
{
    const char number[] = {(char)('0' + i), '\0'};
    const char count[] = {ranks, '\0'};

    support_setenv_number("CDDP_HOST_ID", 100 + i);
    START(fleet, i, nnodes, number, "--nproc", count, "--", recovery_rank(), words);
    unsetenv("CDDP_HOST_ID");
}

static void start_nodes(struct fleet *fleet, const char *nnodes, const char *ranks,
                        const char *words)
{
    fleet_begin_tcp(fleet);
    if ((size_t)(nnodes[2] - '0') == strlen(ranks)) {
        fleet_await_all();
    }
    for (int i = 0; ranks[i] != '\0'; i++) {
        start_node(fleet, i, nnodes, ranks[i], words);
    }
}

/* Kill both processes of a node's launcher, whose ranks end with them. */
static void kill_node(struct launched *node)
{
    pid_t supervisor = launcher_child(node->pid);

    kill(node->pid, SIGKILL);
    kill(supervisor, SIGKILL);
}

/* The last node has a rank that waits as @p words say, and is killed. The job goes on without it,
 * as the lines say. */
static void lose_node(const char *ranks, const char *words, const char *const *lines)
{
    int lost = (int)strlen(ranks) - 1;
    const char nnodes[] = {'1', ':', (char)('1' + lost), '\0'};
    struct fleet fleet;

    start_nodes(&fleet, nnodes, ranks, words);
    launcher_await_text(fleet.nodes[lost].dir, "out", "waits ");
    kill_node(&fleet.nodes[lost]);
    recovery_ends_well(&fleet.nodes[0], lines);
    fleet_end(&fleet);
}

static void a_launcher_that_is_lost_costs_no_step(void **state)
{
    (void)state;
    lose_node("11", ALL "0.1:waits=5", LOOPS("1.1: replaced 4\n", "1.1: ends at 9\n"));
    lose_node("22", ALL "0.3:waits=5 1.1:kill=5",
              LOOPS("1.2: replaced 4\n", "2.2: replaced 4\n", "2.2: ends at 9\n"));
    lose_node("121", ALL "0.3:waits=5 1.2:kill=7",
              LOOPS("1.3: replaced 4\n", "2.3: replaced 6\n", "2.3: ends at 9\n"));
}

/* Then no rank has it whole. */
static void nor_does_one_that_is_lost_while_it_copies(void **state)
{
    (void)state;
    lose_node("11", ALL "0.1:save-waits=5", LOOPS("1.1: replaced 4\n", "1.1: ends at 9\n"));
    lose_node("22", ALL "0.2:save-waits=3", LOOPS("1.2: replaced 2\n", "1.2: ends at 9\n"));
    lose_node("11", ALL "0.1:save-waits=1", LOOPS("1.1: begins at 0\n", "copies: 9\n"));
}

/* Of three ranks of two launchers, both of the second have each other's copies, or none. */
static void what_is_lost_with_its_launcher_costs_the_steps_since_the_checkpoint(void **state)
{
    struct fleet fleet;

    (void)state;
    start_nodes(&fleet, "1:2", "12", ALL "checkpoint=4 0.2:waits=7");
    launcher_await_text(fleet.nodes[1].dir, "out", "waits ");
    kill_node(&fleet.nodes[1]);
    recovery_ends_well(&fleet.nodes[0], LOOPS("1.1: begins at 4\n", "1.1: ends at 9\n"));
    launcher_need_absence(fleet.nodes[0].out, "replaced", "stdout");
    assert_err(
        &fleet.nodes[0],
        "recovery: going back to the newest checkpoint: a part of the last state was lost\n");
    fleet_end(&fleet);
}

/* It comes while the first one's rank waits, and has all that it needs when that is lost. */
static void a_launcher_that_comes_and_goes_costs_no_step(void **state)
{
    static const char words[] = ALL "0.0:waits=3 1.2:kill=5 2.0:waits=7 3.*:kill=8";
    struct fleet fleet;

    (void)state;
    start_nodes(&fleet, "1:2", "2", words);
    launcher_await_text(fleet.nodes[0].dir, "out", "waits 3\n");
    start_node(&fleet, 1, "1:2", '2', words);
    launcher_await_text(fleet.nodes[0].dir, "out", "waits 7\n");
    kill(fleet.nodes[1].pid, SIGTERM);
    recovery_ends_well(&fleet.nodes[0],
                       LOOPS("0.2: stopped 3\n", "1.4: replaced 3\n", "2.4: replaced 4\n",
                             "2.4: stopped 7\n", "3.2: replaced 7\n", "4.2: replaced 7\n",
                             "4.2: ends at 9\n"));
    launcher_wait(&fleet.nodes[1]);
    assert_int_equal(fleet.nodes[1].exit_status, 3);
    fleet_end(&fleet);
}

/* Rank @p generation % @p ranks of each generation is killed after a time that is drawn, or all
 * are; but of four generations only: at the fifth in which nothing was done the job is given up.
 * @p more words. Returns how often ranks have gone on from memory. */
static int kill_at_any_moment(unsigned *random, const char *ranks, const char *more)
{
    struct launched job = {0};
    int replaced;
    char words[1024];
    int length = snprintf(words, sizeof words, "every=1 steps=60 " ARRAYS_ALL "ddp=%s %s",
                          *random % 2 == 0 ? "s" : "p", more);

    for (int generation = 0; generation < 4; generation++) {
        char rank[8] = "*";

        *random = *random * 1103515245 + 12345;
        if (*random >> 20 & 3) {
            snprintf(rank, sizeof rank, "%d", generation % atoi(ranks));
        }
        length += snprintf(words + length, sizeof words - (size_t)length, " %d.%s:chaos=%u",
                           generation, rank, 1 + (*random >> 8) % 50000);
    }
    recovery_runs(&job, ranks, LOOPS(words), LOOPS("ends at 60\n"));
    replaced = launcher_count(job.out, "replaced ");
    launcher_end(&job);
    return replaced;
}

static void ranks_can_be_killed_at_any_moment(void **state)
{
    unsigned random = 1;
    int replaced = 0;

    (void)state;
    for (int i = 0; i < 4; i++) {
        replaced += kill_at_any_moment(&random, "2", "strict=1");
        replaced += kill_at_any_moment(&random, "3", "strict=1");
        replaced += kill_at_any_moment(&random, "2", "calls=77");
    }
    assert_true(replaced > 0); /* however fast the machine is */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launcher_that_is_lost_costs_no_step),
        cmocka_unit_test(nor_does_one_that_is_lost_while_it_copies),
        cmocka_unit_test(what_is_lost_with_its_launcher_costs_the_steps_since_the_checkpoint),
        cmocka_unit_test(ranks_can_be_killed_at_any_moment),
        cmocka_unit_test(a_launcher_that_comes_and_goes_costs_no_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
