/* test_replicated.c - DataParallel over the devices of one process, compared step by step with
 * models that each compute one device's samples. */
#include "parallel/placed/placement.h"
#include "parallel/replicated/replicated.h"
#include "support/failure.h"
#include "support/nn_model.h"
#include "support/sequence.h"

enum { MOST = 4 };

/* "cpu" and "cpu:0" are there on any machine. */
static const char *const names[] = {"cpu:0", "cpu", "cpu:0", "cpu"};

struct job {
    const struct cddpi_model_spec *spec;
    int devices, output_device;
    int samples;
    int chunks[MOST + 1]; /* what each device gets; ended by 0 */
};

struct replicated {
    cddp_devices *devices;
    struct cddpi_replicated *model;
    const cddp_param *params;
    size_t param_count;
    void **grads;
    int ready;
};

static void init_layers(struct replicated *r, const struct job *job,
                        struct cddpi_layer_range layers)
{
    assert_int_equal(cddp_devices_create(names, job->devices, &r->devices), CDDP_OK);
    if (cddpi_replicated_create(job->spec, 45, r->devices, job->output_device, layers, &r->model) !=
        CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    r->params = cddpi_replicated_params(r->model, &r->param_count);
    r->grads = calloc(r->param_count, sizeof *r->grads);
    for (size_t i = 0; i < r->param_count; i++) {
        r->grads[i] = calloc(cddpi_tensor_elements(&r->params[i]), sizeof(float));
    }
    cddpi_replicated_bind_grads(r->model, r->grads);
    r->ready = 0;
}

static void replicated_init(struct replicated *r, const struct job *job)
{
    init_layers(r, job, (struct cddpi_layer_range){0, 0});
}

static void replicated_fini(struct replicated *r)
{
    for (size_t i = 0; i < r->param_count; i++) {
        free(r->grads[i]);
    }
    free(r->grads);
    cddpi_replicated_destroy(r->model);
    cddp_devices_destroy(r->devices);
}

static cddp_status count_ready(void *context, size_t index)
{
    (void)index;
    ((struct replicated *)context)->ready++;
    return CDDP_OK;
}

/* What each device computes alone of its samples, and the sum in the devices' order. */
static double compute_alone(const struct job *job, int first, float **sums)
{
    double loss = 0;

    for (int d = 0; job->chunks[d] > 0; d++) {
        struct fixture f;

        assert_true(fixture_init(&f, job->spec, 45, NULL, first, job->chunks[d]));
        loss += fixture_loss(&f);
        assert_int_equal(cddpi_model_backward(f.model, 0.25, false, NULL, NULL), CDDP_OK);
        for (size_t i = 0; i < f.param_count; i++) {
            size_t elements = cddpi_tensor_elements(&f.params[i]);

            sums[i] = d == 0 ? calloc(elements, sizeof(float)) : sums[i];
            for (size_t e = 0; e < elements; e++) {
                float own = ((float *)f.grads[i])[e];

                sums[i][e] = d == 0 ? own : sums[i][e] + own;
            }
        }
        first += job->chunks[d];
        fixture_fini(&f);
    }
    return loss;
}

static void forward(struct replicated *r, struct fixture *f, bool training,
                    struct cddpi_loss_result *out)
{
    if (cddpi_replicated_forward(r->model, &f->batch, training, out) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

static void backward(struct replicated *r, bool accumulate)
{
    if (cddpi_replicated_backward(r->model, 0.25, accumulate, count_ready, r) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

/* Gradients have the bits of the devices' sum; one more backward adds them once more. */
static void run_job(const struct job *job)
{
    struct cddpi_loss_result result = {0};
    float *sums[256];
    struct replicated r;
    struct fixture f;
    double loss;

    replicated_init(&r, job);
    assert_true(r.param_count <= COUNT_OF(sums));
    assert_true(fixture_init(&f, job->spec, 45, NULL, 20, job->samples));
    loss = compute_alone(job, 20, sums);
    forward(&r, &f, true, &result);
    backward(&r, false);
    assert_float_equal(result.loss_sum, loss, 1e-5 * fabs(loss));
    assert_int_equal(result.count, job->samples * cddpi_model_predictions(f.model));
    assert_int_equal(r.ready, r.param_count);
    for (size_t i = 0; i < r.param_count; i++) {
        size_t elements = cddpi_tensor_elements(&r.params[i]);

        assert_string_equal(r.params[i].name, f.params[i].name);
        if (memcmp(sums[i], r.grads[i], elements * sizeof(float)) != 0) {
            fail_msg("the gradient of %s has other bits", r.params[i].name);
        }
    }
    if (f.model->buffers.count == 0) { /* else running statistics have moved on */
        forward(&r, &f, true, &result);
        backward(&r, true);
        for (size_t i = 0; i < r.param_count; i++) {
            size_t elements = cddpi_tensor_elements(&r.params[i]);

            for (size_t e = 0; e < elements; e++) {
                assert_true(((float *)r.grads[i])[e] == 2 * sums[i][e]);
            }
        }
    }
    for (size_t i = 0; i < r.param_count; i++) {
        free(sums[i]);
    }
    fixture_fini(&f);
    replicated_fini(&r);
}

static void samples_are_divided_as_torch_chunk_does(void **state)
{
    static const struct cddpi_model_spec *const specs[] = {&mlp, &cnn, &resnet20, &tiny};
    struct cddpi_model_spec dropping = mlp;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct job job = {specs[i], 3, 0, 7, {3, 3, 1}};

        run_job(&job);
    }
    dropping.dropout = 0.25; /* by sample: the same on any device */
    run_job(&(struct job){&dropping, 2, 1, 8, {4, 4}});
    run_job(&(struct job){&mlp, 4, 2, 5, {2, 2, 1}});
}

static void few_samples_make_fewer_replicas(void **state)
{
    (void)state;
    run_job(&(struct job){&mlp, 4, 3, 2, {1, 1}});
    run_job(&(struct job){&cnn, 3, 2, 1, {1}});
}

static void gradients_are_those_of_one_device_within_rounding(void **state)
{
    struct job job = {&mlp, 3, 0, 7, {3, 3, 1}};
    struct cddpi_loss_result result;
    struct replicated r;
    struct fixture f;

    (void)state;
    replicated_init(&r, &job);
    assert_true(fixture_init(&f, &mlp, 45, NULL, 0, 7));
    assert_int_equal(fixture_step(&f, 0.25, false), CDDP_OK);
    forward(&r, &f, true, &result);
    backward(&r, false);
    for (size_t i = 0; i < r.param_count; i++) {
        assert_true(relative_difference(f.grads[i], r.grads[i],
                                        cddpi_tensor_elements(&r.params[i])) < 1e-5);
    }
    fixture_fini(&f);
    replicated_fini(&r);
}

/* The copies are made anew in each forward, and statistics of the first device move on. */
static void each_forward_copies_the_first_device(void **state)
{
    struct job job = {&resnet20, 2, 1, 4, {2, 2}};
    struct cddpi_loss_result a, b;
    struct replicated r;
    struct fixture f, first;

    (void)state;
    replicated_init(&r, &job);
    assert_true(fixture_init(&f, &resnet20, 45, NULL, 0, 4));
    assert_true(fixture_init(&first, &resnet20, 45, NULL, 0, 2));
    for (size_t i = 0; i < r.param_count; i++) {
        for (size_t e = 0; e < cddpi_tensor_elements(&r.params[i]); e++) {
            ((float *)r.params[i].data)[e] *= 0.5F;
            ((float *)f.params[i].data)[e] *= 0.5F;
            ((float *)first.params[i].data)[e] *= 0.5F;
        }
    }
    forward(&r, &f, true, &a);
    (void)fixture_loss(&first);
    for (size_t i = 0; i < first.model->buffers.count; i++) {
        size_t count;
        const cddp_param *buffer = cddpi_replicated_buffers(r.model, &count) + i;
        size_t bytes = cddpi_tensor_elements(buffer) * sizeof(float);

        assert_memory_equal(buffer->data, first.model->buffers.items[i].data, bytes);
        memcpy(f.model->buffers.items[i].data, buffer->data, bytes);
    }
    forward(&r, &f, false, &a);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &b), CDDP_OK);
    assert_float_equal(a.loss_sum, b.loss_sum, 1e-5 * fabs(b.loss_sum));
    assert_int_equal(a.correct, b.correct);
    fixture_fini(&first);
    fixture_fini(&f);
    replicated_fini(&r);
}

static struct cddpi_layer_range find(const struct cddpi_model_spec *spec, const char *first,
                                     const char *second)
{
    char *both[] = {(char *)(uintptr_t)first, (char *)(uintptr_t)second};
    struct cddpi_layer_range range = {-1, -1};

    if (cddpi_replicated_layers(spec, both, second != NULL ? 2 : 1, &range) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    return range;
}

static void expect_close(const struct replicated *r, const struct fixture *f, double factor)
{
    for (size_t i = 0; i < r->param_count; i++) {
        size_t elements = cddpi_tensor_elements(&r->params[i]);
        float *own = f->grads[i];

        assert_string_equal(r->params[i].name, f->params[i].name);
        assert_int_equal(cddpi_replicated_param_decays(r->model, i),
                         cddpi_model_param_decays(f->model, i));
        for (size_t e = 0; e < elements; e++) {
            own[e] = (float)(own[e] * factor);
        }
        if (relative_difference(own, r->grads[i], elements) >= 1e-5) {
            fail_msg("the gradient of %s differs by %g", r->params[i].name,
                     relative_difference(own, r->grads[i], elements));
        }
    }
}

/* Everything a whole model has, and each parameter reported once. */
static void run_layers(const struct job *job, struct cddpi_layer_range layers)
{
    bool seen[256] = {false};
    struct cddpi_loss_result result = {0};
    struct replicated r;
    struct fixture f;
    double loss;

    init_layers(&r, job, layers);
    assert_true(fixture_init(&f, job->spec, 45, NULL, 20, job->samples));
    assert_int_equal(r.param_count, f.param_count);
    loss = fixture_loss(&f);
    assert_int_equal(cddpi_model_backward(f.model, 0.25, false, NULL, NULL), CDDP_OK);
    forward(&r, &f, true, &result);
    backward(&r, false);
    assert_float_equal(result.loss_sum, loss, 1e-5 * fabs(loss));
    assert_int_equal(result.count, job->samples * cddpi_model_predictions(f.model));
    assert_int_equal(r.ready, r.param_count);
    for (size_t i = 0; i < r.param_count; i++) {
        seen[cddpi_replicated_ready_order(r.model)[i]] = true;
    }
    for (size_t i = 0; i < r.param_count; i++) {
        assert_true(seen[i]);
    }
    expect_close(&r, &f, 1);
    forward(&r, &f, true, &result);
    backward(&r, true);
    expect_close(&r, &f, 2);
    fixture_fini(&f);
    replicated_fini(&r);
}

static void named_layers_alone_have_copies(void **state)
{
    const struct cddpi_model_spec *const nets[] = {&mlp, &cnn};

    (void)state;
    for (int devices = 2; devices <= 3; devices++) {
        for (size_t i = 0; i < COUNT_OF(nets); i++) {
            struct job job = {nets[i], devices, 0, 7, {0}};

            run_layers(&job, find(nets[i], "0", NULL));
            run_layers(&job, find(nets[i], "fc2", NULL));
        }
        run_layers(&(struct job){&mlp, devices, 0, 7, {0}}, find(&mlp, "fc3", "fc2"));
    }
    /* the table of tokens is the head's and the tail's */
    run_layers(&(struct job){&tiny, 3, 0, 4, {0}}, find(&tiny, "h.0", NULL));
    run_layers(&(struct job){&tiny, 2, 0, 3, {0}}, find(&tiny, "h.0", "h.1"));
    run_layers(&(struct job){&mlp, 3, 0, 2, {0}}, find(&mlp, "fc2", NULL)); /* fewer copies */
}

/* In evaluation it makes no difference, in training the named layers' own samples alone count for
 * their statistics. */
static void statistics_of_other_layers_are_of_all_samples(void **state)
{
    struct cddpi_loss_result a, b;
    struct replicated r;
    struct fixture f;
    size_t count = 0;
    int same = 0;

    (void)state;
    init_layers(&r, &(struct job){&resnet20, 3, 0, 7, {0}}, find(&resnet20, "layer2", NULL));
    assert_true(fixture_init(&f, &resnet20, 45, NULL, 0, 7));
    forward(&r, &f, false, &a);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &b), CDDP_OK);
    assert_float_equal(a.loss_sum, b.loss_sum, 1e-5 * fabs(b.loss_sum));
    forward(&r, &f, true, &a);
    backward(&r, false);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, true, &b), CDDP_OK);
    for (size_t i = 0; i < f.model->buffers.count; i++) {
        const cddp_param *own = cddpi_replicated_buffers(r.model, &count) + i;
        bool before = strstr(own->name, "layer1") != NULL || strncmp(own->name, "bn1", 3) == 0;

        assert_string_equal(own->name, f.model->buffers.items[i].name);
        if (before) {
            assert_memory_equal(own->data, f.model->buffers.items[i].data,
                                cddpi_tensor_elements(own) * sizeof(float));
            same++;
        }
    }
    assert_int_equal(count, f.model->buffers.count);
    assert_true(same > 0);
    fixture_fini(&f);
    replicated_fini(&r);
}

