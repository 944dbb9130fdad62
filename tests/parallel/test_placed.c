/* test_placed.c - models on several devices of one process: the bits of one device for any
 * placement, one batch after the other or several micro-batches at once; which device reports which
 * gradient; the message when a device fails. */
#include "parallel/placed/placed.h"
#include "support/failure.h"
#include "support/nn_model.h"
#include "support/sequence.h"

enum { MOST = 6, SEGMENTS = 9 };

/* "cpu" and "cpu:0" are there on any machine. */
static const char *const names[] = {"cpu:0", "cpu", "cpu:0", "cpu"};

struct job {
    const struct cddpi_model_spec *spec;
    enum cddpi_pipeline_schedule schedule;
    struct cddpi_segment segments[SEGMENTS];
    int segment_count, device_count;
    int counts[MOST]; /* samples of each micro-batch */
    int micro_batches;
    bool separate; /* micro-batches at once */
};

struct placed {
    cddp_devices *devices;
    struct cddpi_placed *model;
    const cddp_param *params;
    size_t param_count;
    void **grads;
    int *ready;   /* one a parameter: how often it was reported */
    float **sums; /* of the reported gradients; NULL: only counted */
};

static int layers_of(const struct cddpi_model_spec *spec)
{
    bool has_params;
    int count = 0;

    assert_int_equal(cddpi_model_layer_has_params(spec, 0, &has_params, &count), CDDP_OK);
    return count;
}

/* As even segments as can be, each on the next device, and again from the first one. */
static void divide(struct job *job, int segments, int devices)
{
    int count = layers_of(job->spec);

    for (int i = 0; i < segments; i++) {
        job->segments[i] = (struct cddpi_segment){
            {count * i / segments, count * (i + 1) / segments}, i % devices};
    }
    job->segment_count = segments;
    job->device_count = devices;
}

static void placed_init(struct placed *p, const struct job *job)
{
    struct cddpi_placed_options options = {.segments = job->segments,
                                           .segment_count = job->segment_count,
                                           .schedule = job->schedule,
                                           .micro_batches = job->micro_batches,
                                           .separate = job->separate,
                                           .timeout_ms = 60000};

    assert_int_equal(cddp_devices_create(names, job->device_count, &p->devices), CDDP_OK);
    options.devices = p->devices;
    if (cddpi_placed_create(job->spec, 45, &options, &p->model) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    p->params = cddpi_placed_params(p->model, &p->param_count);
    p->grads = calloc(p->param_count, sizeof *p->grads);
    p->ready = calloc(p->param_count, sizeof *p->ready);
    p->sums = NULL;
    for (size_t i = 0; i < p->param_count; i++) {
        p->grads[i] = calloc(cddpi_tensor_elements(&p->params[i]), sizeof(float));
    }
    cddpi_placed_bind_grads(p->model, p->grads);
}

static void placed_fini(struct placed *p)
{
    for (size_t i = 0; i < p->param_count; i++) {
        free(p->grads[i]);
    }
    free(p->grads);
    free(p->ready);
    cddpi_placed_destroy(p->model);
    cddp_devices_destroy(p->devices);
}

/* Called by one thread at a time, as is promised. */
static cddp_status note_ready(void *context, size_t index)
{
    struct placed *p = context;
    size_t elements = p->sums != NULL ? cddpi_tensor_elements(&p->params[index]) : 0;
    const float *grad = p->grads[index];

    p->ready[index]++;
    for (size_t e = 0; e < elements; e++) {
        p->sums[index][e] += grad[e];
    }
    return CDDP_OK;
}

/* The parameters of the whole model, in its order, with its values; gradients with its bits, those
 * of a weight that several segments have summed in parts if @p shares. */
static void expect_whole(const struct fixture *whole, const struct placed *p, bool shares)
{
    size_t count;
    const cddp_param *buffers = cddpi_placed_buffers(p->model, &count);

    assert_int_equal(p->param_count, whole->param_count);
    for (size_t i = 0; i < p->param_count; i++) {
        size_t elements = cddpi_tensor_elements(&p->params[i]);

        assert_string_equal(p->params[i].name, whole->params[i].name);
        assert_memory_equal(p->params[i].data, whole->params[i].data, elements * sizeof(float));
        assert_int_equal(cddpi_placed_param_decays(p->model, i),
                         cddpi_model_param_decays(whole->model, i));
        assert_int_equal(cddpi_placed_ready_order(p->model)[i],
                         cddpi_model_ready_order(whole->model)[i]);
        if (shares && strstr(p->params[i].name, "wte") != NULL) {
            assert_true(relative_difference(whole->grads[i], p->grads[i], elements) < 1e-5);
        } else if (memcmp(whole->grads[i], p->grads[i], elements * sizeof(float)) != 0) {
            fail_msg("the gradient of %s has other bits", p->params[i].name);
        }
    }
    assert_int_equal(count, whole->model->buffers.count);
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(buffers[i].data, whole->model->buffers.items[i].data,
                            cddpi_tensor_elements(&buffers[i]) * sizeof(float));
    }
}

