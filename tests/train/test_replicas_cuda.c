/* test_replicas_cuda.c - jobs on CUDA devices in which a bit of one rank's device memory flips. */
#include "support/flipping.h"
#include "support/train_cuda.h"

#define SHORT(...) in_work("small.conf"), CUDA, "train.max_steps=12", __VA_ARGS__

static int make_failing_devices(void **state)
{
    return make_devices(state) != 0 ? 1 : make_flipping();
}

static void a_rank_with_a_flipped_bit_on_its_device_is_named(void **state)
{
    static const char *const shards[] = {"ddp.shard_optimizer=false", "ddp.shard_optimizer=true"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};

        FLIP(&job, "6 fc1.weight 5 22 1", argument("flipped-%d", i), "--nproc", "3",
             SHORT(shards[i], "train.check_replicas=3"));
        assert_differing_rank(&job, 1);
        assert_err(&job, "after step 6 ");
        assert_err(&job, "element 5 of 1024 of fc1.weight is ");
        launcher_end(&job);
    }
}

/* Also replayed steps. */
static void comparing_changes_nothing(void **state)
{
    static const char *const ways[][2] = {{"ddp.shard_optimizer=false", "train.precision=fp16"},
                                          {"ddp.shard_optimizer=true", "train.precision=bf16"},
                                          {"ddp.shard_optimizer=false", "train.cuda_graph=always"}};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        for (int on = 0; on < 2; on++) {
            const char *run_dir = argument("way-%zu-%d", way, on);
            struct launched job = {0};

            FLIP(&job, NULL, run_dir, "--nproc", "3",
                 SHORT(ways[way][0], ways[way][1], "optimizer.type=adamw",
                       argument("train.check_replicas=%d", on)));
            if (job.exit_status != 0) {
                fail_msg("exit status %d: %s", job.exit_status, job.err);
            }
            launcher_end(&job);
        }
        assert_same_checkpoint(argument("way-%zu-0", way), argument("way-%zu-1", way), 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_a_flipped_bit_on_its_device_is_named),
        cmocka_unit_test(comparing_changes_nothing),
    };

    return cmocka_run_group_tests(tests, make_failing_devices, remove_work);
}
