/* nn_cuda.c - a model on a CUDA device and the same model on the CPU, for tests. */
#include "support/nn_cuda.h"

void device_check(cddp_status status)
{
    if (status != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

void *device_alloc(struct cddpi_device *on, size_t bytes)
{
    void *memory = NULL;

    device_check(on->ops->alloc(on, bytes, "a test", &memory));
    return memory;
}

void device_put(struct cddpi_device *on, void *to, const void *from, size_t bytes)
{
    device_check(on->ops->copy(on, CDDPI_STREAM_COMPUTE, to, from, bytes));
    device_check(on->ops->finish(on, 60000));
}

void *device_get(struct cddpi_device *on, const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);

    device_check(on->ops->copy(on, CDDPI_STREAM_COMPUTE, to, from, bytes));
    device_check(on->ops->finish(on, 60000));
    return to;
}

static void *device_own(struct device_fixture *f, const void *from, size_t bytes)
{
    void *memory;

    if (from == NULL || bytes == 0) {
        return NULL;
    }
    memory = device_alloc(f->device, bytes);
    device_put(f->device, memory, from, bytes);
    f->owned[f->owned_count++] = memory;
    return memory;
}

static void device_release_batch(struct device_fixture *f)
{
    while (f->owned_count > 0) {
        f->device->ops->release(f->device, f->owned[--f->owned_count]);
    }
}

void device_take_batch(struct device_fixture *f)
{
    const struct cddpi_batch *from = &f->host.batch;
    size_t samples = (size_t)from->count;
    size_t predictions = samples * (size_t)cddpi_model_predictions(f->model);
    size_t words = cddpi_model_draw_words(f->model, from->count);
    uint32_t *draws = malloc((words + 1) * sizeof *draws);

    device_release_batch(f);
    cddpi_model_draws(f->model, from->step, from->sample_ids, from->count, draws);
    f->batch = (struct cddpi_batch){
        .input = device_own(f, from->input, samples * f->host.sample_elements * sizeof(float)),
        .tokens = device_own(f, from->tokens, predictions * sizeof(int32_t)),
        .label = device_own(f, from->label, predictions * sizeof(int32_t)),
        .draws = device_own(f, draws, words * sizeof *draws),
        .count = from->count,
        .step = from->step,
    };
    free(draws);
}

size_t param_bytes(const struct device_fixture *f, size_t i)
{
    return cddpi_tensor_elements(&f->host.params[i]) * sizeof(float);
}

static void device_fixture_init(struct device_fixture *f, struct cddpi_device *on,
                                const struct cddpi_model_spec *spec, int count)
{
    struct cddpi_model_spec there = *spec;
    struct cddpi_model_spec here = *spec;
    size_t param_count;

    memset(f, 0, sizeof *f);
    here.precision = CDDPI_PRECISION_F32;
    if (!fixture_init(&f->host, &here, 8, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
    f->device = on;
    there.device = on;
    device_check(cddpi_model_create(&there, 8, NULL, &f->model));
    f->params = cddpi_model_params(f->model, &param_count);
    assert_int_equal(param_count, f->host.param_count);
    f->grads = calloc(param_count, sizeof *f->grads);
    for (size_t i = 0; i < param_count; i++) {
        f->grads[i] = device_alloc(on, param_bytes(f, i));
        device_check(on->ops->clear(on, CDDPI_STREAM_COMPUTE, f->grads[i], param_bytes(f, i)));
    }
    cddpi_model_bind_grads(f->model, f->grads);
    device_take_batch(f);
}

void device_fixture_fini(struct device_fixture *f)
{
    cddpi_model_destroy(f->model);
    device_release_batch(f);
    for (size_t i = 0; i < f->host.param_count; i++) {
        f->device->ops->release(f->device, f->grads[i]);
    }
    free(f->grads);
    fixture_fini(&f->host);
}

struct cddpi_loss_result device_result(struct device_fixture *f, int count)
{
    struct cddpi_loss_result result = {0};

    device_check(cddpi_model_collect(f->model, count));
    device_check(cddpi_model_result(f->model, &result));
    return result;
}

void device_step(struct device_fixture *f, double scale, bool accumulate)
{
    device_check(cddpi_model_forward(f->model, &f->batch, true, NULL));
    device_check(cddpi_model_backward(f->model, scale, accumulate, NULL, NULL));
}

void distance_add_array(struct distance *distance, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double difference = (double)a[i] - (double)b[i];

        distance->difference += difference * difference;
        distance->norm += (double)a[i] * (double)a[i];
    }
}

double distance_of(struct distance distance)
{
    return sqrt(distance.difference) / (sqrt(distance.norm) + 1e-30);
}

double grad_distance(struct device_fixture *f, size_t i)
{
    struct distance distance = {0};
    float *there = device_get(f->device, f->grads[i], param_bytes(f, i));

    distance_add_array(&distance, f->host.grads[i], there,
                       cddpi_tensor_elements(&f->host.params[i]));
    free(there);
    return distance_of(distance);
}

double all_grads_distance(struct device_fixture *f)
{
    struct distance distance = {0};

    for (size_t i = 0; i < f->host.param_count; i++) {
        float *there = device_get(f->device, f->grads[i], param_bytes(f, i));

        distance_add_array(&distance, f->host.grads[i], there,
                           cddpi_tensor_elements(&f->host.params[i]));
        free(there);
    }
    return distance_of(distance);
}

char *all_grads(struct device_fixture *f, size_t *out_bytes)
{
    size_t bytes = 0;
    char *all;

    for (size_t i = 0; i < f->host.param_count; i++) {
        bytes += param_bytes(f, i);
    }
    all = malloc(bytes);
    bytes = 0;
    for (size_t i = 0; i < f->host.param_count; i++) {
        char *one = device_get(f->device, f->grads[i], param_bytes(f, i));

        memcpy(all + bytes, one, param_bytes(f, i));
        bytes += param_bytes(f, i);
        free(one);
    }
    *out_bytes = bytes;
    return all;
}

struct cddpi_device *device;

void device_setup(struct device_fixture *f, const struct cddpi_model_spec *spec,
                  enum cddpi_precision precision, int count)
{
    struct cddpi_model_spec given = *spec;

    given.precision = precision;
    device_fixture_init(f, device, &given, count);
}

void expect_below(const char *what, const char *name, enum cddpi_precision precision, double is,
                  double bound)
{
    static const char *const precisions[] = {"f32", "bf16", "fp16"};

    if (getenv("CDDP_TEST_SHOW") != NULL) {
        fprintf(stderr, "%-28s %-5s %-9s %.2e of %.2e\n", name, precisions[precision], what, is,
                bound);
    }
    if (!(is <= bound)) {
        fail_msg("%s, %s: the %s is off by %.3g; %.3g is allowed", name, precisions[precision],
                 what, is, bound);
    }
}

int open_device(void)
{
    if (cddpi_device_open("cuda", 0, 1, 0, 1, true, &device) != CDDP_OK) {
        printf("skipped: %s\n", cddp_last_error());
        return -1;
    }
    return 0;
}

int close_device(void **state)
{
    (void)state;
    cddpi_device_close(device);
    return 0;
}
