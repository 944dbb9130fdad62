/* test_pipeline.c - models in pipelines of real processes: the bits of the same micro-batches
 * through the whole model, for every schedule, with any numbers of samples; and what is refused. */
#include "base/error.h"
#include "parallel/pipeline/pipeline.h"
#include "support/nn_model.h"
#include "support/nn_sync.h"
#include "support/sequence.h"

enum { MOST = 8, STAGES = 8 };

struct job {
    const struct cddpi_model_spec *spec;
    enum cddpi_pipeline_schedule schedule;
    int chunks;
    struct cddpi_layer_range stages[STAGES];
    int counts[MOST]; /* samples of each micro-batch */
    int micro_batches;
    const char *url;
};

/* What each rank computes for itself with the whole model. */
static int compute_whole(const struct job *job, struct fixture *whole, struct fixture *samples,
                         struct cddpi_loss_result *sum)
{
    CHECK(fixture_init(whole, job->spec, 45, NULL, 0, 1));
    for (int m = 0; m < job->micro_batches; m++) {
        struct cddpi_loss_result result = {0};

        CHECK(fixture_init(&samples[m], job->spec, 45, NULL, 10 * m, job->counts[m]));
        CHECK(cddpi_model_forward(whole->model, &samples[m].batch, true, &result) == CDDP_OK);
        CHECK(cddpi_model_backward(whole->model, 0.25, m > 0, NULL, NULL) == CDDP_OK);
        sum->loss_sum += result.loss_sum;
        sum->correct += result.correct;
        sum->count += result.count;
    }
    return 0;
}

struct arrived {
    int count[2];
};

static cddp_status note_ready(void *context, int chunk, size_t index)
{
    (void)index;
    ((struct arrived *)context)->count[chunk]++;
    return CDDP_OK;
}

static int bind_grads(struct cddpi_model *model, void ***out)
{
    size_t count;
    const cddp_param *params = cddpi_model_params(model, &count);

    *out = calloc(count, sizeof **out);
    for (size_t i = 0; i < count; i++) {
        (*out)[i] = calloc(cddpi_tensor_elements(&params[i]), sizeof(float));
    }
    cddpi_model_bind_grads(model, *out);
    return 0;
}

/* Tied parameters are in two stages, each of which has a part of the gradient. */
static int compare(const struct fixture *whole, struct cddpi_model *model, void **grads)
{
    size_t count;
    const cddp_param *params = cddpi_model_params(model, &count);

    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        size_t bytes = cddpi_tensor_elements(&params[i]) * sizeof(float);

        while (strcmp(whole->params[k].name, params[i].name) != 0) {
            k++;
        }
        CHECK(memcmp(whole->params[k].data, params[i].data, bytes) == 0);
        if (whole->model->tokens_in && strstr(params[i].name, "wte") != NULL) {
            continue;
        }
        if (memcmp(whole->grads[k], grads[i], bytes) != 0) {
            fprintf(stderr, "the gradient of %s has other bits\n", params[i].name);
            return 1;
        }
    }
    return 0;
}