/* Each parameter was reported so often, since the last call. */
static void expect_ready(struct placed *p, int times)
{
    for (size_t i = 0; i < p->param_count; i++) {
        assert_int_equal(p->ready[i], times);
        p->ready[i] = 0;
    }
}

/* Micro-batches one after the other through the whole model and the placed one. */
static void step_plainly(const struct job *job, struct fixture *whole, struct placed *p,
                         struct fixture *samples)
{
    for (int m = 0; m < job->micro_batches; m++) {
        bool last = m == job->micro_batches - 1;
        struct cddpi_loss_result a = {0};
        struct cddpi_loss_result b = {0};

        assert_int_equal(cddpi_model_forward(whole->model, &samples[m].batch, true, &a), CDDP_OK);
        assert_int_equal(cddpi_model_backward(whole->model, 0.25, m > 0, NULL, NULL), CDDP_OK);
        assert_int_equal(cddpi_placed_forward(p->model, &samples[m].batch, true, &b), CDDP_OK);
        assert_int_equal(cddpi_placed_backward(p->model, 0.25, m > 0, last ? note_ready : NULL, p),
                         CDDP_OK);
        assert_true(a.loss_sum == b.loss_sum && a.correct == b.correct && a.count == b.count);
    }
}

static void step_at_once(const struct job *job, struct fixture *whole, struct placed *p,
                         struct fixture *samples)
{
    struct cddpi_batch batches[MOST];
    double scales[MOST];
    struct cddpi_loss_result expected[MOST] = {{0}};
    struct cddpi_loss_result results[MOST];
    struct cddpi_placed_work work = {.batches = batches,
                                     .scales = scales,
                                     .count = job->micro_batches,
                                     .ready = note_ready,
                                     .context = p};

    for (int m = 0; m < job->micro_batches; m++) {
        batches[m] = samples[m].batch;
        scales[m] = 0.25;
        assert_int_equal(cddpi_model_forward(whole->model, &batches[m], true, &expected[m]),
                         CDDP_OK);
        assert_int_equal(cddpi_model_backward(whole->model, 0.25, m > 0, NULL, NULL), CDDP_OK);
    }
    if (cddpi_placed_step(p->model, &work, results) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    for (int m = 0; m < job->micro_batches; m++) {
        assert_true(results[m].loss_sum == expected[m].loss_sum);
        assert_true(results[m].count == expected[m].count);
    }
}

static float **make_sums(const struct placed *p)
{
    float **sums = calloc(p->param_count, sizeof *sums);

    for (size_t i = 0; i < p->param_count; i++) {
        sums[i] = calloc(cddpi_tensor_elements(&p->params[i]), sizeof(float));
    }
    return sums;
}

/* Put sums where the gradients are, and release them. */
static void take_sums(const struct placed *p, float **sums, void *const *grads)
{
    for (size_t i = 0; i < p->param_count; i++) {
        memcpy(grads[i], sums[i], cddpi_tensor_elements(&p->params[i]) * sizeof(float));
        free(sums[i]);
    }
    free(sums);
}

/* Each micro-batch's gradients are added up here, in their order. */
static void step_separately(const struct job *job, struct fixture *whole, struct placed *p,
                            struct fixture *samples)
{
    float **sums = make_sums(p);
    struct cddpi_batch batches[MOST];
    double scales[MOST];
    struct cddpi_loss_result results[MOST];
    struct cddpi_placed_work work = {.batches = batches,
                                     .scales = scales,
                                     .count = job->micro_batches,
                                     .separate = true,
                                     .ready = note_ready,
                                     .context = p};

