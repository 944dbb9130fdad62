/* test_stages_tied.c - GPT-2 in stages, whose first and last layer share a table: runs of the real
 * program, the same for all schedules, and equal to the whole model within the rounding of one sum;
 * and which gradients are announced last. */
#include "base/shape.h"
#include "support/nn_model.h"
#include "support/sequence.h"
#include "support/train.h"
#include "train/engines/stages/stages_state.h"

#include <cddp/checkpoint.h>

enum { STEPS = 23 };

static void run_text(const char *name, int ranks, const char *a, const char *b, const char *c,
                     const char *d)
{
    struct run_options options = {.ranks = ranks,
                                  .conf = "text.conf",
                                  .arguments = {run_dir_argument(name), "model.dropout=0.1",
                                                "train.clip_norm=0.5", a, b, c, d}};

    run_well(&options);
}

/* The largest difference of any two parameters of two runs' last checkpoints. */
static double difference(const char *a, const char *b)
{
    cddp_safetensors *files[2] = {open_weights(a, STEPS), open_weights(b, STEPS)};
    double most = 0;

    assert_int_equal(cddp_safetensors_count(files[0]), cddp_safetensors_count(files[1]));
    for (size_t i = 0; i < cddp_safetensors_count(files[0]); i++) {
        const cddp_tensor *x = cddp_safetensors_at(files[0], i);
        const cddp_tensor *y = cddp_safetensors_find(files[1], x->name);

        assert_non_null(y);
        for (size_t k = 0; k < cddpi_elements(x->dims, x->shape); k++) {
            most = fmax(most, fabs((double)((float *)x->data)[k] - ((float *)y->data)[k]));
        }
    }
    cddp_safetensors_close(files[0]);
    cddp_safetensors_close(files[1]);
    return most;
}

/* A table that was counted twice, or whose parts were not added, would show in the first norm. */
static void expect_near(const char *whole, const char *stages)
{
    for (uint64_t step = 1; step <= STEPS; step++) {
        double loss = metric(whole, step, "loss");
        double norm = metric(whole, step, "grad_norm");

        assert_true(fabs(metric(stages, step, "loss") - loss) <= (step == 1 ? 1e-12 : 1e-4) * loss);
        assert_true(fabs(metric(stages, step, "grad_norm") - norm) <=
                    (step == 1 ? 1e-6 : 1e-3) * norm);
    }
    assert_true(difference(whole, stages) < 1e-3);
}

static void tied_stages_train_as_the_whole_model_does(void **state)
{
    (void)state;
    run_text("whole", 1, "train.accumulate=4", NULL, NULL, NULL);
    assert_true(metric("whole", 1, "grad_norm") > 0.5); /* it is clipped */
    run_text("1f1b", 2, "parallel.pipeline=2", "parallel.micro_batches=4", NULL, NULL);
    expect_near("whole", "1f1b");
}

static void every_schedule_writes_the_same_bytes(void **state)
{
    (void)state;
    run_text("gpipe", 2, "parallel.pipeline=2", "parallel.micro_batches=4",
             "parallel.schedule=gpipe", NULL);
    assert_same_checkpoint("1f1b", "gpipe", STEPS);
    run_text("interleaved", 2, "parallel.pipeline=2", "parallel.micro_batches=4",
             "parallel.schedule=interleaved", "parallel.chunks=2");
    assert_same_checkpoint("1f1b", "interleaved", STEPS);
    run_text("bubble", 2, "parallel.pipeline=2", "parallel.micro_batches=4",
             "parallel.schedule=zero_bubble", "parallel.recompute=[0]");
    assert_same_checkpoint("1f1b", "bubble", STEPS);
}

static void a_stage_that_is_recomputed_writes_the_same_bytes(void **state)
{
    (void)state;
    run_text("again", 2, "parallel.pipeline=2", "parallel.micro_batches=4",
             "parallel.recompute=[0]", NULL);
    assert_same_checkpoint("1f1b", "again", STEPS);
}

/* A checkpoint has one table, which both stages get when a run goes on: had they two different ones
 * meanwhile, the bytes would not be those of the run that went on without a pause. */
static void both_stages_have_the_same_table(void **state)
{
    (void)state;
    run_text("parts", 2, "parallel.pipeline=2", "parallel.micro_batches=4", "train.max_steps=9",
             NULL);
    run_text("parts", 2, "parallel.pipeline=2", "parallel.micro_batches=4", "train.resume=auto",
             NULL);
    assert_same_checkpoint("1f1b", "parts", STEPS);
}

static void replicas_of_tied_stages_train_as_replicas_do(void **state)
{
    (void)state;
    run_text("replicas", 2, "train.accumulate=2", NULL, NULL, NULL);
    run_text("mesh", 4, "parallel.pipeline=2", "parallel.micro_batches=2", NULL, NULL);
    expect_near("replicas", "mesh");
    run_text("whole-state", 4, "parallel.pipeline=2", "parallel.micro_batches=2",
             "ddp.shard_optimizer=false", NULL);
    assert_same_checkpoint("mesh", "whole-state", STEPS);
}

/* Buckets start in order: a tied gradient, which is complete behind the pipeline only, must not
 * hold up the others. */
static void tied_gradients_are_the_last_that_are_ready(void **state)
{
    struct cddpi_model_spec last = tiny;
    struct cddpi_trainer *trainer = calloc(1, sizeof *trainer);
    struct cddpi_stages stages = {.count = 2};
    bool tied[64] = {false};
    struct fixture f, whole;
    size_t order[64];
    size_t table = 0;
    size_t next = 0;

    (void)state;
    model_setup(&whole, &tiny, 1);
    last.part = (struct cddpi_layer_range){(int)whole.model->list.count / 2,
                                           (int)whole.model->list.count};
    model_setup(&f, &last, 1);
    *trainer = (struct cddpi_trainer){.models.count = 1, .engine_state = &stages};
    trainer->models.list[0] = (struct cddpi_trainer_model){f.model, 0, trainer};
    trainer->params.list = cddpi_model_params(f.model, &trainer->params.count);
    assert_true(trainer->params.count <= 64);
    while (strcmp(trainer->params.list[table].name, "wte.weight") != 0) {
        table++;
    }
    stages.is_tied = tied;
    tied[table] = true;
    assert_int_equal(cddpi_model_ready_order(f.model)[0], table); /* the loss is behind it */
    cddpi_stages_ready_order(trainer, order);
    assert_int_equal(order[trainer->params.count - 1], table);
    for (size_t i = 0; i < trainer->params.count; i++) {
        size_t param = cddpi_model_ready_order(f.model)[i];

        if (param != table) {
            assert_int_equal(order[next++], param);
        }
    }
    free(trainer);
    fixture_fini(&f);
    fixture_fini(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_stages_train_as_the_whole_model_does),
        cmocka_unit_test(every_schedule_writes_the_same_bytes),
        cmocka_unit_test(a_stage_that_is_recomputed_writes_the_same_bytes),
        cmocka_unit_test(both_stages_have_the_same_table),
        cmocka_unit_test(replicas_of_tied_stages_train_as_replicas_do),
        cmocka_unit_test(tied_gradients_are_the_last_that_are_ready),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
