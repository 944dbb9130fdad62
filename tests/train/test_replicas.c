/* test_replicas.c - jobs in which a bit of one rank's memory flips: train.check_replicas names the
 * rank, and no checkpoint holds the damage. */
#include "support/flipping.h"
#include "support/same_bits.h"

#include <cddp/checkpoint.h>

enum { FAILED = 1 };

#define SHORT_RUN "train.max_steps=20", "train.keep=0", "train.eval_epochs=1000"
#define SHARDED in_work("small.conf"), SHORT_RUN
#define PLAIN SHARDED, "ddp.shard_optimizer=false"

static int make_failing_work(void **state)
{
    return make_same_bits_work(state) != 0 ? 1 : make_flipping();
}

static bool has_checkpoint(const char *run_dir, int step)
{
    return access(in_work("%s/checkpoints/step-%08d", run_dir, step), F_OK) == 0;
}

static void assert_fails(const struct launched *job)
{
    if (job->exit_status != FAILED) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
}

static void assert_succeeds(const struct launched *job)
{
    if (job->exit_status != 0) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
}

static void a_rank_with_a_flipped_bit_is_named_whichever_it_is(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        struct launched job = {0};
        const char *run_dir = argument("named-%d", rank);

        FLIP(&job, argument("7 fc1.weight 5 22 %d", rank), run_dir, "--nproc", "3", PLAIN,
             "train.check_replicas=5");
        assert_differing_rank(&job, rank);
        assert_err(&job, "after step 10 ");
        assert_err(&job, "element 5 of 1024 of fc1.weight is ");
        assert_false(has_checkpoint(run_dir, 20));
        launcher_end(&job);
    }
}

/* Tensors are hashed in pieces of 256 KiB. */
static void an_element_of_a_later_piece_is_named(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "3 fc1.weight 70000 7 1", "large", "--nproc", "3", PLAIN, "model.hidden=[1200]",
         "train.check_replicas=3");
    assert_differing_rank(&job, 1);
    assert_err(&job, "element 70000 of 76800 of fc1.weight is ");
    launcher_end(&job);
}

static void without_the_key_the_end_of_the_run_names_it(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "7 fc1.weight 5 22 1", "end", "--nproc", "3", PLAIN);
    assert_differing_rank(&job, 1);
    assert_err(&job, "after step 20 ");
    assert_false(has_checkpoint("end", 20));
    launcher_end(&job);
}

/* Step 7 is damaged before its checkpoint is written. */
static void no_checkpoint_holds_the_damage(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "7 fc1.weight 0 30 0", "before", "--nproc", "3", PLAIN, "train.check_replicas=1000",
         "train.checkpoint_steps=1");
    assert_differing_rank(&job, 0);
    assert_err(&job, "after step 7 ");
    assert_err(&job, " (1 bit differs)");
    assert_true(has_checkpoint("before", 6));
    assert_false(has_checkpoint("before", 7));
    launcher_end(&job);
}

static void moments_are_compared_too(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "7 momentum.fc2.bias 2 3 2", "moments", "--nproc", "3", PLAIN,
         "train.check_replicas=7");
    assert_differing_rank(&job, 2);
    assert_err(&job, "after step 7 ");
    assert_err(&job, "element 2 of 4 of momentum.fc2.bias is ");
    assert_err(&job, " (1 bit differs)");
    launcher_end(&job);
}

/* The rank that updates an element sends it to the others, so what is damaged before is theirs. */
static void a_sharded_optimizer_shows_the_last_step_and_says_so(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        FLIP(&job, argument("7 fc1.weight 5 22 %d", rank), argument("sharded-%d", rank), "--nproc",
             "3", SHARDED, "train.check_replicas=1");
        assert_differing_rank(&job, rank);
        assert_err(&job, "after step 7 ");
        assert_err(&job, "only damage in the last step before a comparison is found");
        launcher_end(&job);
    }
}

static void two_of_five_ranks_are_both_named(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "3 fc1.weight 1000 1 1,3", "two", "--nproc", "5", PLAIN, "train.check_replicas=1");
    assert_fails(&job);
    assert_err(&job, "after step 3 the state of ranks 1 (host ");
    assert_err(&job, ") and 3 (host ");
    assert_err(&job, "element 1000 of 1024 of fc1.weight is ");
    launcher_end(&job);
}

static void without_a_majority_all_are_named(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "3 fc1.weight 9 1 1", "half", "--nproc", "2", PLAIN, "train.check_replicas=1");
    assert_fails(&job);
    assert_err(&job, "after step 3 the states of ranks 0 (host ");
    assert_err(&job, ") and 1 (host ");
    assert_err(&job, "no majority shows which is right");
    assert_err(&job, " on rank 1 and ");
    launcher_end(&job);
}

/* Ranks 1, 3 and 5 have the second stage. */
static void in_a_pipeline_replicas_of_a_stage_are_compared(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "3 fc2.weight 1 5 3", "stages", "--nproc", "6", PLAIN, "parallel.pipeline=2",
         "train.check_replicas=1");
    assert_differing_rank(&job, 3);
    assert_err(&job, "after step 3 ");
    assert_err(&job, " of fc2.weight is ");
    launcher_end(&job);
}