    p->sums = make_sums(p);
    for (int m = 0; m < job->micro_batches; m++) {
        batches[m] = samples[m].batch;
        scales[m] = 0.25 + m;
        assert_int_equal(cddpi_model_forward(whole->model, &batches[m], true, NULL), CDDP_OK);
        assert_int_equal(cddpi_model_backward(whole->model, scales[m], false, NULL, NULL), CDDP_OK);
        for (size_t i = 0; i < p->param_count; i++) {
            size_t elements = cddpi_tensor_elements(&p->params[i]);

            for (size_t e = 0; e < elements; e++) {
                sums[i][e] += ((const float *)whole->grads[i])[e];
            }
        }
    }
    if (cddpi_placed_step(p->model, &work, results) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    take_sums(p, sums, (void *const *)whole->grads);
    take_sums(p, p->sums, p->grads);
    p->sums = NULL;
}

static void expect_evaluation(struct fixture *whole, struct placed *p,
                              const struct cddpi_batch *batch)
{
    struct cddpi_loss_result a = {0};
    struct cddpi_loss_result b = {0};

    assert_int_equal(cddpi_model_forward(whole->model, batch, false, &a), CDDP_OK);
    assert_int_equal(cddpi_placed_forward(p->model, batch, false, &b), CDDP_OK);
    assert_true(a.loss_sum == b.loss_sum && a.correct == b.correct && a.count == b.count);
}

static void run_job(const struct job *job, bool at_once)
{
    struct job made = *job;
    struct fixture whole;
    struct fixture samples[MOST];
    struct placed p;

    made.micro_batches = at_once ? job->micro_batches : 1;
    assert_true(fixture_init(&whole, job->spec, 45, NULL, 0, 1));
    for (int m = 0; m < job->micro_batches; m++) {
        assert_true(fixture_init(&samples[m], job->spec, 45, NULL, 10 * m, job->counts[m]));
    }
    placed_init(&p, &made);
    for (int again = 0; again < 2; again++) { /* slots and plans of a step before */
        if (at_once && job->separate) {
            step_separately(job, &whole, &p, samples);
        } else if (at_once) {
            step_at_once(job, &whole, &p, samples);
        } else {
            step_plainly(job, &whole, &p, samples);
        }
        expect_whole(&whole, &p, at_once && !job->separate);
        expect_ready(&p, at_once && job->separate ? job->micro_batches : 1);
        expect_evaluation(&whole, &p, &samples[0].batch);
    }
    placed_fini(&p);
    for (int m = 0; m < job->micro_batches; m++) {
        fixture_fini(&samples[m]);
    }
    fixture_fini(&whole);
}

static void any_placement_has_the_bits_of_one_device(void **state)
{
    static const struct cddpi_model_spec *const specs[] = {&mlp, &cnn, &resnet20, &tiny};
    struct job job = {.counts = {3, 4, 0, 2}, .micro_batches = 4};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        job.spec = specs[i];
        divide(&job, 2, 2);
        run_job(&job, false);
    }
    job.spec = &resnet20;
    divide(&job, 5, 2); /* there and back */
    run_job(&job, false);
    divide(&job, 1, 1);
    run_job(&job, false);
}

static void a_weight_of_three_segments_is_one(void **state)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_EMBEDDING, .name = "wte", .units = 16},
        {.type = CDDPI_LAYER_LINEAR, .name = "middle", .units = 11, .tied = "wte", .no_bias = true},
        {.type = CDDPI_LAYER_LINEAR, .name = "narrow", .units = 16},
        {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 11, .tied = "wte", .no_bias = true},
    };
    struct cddpi_model_spec spec = tokens_through(layers, COUNT_OF(layers));
    struct job job = {.spec = &spec,
                      .segments = {{{0, 1}, 0}, {{1, 3}, 1}, {{3, 4}, 2}},
                      .segment_count = 3,
                      .device_count = 3,
                      .counts = {3, 4, 2},
                      .micro_batches = 3};

    (void)state;
    run_job(&job, false);
    run_job(&job, true);
    job.separate = true;
    job.micro_batches = 5;
    job.counts[3] = 3;
    job.counts[4] = 1;
    job.schedule = CDDPI_PIPELINE_1F1B;
    run_job(&job, true);
    job.schedule = CDDPI_PIPELINE_GPIPE;
    run_job(&job, true);
}

static void micro_batches_at_once_have_the_bits_of_one_device(void **state)
{
    static const struct cddpi_model_spec *const specs[] = {&mlp, &cnn, &resnet20, &tiny};
    static const enum cddpi_pipeline_schedule schedules[] = {
        CDDPI_PIPELINE_1F1B, CDDPI_PIPELINE_ZERO_BUBBLE, CDDPI_PIPELINE_GPIPE};
    struct job job = {.counts = {3, 3, 3, 0, 2}, .micro_batches = 5};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        job.spec = specs[i];
        for (size_t k = 0; k < COUNT_OF(schedules); k++) {
            job.schedule = schedules[k];
            divide(&job, 2, 2);
            run_job(&job, true);
        }
    }
    job.spec = &resnet20;
    divide(&job, 4, 2); /* gpipe takes it anywhere */
    run_job(&job, true);
    job.schedule = CDDPI_PIPELINE_1F1B;
    divide(&job, 4, 4);
    run_job(&job, true);
    job.schedule = CDDPI_PIPELINE_ZERO_BUBBLE;
    run_job(&job, true);
}