static int step_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct spread spread = {.url = job->url};
    struct cddpi_pipeline_options options = {.schedule = job->schedule,
                                             .chunks = job->chunks,
                                             .stages = job->stages,
                                             .most_micro_batches = job->micro_batches};
    struct fixture whole;
    struct fixture samples[MOST];
    struct cddpi_batch batches[MOST];
    double scales[MOST];
    void **grads[2];
    struct cddpi_loss_result sum = {0};
    struct cddpi_loss_result result;
    struct cddpi_loss_result results[MOST];
    struct cddpi_pipeline *pipeline;

    CHECK(join(&spread, "pipeline", NULL, NULL, rank, n, &options.group) == 0);
    CHECK(cddpi_pipeline_create(job->spec, 45, &options, &pipeline) == CDDP_OK);
    CHECK(compute_whole(job, &whole, samples, &sum) == 0);
    for (int c = 0; c < job->chunks; c++) {
        CHECK(bind_grads(cddpi_pipeline_model(pipeline, c), &grads[c]) == 0);
    }
    for (int m = 0; m < job->micro_batches; m++) {
        batches[m] = samples[m].batch;
        scales[m] = 0.25;
    }
    for (int again = 0; again < 2; again++) { /* slots and messages of a step before */
        struct arrived arrived = {{0, 0}};
        const struct cddpi_pipeline_work work = {.batches = batches,
                                                 .scales = scales,
                                                 .count = job->micro_batches,
                                                 .ready = note_ready,
                                                 .context = &arrived};

        result = (struct cddpi_loss_result){0};
        CHECK(cddpi_pipeline_step(pipeline, &work, results) == CDDP_OK);
        for (int m = 0; m < job->micro_batches; m++) {
            result.loss_sum += results[m].loss_sum;
            result.count += results[m].count;
        }
        for (int c = 0; c < job->chunks; c++) {
            size_t count;

            cddpi_model_params(cddpi_pipeline_model(pipeline, c), &count);
            CHECK((size_t)arrived.count[c] == count);
            CHECK(compare(&whole, cddpi_pipeline_model(pipeline, c), grads[c]) == 0);
        }
        CHECK(result.loss_sum == (rank == n - 1 ? sum.loss_sum : 0));
        CHECK(result.count == (rank == n - 1 ? sum.count : 0));
    }
    for (int m = 0; m < job->micro_batches; m++) {
        struct cddpi_loss_result alone;

        CHECK(cddpi_pipeline_evaluate(pipeline, &batches[m], &result) == CDDP_OK);
        CHECK(cddpi_model_forward(whole.model, &batches[m], false, &alone) == CDDP_OK);
        CHECK(rank < n - 1 || whole.model->buffers.count > 0 ||
              result.loss_sum == alone.loss_sum); /* running statistics have moved on */
        fixture_fini(&samples[m]);
    }
    CHECK(cddp_barrier(options.group, NULL) == CDDP_OK);
    for (int c = 0; c < job->chunks; c++) {
        size_t count;

        cddpi_model_params(cddpi_pipeline_model(pipeline, c), &count);
        for (size_t i = 0; i < count; i++) {
            free(grads[c][i]);
        }
        free(grads[c]);
    }
    fixture_fini(&whole);
    cddpi_pipeline_destroy(pipeline);
    cddp_group_destroy(options.group);
    return 0;
}

enum { LARGE = (80 << 20) / sizeof(float) }; /* more than shared memory holds for a message */

/* Messages beside those of a pipeline. */
struct beside {
    struct cddpi_pipeline *pipeline;
    cddp_group *group;
    float *data;
    cddp_work *work;
    int rank;
    int backwards;
};

/* Before the first backward of the last stage, it sends something large to the first stage, which
 * waits for it before its own. */
static cddp_status send_beside(void *context, int chunk, enum cddpi_pipeline_pass pass)
{
    struct beside *beside = context;

    (void)chunk;
    if (pass != CDDPI_PASS_BACKWARD || beside->backwards++ > 0) {
        return CDDP_OK;
    }
    if (beside->rank == 1) {
        return cddp_send(beside->group, beside->data, LARGE, CDDP_F32, 0, &beside->work);
    }
    CDDPI_TRY(cddp_recv(beside->group, beside->data, LARGE, CDDP_F32, 1, &beside->work));
    return cddpi_pipeline_finish(beside->pipeline, &beside->work);
}

