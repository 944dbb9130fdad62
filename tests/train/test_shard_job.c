/* test_shard_job.c - jobs with ddp.shard_optimizer: the same files as without, at any number of
 * ranks, and checkpoints that go on with other ranks, sharded or not. */
#include "support/job.h"

/* Layers enough for several spans of each rank. */
#define ADAMW                                                                                      \
    "model.hidden=[48, 40]", "optimizer.type=\"adamw\"", "optimizer.lr=0.002",                     \
        "optimizer.weight_decay=0.01"

static void shards_change_no_bit_of_a_run(void **state)
{
    static const char *const ranks[] = {"1", "2", "3"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        char *whole = argument("whole-%s", ranks[i]);
        char *shards = argument("shards-%s", ranks[i]);
        struct launched job = {0};

        JOB_RUN_WELL(&job, "--nproc", ranks[i], in_work("small.conf"), run_dir_argument(whole),
                     "ddp.shard_optimizer=false", "train.clip_norm=0.5", ADAMW);
        launcher_end(&job);
        JOB_RUN_WELL(&job, "--nproc", ranks[i], in_work("small.conf"), run_dir_argument(shards),
                     "ddp.shard_optimizer=true", "train.clip_norm=0.5", ADAMW,
                     "ddp.first_bucket_bytes=512", "ddp.bucket_bytes=1024");
        launcher_end(&job);
        for (uint64_t step = 1; step <= 30; step++) {
            assert_true(metric(shards, step, "loss") == metric(whole, step, "loss"));
            assert_true(metric(shards, step, "grad_norm") == metric(whole, step, "grad_norm"));
        }
        assert_same_checkpoint(whole, shards, 30);
    }
}

/* Half of the steps one way, the rest another way. */
static void go_on(const char *run_dir, const char *ranks, const char *sharded, const char *steps)
{
    struct launched job = {0};

    JOB_RUN_WELL(&job, "--nproc", ranks, in_work("small.conf"), run_dir_argument(run_dir), sharded,
                 argument("train.max_steps=%s", steps), "train.resume=auto", ADAMW);
    launcher_end(&job);
}

static void a_checkpoint_goes_on_sharded_or_not(void **state)
{
    (void)state;
    go_on("plain", "2", "ddp.shard_optimizer=false", "15");
    go_on("plain", "2", "ddp.shard_optimizer=false", "30");
    go_on("into", "2", "ddp.shard_optimizer=false", "15");
    go_on("into", "2", "ddp.shard_optimizer=true", "30");
    assert_same_checkpoint("plain", "into", 30);
    go_on("from", "2", "ddp.shard_optimizer=true", "15");
    go_on("from", "2", "ddp.shard_optimizer=false", "30");
    assert_same_checkpoint("plain", "from", 30);
}

static void a_sharded_checkpoint_goes_on_at_another_number_of_ranks(void **state)
{
    (void)state;
    go_on("fewer", "3", "ddp.shard_optimizer=true", "15");
    go_on("fewer-too", "3", "ddp.shard_optimizer=false", "15");
    assert_same_checkpoint("fewer", "fewer-too", 15);
    go_on("fewer", "2", "ddp.shard_optimizer=true", "30");
    go_on("fewer-too", "2", "ddp.shard_optimizer=false", "30");
    assert_same_checkpoint("fewer", "fewer-too", 30);
}

static void checkpoints_on_the_way_hold_the_state_of_all_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        JOB_RUN_WELL(&job, "--nproc", "3", in_work("small.conf"),
                     run_dir_argument(sharded ? "way-shards" : "way"),
                     argument("ddp.shard_optimizer=%s", sharded ? "true" : "false"),
                     "train.checkpoint_steps=10", "train.keep=0", ADAMW);
        launcher_end(&job);
    }
    assert_same_checkpoint("way", "way-shards", 10);
    assert_same_checkpoint("way", "way-shards", 20);
    assert_same_checkpoint("way", "way-shards", 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_change_no_bit_of_a_run),
        cmocka_unit_test(a_checkpoint_goes_on_sharded_or_not),
        cmocka_unit_test(a_sharded_checkpoint_goes_on_at_another_number_of_ranks),
        cmocka_unit_test(checkpoints_on_the_way_hold_the_state_of_all_ranks),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
