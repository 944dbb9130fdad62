/* test_stages_checkpoint.c - checkpoints of models in stages, whose tensors rank 0 receives one
 * after the other: the bytes of a run without stages, also with running statistics, chunks and
 * foreign weights; and writes that fail on the way. */
#include "base/shape.h"
#include "support/train.h"

#include <cddp/checkpoint.h>

enum { STEPS = 3 };

#define RESNET "model.type=resnet20", "train.batch_size=16", "train.max_steps=3"
#define TWO_STAGES "parallel.pipeline=2", "parallel.micro_batches=2"

static void run_resnet(const char *name, int ranks, const char *const *extra)
{
    struct run_options options = {.ranks = ranks, .arguments = {run_dir_argument(name), RESNET}};
    size_t next = 4;

    for (; *extra != NULL; extra++) {
        options.arguments[next++] = *extra;
    }
    run_well(&options);
}

static void running_statistics_and_chunks_have_the_order_of_the_whole_model(void **state)
{
    (void)state;
    run_resnet("whole", 1, (const char *[]){"train.accumulate=2", NULL});
    run_resnet("two", 2, (const char *[]){TWO_STAGES, "parallel.stages=[\"layer2\"]", NULL});
    assert_same_checkpoint("whole", "two", STEPS);
    run_resnet("chunks", 2,
               (const char *[]){TWO_STAGES, "parallel.schedule=interleaved", "parallel.chunks=2",
                                "parallel.stages=[\"layer1\",\"layer2\",\"layer3\"]", NULL});
    assert_same_checkpoint("whole", "chunks", STEPS);
}

static void chunks_go_on_from_a_checkpoint_of_stages(void **state)
{
    (void)state;
    run_resnet("parts", 2, (const char *[]){TWO_STAGES, "train.max_steps=2", NULL});
    run_resnet("parts", 2,
               (const char *[]){TWO_STAGES, "parallel.schedule=interleaved", "parallel.chunks=2",
                                "train.resume=auto", NULL});
    assert_same_checkpoint("whole", "parts", STEPS);
}

/* A learning rate of 0 leaves weights as they were. */
static void weights_of_a_gpt2_go_to_both_stages_and_back(void **state)
{
    struct run_options options = {.ranks = 1,
                                  .conf = "text.conf",
                                  .arguments = {run_dir_argument("made"), "train.max_steps=2"}};
    const char *weights = in_work("made/checkpoints/step-00000002/model.safetensors");

    (void)state;
    run_well(&options);
    options = (struct run_options){
        .ranks = 2,
        .conf = "text.conf",
        .arguments = {run_dir_argument("taken"), TWO_STAGES, "train.max_steps=1", "optimizer.lr=0",
                      "train.seed=7", argument("model.weights=%s", weights)}};
    run_well(&options);
    assert_same_file(in_work("made/checkpoints/step-00000002/model.safetensors"),
                     in_work("taken/checkpoints/step-00000001/model.safetensors"));
}

static void a_checkpoint_that_cannot_be_written_leaves_stages_in_step(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("full"), "model.hidden=[700,700,700]",
                      "train.log_steps=1000", "train.tensorboard=false", TWO_STAGES,
                      "train.max_steps=10", "parallel.stages=[\"fc3\"]"}};
    struct run run;

    (void)state;
    if (LIMIT_KILLS) {
        skip();
    }
    run_well(&options);
    options.file_bytes = 3 << 20; /* a stage and its shared memory fit */
    options.arguments[6] = "train.max_steps=20";
    options.arguments[8] = "train.checkpoint_steps=5";
    options.arguments[9] = "train.resume=auto";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "warning: checkpoint of step 15");
    assert_says(&run, "err", 0, "cddp-train: rank 0: checkpoint of step 20");
    options.file_bytes = 0;
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000010: step 10");
}

/* The weights of a run, with those of its last layer many times as large. */
static void write_large_weights(const char *from, const char *to)
{
    cddp_safetensors *file = NULL;
    cddp_tensor tensors[4];
    float *large = NULL;

    assert_int_equal(cddp_safetensors_open(from, &file), CDDP_OK);
    assert_int_equal(cddp_safetensors_count(file), 4);
    for (size_t i = 0; i < 4; i++) {
        size_t count = 0;

        tensors[i] = *cddp_safetensors_at(file, i);
        if (strcmp(tensors[i].name, "last.weight") == 0) {
            large = malloc(cddpi_elements(tensors[i].dims, tensors[i].shape) * sizeof *large);
            count = cddpi_elements(tensors[i].dims, tensors[i].shape);
            for (size_t k = 0; k < count; k++) {
                large[k] = 1e32f * ((const float *)tensors[i].data)[k];
            }
            tensors[i].data = large;
        }
    }
    assert_int_equal(cddp_safetensors_write(to, tensors, 4, NULL), CDDP_OK);
    cddp_safetensors_close(file);
    free(large);
}

/* Decay multiplies large weights by 1e9 in one step, whose loss is still finite. */
static void parameters_of_another_stage_that_are_not_finite_become_no_checkpoint(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .arguments = {run_dir_argument("start"), "model.type=layers",
                      "model.layers=({type=\"flatten\";},{type=\"layer_norm\";name=\"norm\";},"
                      "{type=\"linear\";units=4;name=\"last\";})",
                      "parallel.stages=[\"last\"]", "parallel.pipeline=2", "optimizer.type=adamw",
                      "optimizer.schedule.type=constant", "train.max_steps=1", "optimizer.lr=0"}};
    struct run run;

    (void)state;
    run_well(&options);
    write_large_weights(in_work("start/checkpoints/step-00000001/model.safetensors"),
                        in_work("large.safetensors"));
    options.arguments[0] = run_dir_argument("burst");
    options.arguments[8] = "optimizer.lr=1e6";
    options.arguments[9] = "optimizer.weight_decay=1e3";
    options.arguments[10] = argument("model.weights=%s", in_work("large.safetensors"));
    run = run_badly(&options);
    assert_says(&run, "err", 0, "checkpoint of step 1: last.weight ");
    assert_false(access(in_work("burst/checkpoints/step-00000001"), F_OK) == 0);
}

static void a_stage_without_parameters_is_refused(void **state)
{
    struct run_options options = {.ranks = 2,
                                  .arguments = {run_dir_argument("bare"), "parallel.pipeline=2",
                                                "parallel.stages=[\"fc1\"]"}};
    struct run run = run_badly(&options);

    (void)state;
    assert_says(&run, "err", 0,
                "parallel.stages: rank 0 would have no parameters: let its stage have a layer that "
                "learns");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_statistics_and_chunks_have_the_order_of_the_whole_model),
        cmocka_unit_test(chunks_go_on_from_a_checkpoint_of_stages),
        cmocka_unit_test(weights_of_a_gpt2_go_to_both_stages_and_back),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_leaves_stages_in_step),
        cmocka_unit_test(parameters_of_another_stage_that_are_not_finite_become_no_checkpoint),
        cmocka_unit_test(a_stage_without_parameters_is_refused),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
