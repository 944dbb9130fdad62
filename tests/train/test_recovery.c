/* test_recovery.c - jobs whose ranks are killed at any moment: they go on from their last step, and
 * end as a job that nobody disturbed, byte for byte. */
#include "support/recovery.h"

#define STAGES "parallel.pipeline=2"
#define BY_RANK "train.micro_batch=0" /* bits depend on the ranks */
#define TWO_DEVICES "train.devices=[\"cpu:0\",\"cpu\"]"

enum { KINDS = 5, KILLS = 3, MOMENT_MS = 60 };

/* Kinds of runs; conf: of same_bits_models. The run that nobody disturbs is one rank,
 * without STAGES; but the same ranks with BY_RANK. */
static const struct {
    const char *name, *conf;
    int ranks;
    const char *extra[4];
} ways[] = {
    {"alone", "mlp", 1, {"optimizer.momentum=0"}},
    {"alone-norms", "norms", 1, {NULL}},
    {"two", "mlp", 2, {"ddp.shard_optimizer=true"}},
    {"two-plain",
     "mlp",
     2,
     {"ddp.shard_optimizer=false", "optimizer.momentum=0", "train.log_steps=7"}},
    {"three",
     "mlp",
     3,
     {"ddp.shard_optimizer=true", "optimizer.type=adamw", "optimizer.lr=0.003",
      "train.clip_norm=0.5"}},
    {"three-plain",
     "mlp",
     3,
     {"ddp.shard_optimizer=false", "optimizer.type=adamw", "optimizer.lr=0.003",
      "train.clip_norm=0.5"}},
    {"five", "norms", 5, {"ddp.shard_optimizer=true"}},
    {"five-plain", "norms", 5, {"ddp.shard_optimizer=false"}},
    {"two-networks", "dcgan", 2, {"ddp.shard_optimizer=true", "train.log_steps=5"}},
    {"two-networks-plain", "dcgan", 3, {"ddp.shard_optimizer=false"}},
    {"stages", "mlp", 2, {STAGES, "train.log_steps=7"}},
    {"stages-tied", "gpt2", 4, {STAGES, "ddp.shard_optimizer=true"}},
    {"stages-tied-by-rank", "gpt2", 4, {STAGES, BY_RANK, "ddp.shard_optimizer=true"}},
    {"stages-tied-by-rank-plain", "gpt2", 4, {STAGES, BY_RANK, "ddp.shard_optimizer=false"}},
    {"by-rank", "gpt2", 3, {BY_RANK}},
    {"stages-norms", "norms", 4, {STAGES, "ddp.shard_optimizer=false"}},
    {"placed", "mlp", 2, {"parallel.type=model_parallel", TWO_DEVICES}},
    {"copied", "mlp", 2, {"parallel.type=data_parallel", TWO_DEVICES}},
};

/* By hand, $TEST_DRAWS draws other moments and ranks. */
static unsigned draw(unsigned below)
{
    static uint32_t random;

    if (random == 0) {
        const char *draws = getenv("TEST_DRAWS");

        random = draws != NULL ? (uint32_t)atoi(draws) : 1;
    }
    random = random * 1664525U + 1013904223U;
    return (random >> 16) % below;
}

static int ranks; /* of the job */

static void kill_any(const char *run_dir)
{
    assert_true(recovery_kill(run_dir, (int)draw((unsigned)ranks)));
}

static void kill_first(const char *run_dir)
{
    assert_true(recovery_kill(run_dir, 0));
}

static void kill_all(const char *run_dir)
{
    pid_t pids[MOST_RANKS];

    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = find_rank(run_dir, rank);
        assert_true(pids[rank] > 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(kill(pids[rank], SIGKILL), 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        assert_true(launcher_is_gone(pids[rank]));
    }
}

/* All but one may be gone before the launcher hears of the first. */
static void kill_most(const char *run_dir)
{
    for (int rank = 1; rank < ranks; rank++) {
        (void)recovery_kill(run_dir, rank);
    }
    (void)(ranks == 1 && recovery_kill(run_dir, 0));
}

/* Kill a rank, and soon after one more: of the next generation while it starts, or already ends. */
static void kill_twice(const char *run_dir)
{
    kill_any(run_dir);
    support_sleep_ms((long)draw(4 * MOMENT_MS));
    (void)recovery_kill(run_dir, (int)draw((unsigned)ranks));
}

static bool has(size_t way, const char *argument)
{
    for (int i = 0; i < 4 && ways[way].extra[i] != NULL; i++) {
        if (strcmp(ways[way].extra[i], argument) == 0) {
            return true;
        }
    }
    return false;
}

static void kill_again_and_again(size_t way)
{
    static void (*const kinds[KINDS])(const char *run_dir) = {kill_any, kill_first, kill_all,
                                                              kill_most, kill_twice};
    const char *words[24] = {"--nproc", argument("%d", ways[way].ranks), "--max-restarts", "1000",
                             RECOVERY_RUN(ways[way].conf)};
    const char *name = ways[way].name;
    struct launched job = {0};
    int first = 4;
    int count = first;
    int whole;
    bool has_stages = has(way, STAGES);
    bool is_cut = !has(way, BY_RANK);

    ranks = ways[way].ranks;
    while (words[count] != NULL) {
        count++;
    }
    for (int i = 0; i < 4 && ways[way].extra[i] != NULL; i++) {
        if (strcmp(ways[way].extra[i], STAGES) != 0) {
            words[count++] = ways[way].extra[i];
        }
    }
    words[count++] = "train.recovery=memory";
    whole = count;
    if (has_stages) {
        words[count++] = STAGES;
    }
    words[count] = run_dir_argument(name);
    launcher_start(&job, words);
    words[is_cut ? whole : count] = NULL;
    for (int i = 0; i < KILLS; i++) {
        recovery_await_steps(&job, name);
        support_sleep_ms((long)draw(MOMENT_MS));
        (void)recovery_lose(&job, name, kinds[(way + (size_t)i) % KINDS]);
    }
    recovery_await_steps(&job, name);
    recovery_compare_by(&job, name, is_cut ? 1 : ranks, words + first);
    assert_no_err(&job, "going back");
    assert_no_err(&job, "train.recovery");
    assert_no_err(&job, "checkpoints/step-");
    launcher_end(&job);
}

static void ranks_can_be_killed_at_any_moment(void **state)
{
    (void)state;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        kill_again_and_again(way);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_can_be_killed_at_any_moment),
    };

    return cmocka_run_group_tests(tests, make_same_bits_work, remove_work);
}