static void names_that_cannot_be_are_told(void **state)
{
    static const struct {
        const struct cddpi_model_spec *spec;
        char *names[2];
        int count;
        const char *says;
    } wrong[] = {
        {&resnet20, {"nothing"}, 1, "nothing"},
        {&resnet20, {"layer2", "layer2.1.conv1"}, 2, "layer \"layer2.1.conv1\" is named twice"},
        {&resnet20,
         {"layer1", "layer3"},
         2,
         "layer \"layer2.0.conv1\" lies between layers that are named, but is not"},
    };
    struct cddpi_layer_range range;
    struct cddpi_replicated *none;
    cddp_devices *devices;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_true(failure_is(
            cddpi_replicated_layers(wrong[i].spec, wrong[i].names, wrong[i].count, &range),
            CDDP_ERR_CONFIG, -1, -1, ""));
        assert_true(last_error_has(wrong[i].says));
    }
    assert_int_equal(cddp_devices_create(names, 2, &devices), CDDP_OK);
    for (int i = 0; i < 2; i++) { /* the first layer, or the last */
        int layers;

        assert_int_equal(cddpi_model_find_layer(&tiny, "0", &layers, &layers), CDDP_OK);
        range = i == 0 ? (struct cddpi_layer_range){0, layers - 1}
                       : (struct cddpi_layer_range){1, layers};
        assert_true(failure_is(cddpi_replicated_create(&tiny, 45, devices, 0, range, &none),
                               CDDP_ERR_CONFIG, -1, -1, ""));
        assert_true(last_error_has("is read by layers with copies and by others"));
    }
    cddp_devices_destroy(devices);
}

