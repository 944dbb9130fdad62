/* test_recovery_cuda.c - jobs on CUDA devices whose ranks are killed: they go on from what they
 * have kept in host memory. */
#include "support/recovery.h"
#include "support/train_cuda.h"

enum { STEPS = 60, KILLS = 2 };

static const char *const ways[][3] = {
    {"sharded", "ddp.shard_optimizer=true", "train.precision=f32"},
    {"whole", "ddp.shard_optimizer=false", "train.precision=f32"},
    {"scaled", "ddp.shard_optimizer=true", "train.precision=fp16"},
    {"replayed", "ddp.shard_optimizer=true", "train.cuda_graph=always"},
};

/* Start the job of a way, which ends by itself. */
static void start_way(struct launched *job, size_t way, const char *run_dir)
{
    JOB_START(job, "--nproc", "2", "--max-restarts", "100", in_work("small.conf"), CUDA,
              argument("train.max_steps=%d", STEPS), "train.epochs=1000", "train.eval_epochs=1000",
              "train.log_steps=1", "optimizer.type=adamw", "train.recovery=memory",
              "ddp.deterministic=true", ways[way][1], ways[way][2], run_dir_argument(run_dir));
}

static void end_well(struct launched *job)
{
    launcher_wait(job);
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    launcher_end(job);
}

static void killed_ranks_cost_no_step(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        const char *name = ways[way][0];
        const char *whole = argument("whole-%s", name);
        struct launched job = {0};

        start_way(&job, way, name);
        for (int i = 1; i <= KILLS; i++) {
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
        assert_same_checkpoint(name, whole, STEPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_cost_no_step),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