static void a_restart_goes_on_from_before_the_damage(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, NULL, "undisturbed", "--nproc", "3", PLAIN);
    assert_succeeds(&job);
    launcher_end(&job);
    FLIP(&job, "7 fc1.weight 5 22 0", "restart", "--nproc", "3", "--max-restarts", "1", PLAIN,
         "train.check_replicas=4", "train.checkpoint_steps=3");
    assert_succeeds(&job);
    assert_err(&job, "after step 8 the state of rank 0 (host ");
    assert_same_checkpoint("undisturbed", "restart", 20);
    launcher_end(&job);
}

static void an_elastic_job_replaces_the_rank(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, NULL, "whole", "--nproc", "3", PLAIN, "train.micro_batch=8");
    assert_succeeds(&job);
    launcher_end(&job);
    FLIP(&job, "7 fc1.weight 5 22 1", "elastic", "--elastic", "1:3", "--nproc", "3", PLAIN,
         "train.micro_batch=8", "train.check_replicas=2", "train.checkpoint_steps=3");
    assert_succeeds(&job);
    assert_err(&job, "after step 8 the state of rank 1 (host ");
    assert_failed_rank(&job, 1);
    assert_same_checkpoint("whole", "elastic", 20);
    launcher_end(&job);
}

/* The ends of the runs are compared too, so this is about all steps. */
static void comparing_changes_nothing_and_finds_nothing_in_sound_runs(void **state)
{
    static const char *const ways[][3] = {
        {"ddp.shard_optimizer=true", "", ""},
        {"ddp.shard_optimizer=true", "optimizer.type=adamw", "optimizer.lr=0.01"},
        {"ddp.shard_optimizer=false", "optimizer.type=adamw", "optimizer.lr=0.01"},
        {"ddp.shard_optimizer=false", "train.accumulate=2", "ddp.wire=bf16"},
        {"ddp.shard_optimizer=false", "parallel.pipeline=2", "train.accumulate=2"},
    };

    (void)state;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        for (int on = 0; on < 2; on++) {
            struct run_options options = {
                .ranks = 4,
                .arguments = {run_dir_argument(argument("way-%zu-%d", way, on)),
                              "train.max_steps=12", "train.checkpoint_steps=5",
                              argument("train.check_replicas=%d", on), ways[way][0]}};

            for (int i = 1; i < 3 && ways[way][i][0] != '\0'; i++) {
                options.arguments[4 + i] = ways[way][i];
            }
            run_well(&options);
        }
        assert_same_checkpoint(argument("way-%zu-0", way), argument("way-%zu-1", way), 12);
    }
}

/* With train.micro_batch, running statistics are compared, too. */
static void models_of_all_kinds_are_undisturbed(void **state)
{
    (void)state;
    for (int m = 0; m < same_bits_model_count; m++) {
        for (int on = 0; on < 2; on++) {
            const char *run_dir = argument("%s-%d", same_bits_models[m].name, on);
            struct run_options options = {
                .ranks = 3,
                .conf = argument("%s.conf", same_bits_models[m].name),
                .arguments = {run_dir_argument(run_dir), argument("train.check_replicas=%d", on)}};

            run_well(&options);
        }
        assert_same_files(argument("%s-0", same_bits_models[m].name),
                          argument("%s-1", same_bits_models[m].name));
    }
}

static void running_statistics_are_compared_where_they_are_equal(void **state)
{
    struct launched job = {0};

    (void)state;
    FLIP(&job, "2 bn1.running_mean 1 2 1", "statistics", "--nproc", "3", in_work("resnet20.conf"),
         "ddp.shard_optimizer=false", "train.check_replicas=1");
    assert_differing_rank(&job, 1);
    assert_err(&job, "after step 2 ");
    assert_err(&job, " of bn1.running_mean is ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_a_flipped_bit_is_named_whichever_it_is),
        cmocka_unit_test(an_element_of_a_later_piece_is_named),
        cmocka_unit_test(without_the_key_the_end_of_the_run_names_it),
        cmocka_unit_test(no_checkpoint_holds_the_damage),
        cmocka_unit_test(moments_are_compared_too),
        cmocka_unit_test(a_sharded_optimizer_shows_the_last_step_and_says_so),
        cmocka_unit_test(two_of_five_ranks_are_both_named),
        cmocka_unit_test(without_a_majority_all_are_named),
        cmocka_unit_test(in_a_pipeline_replicas_of_a_stage_are_compared),
        cmocka_unit_test(a_restart_goes_on_from_before_the_damage),
        cmocka_unit_test(an_elastic_job_replaces_the_rank),
        cmocka_unit_test(models_of_all_kinds_are_undisturbed),
        cmocka_unit_test(running_statistics_are_compared_where_they_are_equal),
        cmocka_unit_test(comparing_changes_nothing_and_finds_nothing_in_sound_runs),
    };

    return cmocka_run_group_tests(tests, make_failing_work, remove_work);
}