static void a_device_that_fails_is_named(void **state)
{
    struct job job = {&tiny, 2, 0, 4, {2, 2}};
    struct cddpi_loss_result result;
    struct replicated r;
    struct fixture f;

    (void)state;
    replicated_init(&r, &job);
    assert_true(fixture_init(&f, &tiny, 45, NULL, 0, 4));
    f.tokens[3 * tiny.context] = 99; /* of the second device */
    assert_true(failure_is(cddpi_replicated_forward(r.model, &f.batch, true, &result),
                           CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_memory_equal(cddp_last_error(), "cpu: ", 5);
    assert_true(last_error_has("99"));
    f.tokens[3 * tiny.context] = 9;
    forward(&r, &f, true, &result);
    backward(&r, false);
    fixture_fini(&f);
    replicated_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_divided_as_torch_chunk_does),
        cmocka_unit_test(few_samples_make_fewer_replicas),
        cmocka_unit_test(gradients_are_those_of_one_device_within_rounding),
        cmocka_unit_test(each_forward_copies_the_first_device),
        cmocka_unit_test(named_layers_alone_have_copies),
        cmocka_unit_test(statistics_of_other_layers_are_of_all_samples),
        cmocka_unit_test(names_that_cannot_be_are_told),
        cmocka_unit_test(a_device_that_fails_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