static int beside_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct spread spread = {.url = job->url};
    struct cddpi_pipeline_options options = {
        .chunks = 1, .stages = job->stages, .most_micro_batches = job->micro_batches};
    struct beside beside = {.rank = rank, .data = calloc(LARGE, sizeof(float))};
    struct fixture samples[MOST];
    struct cddpi_batch batches[MOST];
    double scales[MOST];
    void **grads;
    size_t count;
    struct cddpi_loss_result results[MOST];
    const struct cddpi_pipeline_work work = {.batches = batches,
                                             .scales = scales,
                                             .count = job->micro_batches,
                                             .separate = true,
                                             .before = send_beside,
                                             .context = &beside};

    setenv("CDDP_COMM_THREAD", "0", 1);
    beside.data[LARGE - 1] = rank == 1 ? 7 : 0;
    CHECK(join(&spread, "beside", NULL, NULL, rank, n, &options.group) == 0);
    CHECK(cddp_group_split(options.group, 0, rank, &beside.group) == CDDP_OK);
    CHECK(cddpi_pipeline_create(job->spec, 45, &options, &beside.pipeline) == CDDP_OK);
    cddpi_pipeline_set_beside(beside.pipeline, beside.group);
    CHECK(bind_grads(cddpi_pipeline_model(beside.pipeline, 0), &grads) == 0);
    for (int m = 0; m < job->micro_batches; m++) {
        CHECK(fixture_init(&samples[m], job->spec, 45, NULL, 10 * m, job->counts[m]));
        batches[m] = samples[m].batch;
        scales[m] = 0.25;
    }
    CHECK(cddpi_pipeline_step(beside.pipeline, &work, results) == CDDP_OK);
    CHECK(cddpi_pipeline_finish(beside.pipeline, &beside.work) == CDDP_OK);
    CHECK(beside.data[LARGE - 1] == 7);
    CHECK(cddp_barrier(options.group, NULL) == CDDP_OK);
    cddpi_model_params(cddpi_pipeline_model(beside.pipeline, 0), &count);
    for (size_t i = 0; i < count; i++) {
        free(grads[i]);
    }
    for (int m = 0; m < job->micro_batches; m++) {
        fixture_fini(&samples[m]);
    }
    free(grads);
    free(beside.data);
    cddpi_pipeline_destroy(beside.pipeline);
    cddp_group_destroy(beside.group);
    cddp_group_destroy(options.group);
    return 0;
}

static void run_job(int ranks, struct job job, rank_fn body)
{
    char *folder = support_mkdtemp();
    char url[4200];

    snprintf(url, sizeof url, "file://%s/store", folder);
    job.url = url;
    assert_int_equal(run_ranks(ranks, body, &job), 0);
    support_rmdir(folder);
}

static int layers_of(const struct cddpi_model_spec *whole)
{
    struct fixture f;
    int count;

    assert_true(fixture_init(&f, whole, 45, NULL, 0, 1));
    count = (int)f.model->list.count;
    fixture_fini(&f);
    return count;
}

/* As even parts as can be. */
static void divide(struct job *job, int stages)
{
    int count = layers_of(job->spec);

    for (int i = 0; i < stages; i++) {
        job->stages[i] = (struct cddpi_layer_range){count * i / stages, count * (i + 1) / stages};
    }
}

static void an_mlp_through_two_ranks_has_the_bits_of_one(void **state)
{
    struct cddpi_model_spec dropping = mlp;
    struct job job = {
        .spec = &dropping, .chunks = 1, .counts = {4, 4, 4, 4, 2}, .micro_batches = 5};

    (void)state;
    dropping.dropout = 0.25;
    divide(&job, 2);
    run_job(2, job, step_rank);
    job.schedule = CDDPI_PIPELINE_GPIPE;
    run_job(2, job, step_rank);
}

static void a_cnn_through_three_ranks_has_the_bits_of_one(void **state)
{
    struct job job = {.spec = &cnn, .chunks = 1, .counts = {3, 3, 1}, .micro_batches = 3};

    (void)state;
    divide(&job, 3);
    run_job(3, job, step_rank);
}

static void a_residual_network_through_four_ranks_has_the_bits_of_one(void **state)
{
    struct job job = {.spec = &resnet20, .chunks = 1, .counts = {2, 2, 2}, .micro_batches = 3};

    (void)state;
    divide(&job, 4);
    run_job(4, job, step_rank);
}

static void fewer_micro_batches_than_ranks_go_through(void **state)
{
    struct job job = {.spec = &resnet20, .chunks = 1, .counts = {2}, .micro_batches = 1};

    (void)state;
    divide(&job, 3);
    run_job(3, job, step_rank);
}