static void separate_micro_batches_have_the_bits_of_one_device(void **state)
{
    static const struct cddpi_model_spec *const specs[] = {&cnn, &resnet20, &tiny};
    static const enum cddpi_pipeline_schedule schedules[] = {
        CDDPI_PIPELINE_1F1B, CDDPI_PIPELINE_GPIPE, CDDPI_PIPELINE_ZERO_BUBBLE};
    struct job job = {.counts = {3, 3, 3, 1, 2}, .micro_batches = 5, .separate = true};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        job.spec = specs[i];
        for (size_t k = 0; k < COUNT_OF(schedules); k++) {
            job.schedule = schedules[k];
            divide(&job, 3, 3);
            if (specs[i] != &tiny || schedules[k] != CDDPI_PIPELINE_ZERO_BUBBLE) {
                run_job(&job, true); /* a tied table has no zero_bubble */
            }
        }
    }
    job.spec = &resnet20;
    job.schedule = CDDPI_PIPELINE_GPIPE;
    divide(&job, 4, 2);
    run_job(&job, true);
}

/* The towers see each other at the third layer, and at the linear ones. */
static void each_tower_of_alexnet_can_be_on_a_device(void **state)
{
    static const char *const groups[SEGMENTS] = {"a1", "b1", "a3", "b3", "a6",
                                                 "b6", "a7", "b7", "fc8"};
    const struct cddpi_model_spec alexnet = {.preset = "alexnet",
                                             .stage_units = 6,
                                             .towers = 2,
                                             .dropout = 0.5,
                                             .channels = 3,
                                             .height = 67,
                                             .width = 67,
                                             .classes = 10};
    struct job job = {.spec = &alexnet,
                      .schedule = CDDPI_PIPELINE_GPIPE,
                      .segment_count = SEGMENTS,
                      .device_count = 2,
                      .counts = {3, 2, 3},
                      .micro_batches = 3};

    (void)state;
    for (int i = 0; i < SEGMENTS; i++) {
        job.segments[i].device = i % 2;
        assert_int_equal(cddpi_model_find_layers(&alexnet, groups[i], &job.segments[i].layers),
                         CDDP_OK);
        assert_int_equal(job.segments[i].layers.first, i > 0 ? job.segments[i - 1].layers.end : 0);
    }
    assert_int_equal(job.segments[SEGMENTS - 1].layers.end, layers_of(&alexnet));
    run_job(&job, false);
    run_job(&job, true);
}

