/* test_init_method.c - ranks of the real program that no launcher started, and that meet at
 * PyTorch's init_method; and what is refused. */
#include "support/train.h"

#include <cddp/checkpoint.h>

/* Start both ranks by hand with what @p first and @p second put before and behind the command; 0:
 * both have succeeded. */
static int start_two(const char *name, const char *method, const char *const environment[2],
                     const char *const words[2])
{
    const char *program = argument("%s/src/cddp-train", getenv("CDDP_TEST_BUILD"));
    const char *start[2];

    for (int rank = 0; rank < 2; rank++) {
        start[rank] = argument("CDDP_TIMEOUT_MS=%d CDDP_THREADS=1 %s %s small.conf train.epochs=1 "
                               "train.run_dir=%s/%s train.init_method=%s %s > %s-%d 2>&1",
                               SUPPORT_TIMEOUT_MS, environment[rank], program, work, name, method,
                               words[rank], name, rank);
    }
    return system(argument("cd %s && { %s & other=$!; %s; first=$?; wait $other && exit $first; }",
                           work, start[0], start[1]));
}

static void ranks_meet_where_the_init_method_says(void **state)
{
    static const char *const none[] = {"", ""};
    static const char *const ranks[] = {"train.rank=0 train.world_size=2",
                                        "train.rank=1 train.world_size=2"};
    struct run_options launched = {.ranks = 2,
                                   .arguments = {run_dir_argument("launched"), "train.epochs=1"}};
    const char *set[2];
    int port = support_free_port();

    (void)state;
    run_well(&launched);
    assert_int_equal(start_two("tcp", argument("tcp://127.0.0.1:%d", port), none, ranks), 0);
    assert_same_checkpoint("launched", "tcp", 10);
    assert_int_equal(start_two("file", argument("file://%s/meeting", work), none, ranks), 0);
    assert_same_checkpoint("launched", "file", 10);
    port = support_free_port();
    for (int rank = 0; rank < 2; rank++) {
        set[rank] = argument("RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", rank,
                             port);
    }
    assert_int_equal(start_two("env", "env://", set, none), 0);
    assert_same_checkpoint("launched", "env", 10);
}

static void expect_refused(const char *environment, const char *words, const char *said)
{
    char *text;

    assert_int_not_equal(
        system(argument("cd %s && CDDP_TIMEOUT_MS=%d %s %s/src/cddp-train small.conf "
                        "train.run_dir=%s/refused %s > said 2>&1",
                        work, SUPPORT_TIMEOUT_MS, environment, getenv("CDDP_TEST_BUILD"), work,
                        words)),
        0);
    text = get_file(in_work("said"), NULL);
    assert_non_null(text);
    if (strstr(text, said) == NULL) {
        fail_msg("'%s' lacks '%s'", text, said);
    }
    free(text);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    expect_refused("", "train.world_size=2",
                   "train.world_size: needs train.init_method, which says where the 2 ranks meet");
    expect_refused("", "train.world_size=2 train.rank=2 train.init_method=file:///tmp/x",
                   "train.rank: 2 is not below train.world_size, 2");
    expect_refused("", "train.rank=1 train.init_method=file:///tmp/x",
                   "train.rank: 1 is not below train.world_size, 0");
    expect_refused(
        "CDDP_RANK=1 CDDP_WORLD_SIZE=2",
        "train.world_size=2 train.rank=1 train.init_method=file:///tmp/x",
        "train.world_size: cddp-run has given this process its rank, 1: start cddp-train "
        "itself");
    expect_refused("", "train.init_method=env://", "the rendezvous is env://");
    expect_refused("", "train.world_size=2 train.init_method=http://nowhere", "http://nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_where_the_init_method_says),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
