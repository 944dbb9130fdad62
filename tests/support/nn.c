/* nn.c - models with memory for their gradients and a batch of synthetic data, for tests. */
#include "support/nn.h"

float test_number(uint32_t stream, uint64_t element)
{
    struct cddpi_philox philox = cddpi_philox_stream(7, CDDPI_RANDOM_TEST, stream);
    uint32_t words[4];

    cddpi_philox4(&philox, element / 4, words);
    return 2 * cddpi_uniform01(words[element % 4]) - 1;
}

static int32_t fixture_token(const struct fixture *f, int sample, int t)
{
    return (sample * 31 + t * 7 + t * t) % f->model->classes;
}

void fixture_sequences(struct fixture *f, int first, int count)
{
    int context = cddpi_model_predictions(f->model);
    size_t elements = (size_t)(count + 1) * (size_t)context;

    free(f->tokens);
    free(f->label);
    free(f->ids);
    f->tokens = malloc(elements * sizeof *f->tokens);
    f->label = malloc(elements * sizeof *f->label);
    f->ids = malloc((size_t)(count + 1) * sizeof *f->ids);
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < context; t++) {
            f->tokens[i * context + t] = fixture_token(f, first + i, t);
            f->label[i * context + t] = fixture_token(f, first + i, t + 1);
        }
        f->ids[i] = (uint64_t)(first + i);
    }
    f->batch = (struct cddpi_batch){
        .tokens = f->tokens, .label = f->label, .count = count, .step = 3, .sample_ids = f->ids};
}

/* Real targets, which differ from all outputs. */
static void fixture_targets(struct fixture *f, int first, int sample)
{
    float *targets = (float *)f->label;

    for (int c = 0; c < f->model->classes; c++) {
        int element = sample * f->model->classes + c;

        targets[element] = 3 * test_number(2, (uint64_t)(first * f->model->classes + element));
    }
}

void fixture_batch(struct fixture *f, int first, int count)
{
    size_t elements = f->sample_elements;
    int labels = f->model->classes > 1 ? f->model->classes : 2;

    free(f->input);
    free(f->label);
    free(f->ids);
    f->input = malloc((size_t)(count + 1) * elements * sizeof *f->input);
    f->label = malloc((size_t)(count + 1) * (size_t)cddpi_model_labels(f->model) *
                      sizeof *f->label);
    f->ids = malloc((size_t)(count + 1) * sizeof *f->ids);
    for (int i = 0; i < count; i++) {
        for (size_t e = 0; e < elements; e++) {
            f->input[(size_t)i * elements + e] = test_number(1,
                                                             (uint64_t)(first + i) * elements + e);
        }
        if (f->model->real_targets) {
            fixture_targets(f, first, i);
        } else {
            f->label[i] = (first + i) * 7 % 5 % labels;
        }
        f->ids[i] = (uint64_t)(first + i);
    }
    f->batch = (struct cddpi_batch){
        .input = f->input, .label = f->label, .count = count, .step = 3, .sample_ids = f->ids};
}

bool fixture_init(struct fixture *f, const struct cddpi_model_spec *spec, uint64_t seed,
                  cddp_group *group, int first, int count)
{
    memset(f, 0, sizeof *f);
    if (cddpi_model_create(spec, seed, group, &f->model) != CDDP_OK) {
        return false;
    }
    f->sample_elements = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    f->params = cddpi_model_params(f->model, &f->param_count);
    f->grads = calloc(f->param_count, sizeof *f->grads);
    for (size_t i = 0; i < f->param_count; i++) {
        f->grads[i] = calloc(cddpi_tensor_elements(&f->params[i]), sizeof(float));
    }
    cddpi_model_bind_grads(f->model, f->grads);
    if (spec->vocab > 0) {
        fixture_sequences(f, first, count);
    } else {
        fixture_batch(f, first, count);
    }
    return true;
}

void fixture_fini(struct fixture *f)
{
    for (size_t i = 0; i < f->param_count; i++) {
        free(f->grads[i]);
    }
    free(f->grads);
    free(f->input);
    free(f->tokens);
    free(f->label);
    free(f->ids);
    cddpi_model_destroy(f->model);
}

double fixture_loss(struct fixture *f)
{
    struct cddpi_loss_result result = {0};
    cddp_status status = cddpi_model_forward(f->model, &f->batch, true, &result);

    if (status != CDDP_OK) {
        fprintf(stderr, "forward: %s\n", cddp_last_error());
        return NAN;
    }
    return result.loss_sum;
}

cddp_status fixture_step(struct fixture *f, double scale, bool accumulate)
{
    struct cddpi_loss_result result;
    cddp_status status = cddpi_model_forward(f->model, &f->batch, true, &result);

    return status == CDDP_OK ? cddpi_model_backward(f->model, scale, accumulate, NULL, NULL)
                             : status;
}

double difference_over(const float *a, const float *b, size_t count, double floor)
{
    double largest = floor;
    double difference = 0;

    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
        if (!isfinite(a[i]) || !isfinite(b[i])) {
            return INFINITY;
        }
    }
    return difference / largest;
}

double relative_difference(const float *a, const float *b, size_t count)
{
    return difference_over(a, b, count, 1e-30);
}

void assert_survives_want_of_memory(const struct cddpi_model_spec *spec, unsigned least)
{
    unsigned nth = 0;
    cddp_status status;

    do {
        struct cddpi_model *model = NULL;

        cddpi_alloc_fail_nth(++nth);
        status = cddpi_model_create(spec, 1, NULL, &model);
        if (status == CDDP_OK) {
            status = cddpi_model_prepare(model, 2, true);
        }
        cddpi_alloc_fail_nth(0);
        cddpi_model_destroy(model);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    } while (status != CDDP_OK && nth < 1000);
    assert_true(nth > least);
    assert_int_equal(status, CDDP_OK);
}

bool nn_arena_is_valid(const struct cddpi_arena *arena)
{
    for (int i = 0; i < arena->count; i++) {
        const struct cddpi_arena_buffer *a = &arena->buffers[i];

        if (a->offset % CDDPI_ALIGNMENT != 0 || a->offset + a->bytes > arena->bytes[a->region]) {
            return false;
        }
        for (int j = 0; j < i; j++) {
            const struct cddpi_arena_buffer *b = &arena->buffers[j];

            if (a->root == i && b->root == j && a->region == b->region && a->first <= b->last &&
                b->first <= a->last && a->offset < b->offset + b->bytes &&
                b->offset < a->offset + a->bytes) {
                return false;
            }
        }
    }
    return true;
}

size_t nn_arena_sum(const struct cddpi_arena *arena)
{
    size_t sum = 0;

    for (int i = 0; i < arena->count; i++) {
        sum += arena->buffers[i].bytes;
    }
    return sum;
}