static void a_schedule_that_does_not_fit_is_refused(void **state)
{
    struct job job = {.spec = &resnet20, .micro_batches = 4};
    struct cddpi_placed_options options = {.micro_batches = 4, .timeout_ms = 1000};
    struct cddpi_placed *model = NULL;
    cddp_devices *devices = NULL;

    (void)state;
    divide(&job, 3, 2);
    assert_int_equal(cddp_devices_create(names, 2, &devices), CDDP_OK);
    options.devices = devices;
    options.segments = job.segments;
    options.segment_count = job.segment_count;
    assert_true(failure_is(cddpi_placed_create(&resnet20, 45, &options, &model), CDDP_ERR_CONFIG,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "1f1b wants the devices to have one stage each, in their order, but stage "
                        "2 of 3 is on device 0: use gpipe");
    options.schedule = CDDPI_PIPELINE_ZERO_BUBBLE;
    assert_true(failure_is(cddpi_placed_create(&resnet20, 45, &options, &model), CDDP_ERR_CONFIG,
                           -1, -1, ""));
    assert_true(last_error_has("zero_bubble wants the devices to have one stage"));
    options.schedule = CDDPI_PIPELINE_INTERLEAVED;
    assert_true(failure_is(cddpi_placed_create(&resnet20, 45, &options, &model), CDDP_ERR_CONFIG,
                           -1, -1, ""));
    assert_true(last_error_has("interleaved is a schedule of stages over ranks"));
    cddp_devices_destroy(devices);
}

/* The last device finds a label that is none; the first waits for its gradients meanwhile. */
static void a_device_that_fails_is_named_and_ends_the_step(void **state)
{
    struct job job = {.spec = &cnn, .counts = {2, 2, 2}, .micro_batches = 3};
    struct cddpi_batch batches[3];
    double scales[3] = {1, 1, 1};
    struct cddpi_loss_result results[3];
    struct fixture f;
    struct placed p;
    struct cddpi_placed_work work = {
        .batches = batches, .scales = scales, .count = 3, .ready = note_ready, .context = &p};
    int32_t wrong[2] = {0, 10};

    (void)state;
    divide(&job, 2, 2);
    placed_init(&p, &job);
    assert_true(fixture_init(&f, &cnn, 45, NULL, 0, 2));
    for (int m = 0; m < 3; m++) {
        batches[m] = f.batch;
    }
    batches[1].label = wrong;
    assert_true(
        failure_is(cddpi_placed_step(p.model, &work, results), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_memory_equal(cddp_last_error(), "cpu", 3);
    assert_true(last_error_has("label"));
    batches[1].label = f.batch.label;
    memset(p.ready, 0, p.param_count * sizeof *p.ready);
    assert_int_equal(cddpi_placed_step(p.model, &work, results), CDDP_OK);
    expect_ready(&p, 1);
    fixture_fini(&f);
    placed_fini(&p);
}

static void expect_refused(const struct cddpi_model_spec *spec, const char *first, const char *last,
                           const char *words)
{
    struct cddpi_placement placement;
    struct cddpi_segment *segments;
    int count;
    cddp_status status;

    assert_int_equal(cddpi_placement_init(spec, &placement), CDDP_OK);
    assert_int_equal(cddpi_placement_put(&placement, "layer1", "layer2", 0), CDDP_OK);
    status = cddpi_placement_put(&placement, first, last, 1);
    if (status == CDDP_OK) {
        status = cddpi_placement_segments(&placement, &segments, &count);
    }
    assert_true(failure_is(status, CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has(words));
    cddpi_placement_fini(&placement);
}

static void layers_are_placed_by_name_group_and_number(void **state)
{
    struct cddpi_placement placement;
    struct cddpi_segment *segments = NULL;
    struct cddpi_layer_range range;
    char name[64];
    int count = 0;

    (void)state;
    assert_int_equal(cddpi_placement_init(&resnet20, &placement), CDDP_OK);
    assert_int_equal(cddpi_placement_put(&placement, "input", "layer1", 0), CDDP_OK);
    assert_int_equal(cddpi_placement_put(&placement, "layer2", "layer2", 1), CDDP_OK);
    assert_int_equal(cddpi_placement_put(&placement, "layer3", "fc", 0), CDDP_OK);
    assert_int_equal(cddpi_placement_segments(&placement, &segments, &count), CDDP_OK);
    assert_int_equal(count, 3);
    assert_int_equal(segments[1].device, 1);
    assert_int_equal(cddpi_model_layer_name(&resnet20, segments[1].layers.first, name, 64),
                     CDDP_OK);
    assert_string_equal(name, "layer2.0.conv1");
    assert_int_equal(cddpi_model_layer_name(&resnet20, segments[1].layers.end - 1, name, 64),
                     CDDP_OK);
    assert_memory_equal(name, "layer2.2.", 9);
    assert_int_equal(segments[2].layers.end, layers_of(&resnet20));
    cddpi_free(segments);
    cddpi_placement_fini(&placement);
    assert_int_equal(cddpi_model_find_layers(&mlp, "2", &range), CDDP_OK);
    assert_true(range.first == 2 && range.end == 3);
    assert_int_equal(cddpi_model_find_layers(&mlp, "99", &range), CDDP_ERR_CONFIG);
    assert_true(
        failure_is(cddpi_model_find_layers(&mlp, "fc", &range), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_true(last_error_has("\"fc\""));
}

static void layers_that_are_placed_twice_or_nowhere_are_named(void **state)
{
    (void)state;
    expect_refused(&resnet20, "layer2", "fc", "layer \"layer2.0.conv1\" is placed twice");
    expect_refused(&resnet20, "fc", "layer3", "layer \"layer3\" comes before \"fc\"");
    expect_refused(&resnet20, "layer4", "fc", "\"layer4\"");
    expect_refused(&resnet20, "layer3", "layer3", "layer \"conv1\" is placed nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_placement_has_the_bits_of_one_device),
        cmocka_unit_test(a_weight_of_three_segments_is_one),
        cmocka_unit_test(micro_batches_at_once_have_the_bits_of_one_device),
        cmocka_unit_test(separate_micro_batches_have_the_bits_of_one_device),
        cmocka_unit_test(each_tower_of_alexnet_can_be_on_a_device),
        cmocka_unit_test(a_schedule_that_does_not_fit_is_refused),
        cmocka_unit_test(a_device_that_fails_is_named_and_ends_the_step),
        cmocka_unit_test(layers_are_placed_by_name_group_and_number),
        cmocka_unit_test(layers_that_are_placed_twice_or_nowhere_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