static void micro_batches_without_samples_go_through(void **state)
{
    struct job job = {.spec = &cnn, .chunks = 1, .counts = {3, 0, 0}, .micro_batches = 3};

    (void)state;
    divide(&job, 2);
    run_job(2, job, step_rank);
    job.counts[0] = 0;
    run_job(2, job, step_rank);
}

static void zero_bubble_has_the_bits_of_one(void **state)
{
    struct cddpi_model_spec dropping = mlp;
    struct job jobs[] = {
        {.spec = &dropping, .counts = {4, 4, 4, 4, 2}, .micro_batches = 5},
        {.spec = &cnn, .counts = {3, 0, 1}, .micro_batches = 3},
        {.spec = &resnet20, .counts = {2, 2, 2, 1, 2}, .micro_batches = 5},
        {.spec = &tiny, .counts = {2, 2, 1, 2}, .micro_batches = 4},
    };

    (void)state;
    dropping.dropout = 0.25;
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        jobs[i].schedule = CDDPI_PIPELINE_ZERO_BUBBLE;
        jobs[i].chunks = 1;
        for (int ranks = 2; ranks <= (i == 1 ? 2 : 3); ranks++) {
            divide(&jobs[i], ranks);
            run_job(ranks, jobs[i], step_rank);
        }
    }
    jobs[2].micro_batches = 1; /* fewer than ranks */
    run_job(3, jobs[2], step_rank);
}

static void interleaved_chunks_of_gpt2_have_the_bits_of_one(void **state)
{
    struct job job = {.spec = &tiny,
                      .schedule = CDDPI_PIPELINE_INTERLEAVED,
                      .chunks = 2,
                      .counts = {2, 2, 2, 2, 2, 1},
                      .micro_batches = 6};

    (void)state;
    divide(&job, 4);
    run_job(2, job, step_rank);
    divide(&job, 6);
    run_job(3, job, step_rank);
}

/* Without a thread for messages, each side moves its own only while it waits. */
static void messages_beside_a_pipeline_go_on_while_it_waits(void **state)
{
    struct job job = {.spec = &mlp, .counts = {4, 4, 4, 4}, .micro_batches = 4};

    (void)state;
    divide(&job, 2);
    run_job(2, job, beside_rank);
}

static int create_refused(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct spread spread = {.url = job->url};
    struct cddpi_pipeline_options options = {.schedule = job->schedule,
                                             .chunks = job->chunks,
                                             .stages = job->stages,
                                             .most_micro_batches = job->micro_batches};
    struct cddpi_pipeline *pipeline;

    CHECK(join(&spread, "refused", NULL, NULL, rank, n, &options.group) == 0);
    CHECK(cddpi_pipeline_create(job->spec, 45, &options, &pipeline) == CDDP_ERR_ARGUMENT);
    cddp_group_destroy(options.group);
    return 0;
}

static void more_micro_batches_than_slots_are_refused(void **state)
{
    struct job job = {.spec = &mlp,
                      .schedule = CDDPI_PIPELINE_GPIPE,
                      .chunks = 1,
                      .micro_batches = CDDPI_MODEL_SLOTS + 1};

    (void)state;
    divide(&job, 2);
    run_job(2, job, create_refused);
    job.chunks = 2;
    job.micro_batches = 4;
    run_job(2, job, create_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mlp_through_two_ranks_has_the_bits_of_one),
        cmocka_unit_test(a_cnn_through_three_ranks_has_the_bits_of_one),
        cmocka_unit_test(a_residual_network_through_four_ranks_has_the_bits_of_one),
        cmocka_unit_test(fewer_micro_batches_than_ranks_go_through),
        cmocka_unit_test(micro_batches_without_samples_go_through),
        cmocka_unit_test(zero_bubble_has_the_bits_of_one),
        cmocka_unit_test(interleaved_chunks_of_gpt2_have_the_bits_of_one),
        cmocka_unit_test(messages_beside_a_pipeline_go_on_while_it_waits),
        cmocka_unit_test(more_micro_batches_than_slots_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
