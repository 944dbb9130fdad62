/* test_recovery_cuda.c - jobs on CUDA devices whose ranks are killed: they go on from what they
 * have kept in host memory. */
#include "support/recovery.h"
#include "support/train_cuda.h"

/* With small.conf, the first ones; the others with running statistics, or two networks. */
static const char *const ways[][4] = {
    {"sharded", "small", "ddp.shard_optimizer=true", "train.precision=f32"},
    {"whole", "small", "ddp.shard_optimizer=false", "train.precision=f32"},
    {"scaled", "small", "ddp.shard_optimizer=true", "train.precision=fp16"},
    {"replayed", "small", "ddp.shard_optimizer=true", "train.cuda_graph=always"},
    {"stages", "small", "parallel.pipeline=2", "train.precision=fp16"},
    {"norms", "norms", "ddp.shard_optimizer=true", "train.precision=f32"},
    {"norms-whole", "norms", "ddp.shard_optimizer=false", "train.micro_batch=0"},
    {"two-networks", "dcgan", "ddp.shard_optimizer=true", "train.precision=f32"},
};

enum { SMALL = 5, WAYS = sizeof ways / sizeof *ways };

static int steps_of(size_t way)
{
    return way < SMALL ? 60 : 20; /* the emulation is slow */
}

/* Start the job of a way, which ends by itself. */
static void start_way(struct launched *job, size_t way, const char *run_dir)
{
    JOB_START(job, "--nproc", "2", "--max-restarts", "100", in_work("%s.conf", ways[way][1]), CUDA,
              argument("train.max_steps=%d", steps_of(way)), "train.epochs=1000",
              "train.eval_epochs=1000", "train.log_steps=1", "optimizer.type=adamw",
              "train.recovery=memory", "ddp.deterministic=true", ways[way][2], ways[way][3],
              run_dir_argument(run_dir));
}

static void end_well(struct launched *job)
{
    launcher_wait(job);
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    launcher_end(job);
}

static void kill_ranks(size_t first, size_t end)
{
    for (size_t way = first; way < end; way++) {
        const char *name = ways[way][0];
        const char *whole = argument("whole-%s", name);
        int kills = way < SMALL ? 2 : 1;
        struct launched job = {0};

        start_way(&job, way, name);
        for (int i = 1; i <= kills; i++) {
            unsigned long long last;

            recovery_await_steps(&job, name);
            last = recovery_last_metric(name);
            assert_true(recovery_kill(name, i % 2));
            if (recovery_step(&job, i) + 1 < last) {
                fail_msg("%s: step %llu was lost", name, last);
            }
        }
        end_well(&job);
        start_way(&job, way, whole);
        end_well(&job);
        assert_same_checkpoint(name, whole, steps_of(way));
    }
}

static void killed_ranks_cost_no_step(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    kill_ranks(0, SMALL);
}

static void nor_with_statistics_or_two_networks(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    kill_ranks(SMALL, WAYS);
}

static int make_same_bits_devices(void **state)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", !gpu_is_real());
    return make_same_bits_work(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_ranks_cost_no_step, make_devices, remove_work),
        cmocka_unit_test_setup_teardown(nor_with_statistics_or_two_networks, make_same_bits_devices,
                                        remove_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
