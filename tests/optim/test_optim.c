/* test_optim.c - optimizers against PyTorch, their kernels and their state. */
#include "base/alloc.h"
#include "kernels/cpu/cpu_optim.h"
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "optim/optim_impl.h"
#include "support/failure.h"
#include "support/optim_vectors.h"

#include <cddp/checkpoint.h>
#include <float.h>
#include <math.h>

enum { PARAMS_MAX = 4, VALUES_MAX = 5000 };

/* Parameters, buffers for gradients, and flags. */
struct model {
    cddp_param params[PARAMS_MAX];
    bool decays[PARAMS_MAX];
    float data[PARAMS_MAX][VALUES_MAX];
    float grads[PARAMS_MAX][VALUES_MAX];
    void *grad_pointers[PARAMS_MAX];
};

static struct model *new_model(size_t count, const char *const *names, const int64_t *sizes)
{
    struct model *model = calloc(1, sizeof *model);

    for (size_t i = 0; i < count; i++) {
        model->params[i].name = names[i];
        model->params[i].type = CDDP_F32;
        model->params[i].dims = 1;
        model->params[i].shape[0] = sizes[i];
        model->params[i].data = model->data[i];
        model->decays[i] = true;
        model->grad_pointers[i] = model->grads[i];
    }
    return model;
}

/* Some numbers that depend on @p seed, in [-1, 1). */
static void fill(float *values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

static struct model *small_model(void)
{
    static const char *const names[] = {"fc.weight", "fc.bias", "still", "empty"};
    static const int64_t sizes[] = {1037, 5, 8, 0};
    struct model *model = new_model(4, names, sizes);

    for (uint32_t i = 0; i < 4; i++) {
        fill(model->data[i], (size_t)sizes[i], i + 1);
    }
    model->params[2].flags = CDDP_PARAM_FROZEN;
    model->grad_pointers[2] = NULL;
    return model;
}

static void small_grads(struct model *model, uint32_t step)
{
    for (uint32_t i = 0; i < 4; i++) {
        fill(model->grads[i], (size_t)model->params[i].shape[0], 100 * step + i);
    }
}

static const struct cddpi_optim_spec sgd_spec = {
    .type = CDDPI_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
static const struct cddpi_optim_spec adamw_spec = {
    .type = CDDPI_OPTIM_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static void read_floats(const json_t *array, float *out)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        out[i] = (float)json_number_value(json_array_get(array, i));
    }
}

static struct cddpi_optim_spec read_spec(const json_t *row)
{
    const json_t *betas = json_object_get(row, "betas");
    struct cddpi_optim_spec spec = {
        .type = strcmp(json_string_value(json_object_get(row, "type")), "sgd") == 0
                    ? CDDPI_OPTIM_SGD
                    : CDDPI_OPTIM_ADAMW,
        .momentum = number_or(row, "momentum", 0.0),
        .nesterov = json_is_true(json_object_get(row, "nesterov")),
        .weight_decay = number_or(row, "weight_decay", 0.0),
        .beta1 = betas != NULL ? json_number_value(json_array_get(betas, 0)) : 0.9,
        .beta2 = betas != NULL ? json_number_value(json_array_get(betas, 1)) : 0.999,
        .epsilon = number_or(row, "eps", 1e-8),
    };

    return spec;
}

static void compare_params(const struct model *model, const json_t *expected, const char *name,
                           int step)
{
    for (size_t i = 0; i < 2; i++) {
        float values[64];

        read_floats(json_array_get(expected, i), values);
        for (size_t k = 0; k < (size_t)model->params[i].shape[0]; k++) {
            double difference = fabs((double)model->data[i][k] - (double)values[k]);

            /* relative to the element, or to 0.1 where updates have nearly cancelled it */
            if (!(difference <= 1e-6 * fmax(fabs((double)values[k]), 0.1))) {
                fail_msg("%s, step %d, tensor %zu[%zu]: %.9g, but PyTorch has %.9g", name, step, i,
                         k, (double)model->data[i][k], (double)values[k]);
            }
        }
    }
}

static void run_case(const json_t *root, const json_t *row)
{
    static const char *const names[] = {"w", "b"};
    static const int64_t sizes[] = {35, 3};
    const json_t *kept = json_object_get(root, "kept");
    const json_t *grads = json_object_get(root, "grads");
    const json_t *decays = json_object_get(row, "decays");
    const char *name = json_string_value(json_object_get(row, "name"));
    struct cddpi_optim_spec spec = read_spec(row);
    struct model *model = new_model(2, names, sizes);
    struct cddpi_optim *optim;
    size_t next = 0;

    for (size_t i = 0; i < 2; i++) {
        read_floats(json_array_get(json_object_get(root, "initial"), i), model->data[i]);
        model->decays[i] = decays == NULL || json_is_true(json_array_get(decays, i));
    }
    assert_int_equal(cddpi_optim_create(&spec, model->params, model->decays, 2, NULL, NULL, &optim),
                     CDDP_OK);
    for (int step = 0; step < (int)json_array_size(grads); step++) {
        const json_t *both = json_array_get(grads, (size_t)step);

        read_floats(json_array_get(both, 0), model->grads[0]);
        read_floats(json_array_get(both, 1), model->grads[1]);
        model->grad_pointers[1] = step < number_or(row, "b_begins", 0.0) ? NULL : model->grads[1];
        cddpi_optim_step(optim, model->grad_pointers, number_or(row, "lr", 0.0), 1.0, NULL);
        if (json_integer_value(json_array_get(kept, next)) == step + 1) {
            compare_params(model, json_array_get(json_object_get(row, "params"), next), name,
                           step + 1);
            next++;
        }
    }
    assert_int_equal(next, json_array_size(kept));
    cddpi_optim_destroy(optim);
    free(model);
}

/* Not bit by bit: PyTorch's own kernels contract products and sums where the processor can, and its
 * running mean is a lerp whose form depends on its weight. Ours do neither, so that all processors
 * agree. */
static void updates_are_those_of_pytorch(void **state)
{
    json_t *root = read_vectors();
    const json_t *cases = json_object_get(root, "cases");

    (void)state;
    assert_int_equal(json_array_size(cases), 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        run_case(root, json_array_get(cases, i));
    }
    json_decref(root);
}

/* Run each kernel of @p kernels once over data that starts unaligned and ends in the middle of a
 * vector; the results one after the other in @p out. */
static void run_kernels(const struct cddpi_optim_kernels *kernels, float *out, double *out_sum)
{
    enum { N = 1003 };
    static float g[N + 1];
    const struct cddpi_sgd_step plain = {0.1f, 0.9f, 0.01f, 0.7f, false};
    const struct cddpi_sgd_step nesterov = {0.1f, 0.9f, 0.01f, 0.7f, true};
    const struct cddpi_adamw_step adamw = {0.999f, 0.1f, 0.999f, 0.001f, 0.02f, 0.05f, 1e-8f, 0.7f};

    for (uint32_t i = 0; i < 8; i++) {
        fill(out + i * N, N, i + 1);
    }
    for (size_t i = 0; i < N; i++) {
        out[7 * N + i] = fabsf(out[7 * N + i]);
    }
    fill(g, N + 1, 77);
    kernels->sgd(out, g + 1, NULL, N, &plain);
    kernels->sgd(out + N, g + 1, out + 2 * N, N, &plain);
    kernels->sgd(out + 3 * N, g + 1, out + 4 * N, N, &nesterov);
    kernels->adamw(out + 5 * N, g + 1, out + 6 * N, out + 7 * N, N, &adamw);
    {
        struct cddpi_exact_sum sum = {{0}};

        kernels->add_squares(g + 1, N, &sum);
        *out_sum = cddpi_exact_value(&sum);
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    const struct cddpi_optim_kernels *tables[3];
    size_t count = cddpi_optim_kernels_all(tables);
    static float expected[8 * 1003];
    static float present[8 * 1003];
    double expected_sum;
    double sum;

    (void)state;
    run_kernels(tables[0], expected, &expected_sum);
    for (size_t i = 1; i < count; i++) {
        print_message("comparing %s with %s\n", tables[i]->name, tables[0]->name);
        run_kernels(tables[i], present, &sum);
        assert_memory_equal(present, expected, sizeof expected);
        assert_memory_equal(&sum, &expected_sum, sizeof sum);
    }
    assert_ptr_equal(cddpi_optim_kernels(), tables[count - 1]);
}

/* As the training loop finds it. */
static double norm_of(struct model *model)
{
    struct cddpi_optim_spec spec = {.type = CDDPI_OPTIM_SGD};
    struct cddpi_exact_sum sum = {{0}};
    struct cddpi_optim *optim;

    assert_int_equal(cddpi_optim_create(&spec, model->params, NULL, 4, NULL, NULL, &optim),
                     CDDP_OK);
    cddpi_optim_add_squares(optim, model->grad_pointers, &sum);
    cddpi_optim_destroy(optim);
    return sqrt(cddpi_exact_value(&sum));
}

static void the_norm_is_that_of_all_gradients(void **state)
{
    struct model *model = small_model();
    double sum = 0.0;

    (void)state;
    small_grads(model, 3);
    for (size_t i = 0; i < 1037; i++) {
        sum += (double)model->grads[0][i] * (double)model->grads[0][i];
    }
    model->grad_pointers[1] = NULL;
    model->grad_pointers[2] = model->grads[2]; /* frozen all the same */
    assert_float_equal(norm_of(model), sqrt(sum), 1e-12);
    /* large values do not overflow, as their squares would in float32 */
    model->grads[0][0] = 1e30f;
    assert_float_equal(norm_of(model) / 1e30, 1.0, 1e-6);
    free(model);
}

static void a_gradient_is_scaled_on_the_way(void **state)
{
    struct model *a = small_model();
    struct model *b = small_model();
    struct cddpi_optim *optim_a;
    struct cddpi_optim *optim_b;

    (void)state;
    assert_int_equal(cddpi_optim_create(&sgd_spec, a->params, NULL, 4, NULL, NULL, &optim_a),
                     CDDP_OK);
    assert_int_equal(cddpi_optim_create(&sgd_spec, b->params, NULL, 4, NULL, NULL, &optim_b),
                     CDDP_OK);
    small_grads(a, 1);
    small_grads(b, 1);
    for (size_t i = 0; i < 1037; i++) {
        b->grads[0][i] *= 0.25f;
    }
    for (size_t i = 0; i < 5; i++) {
        b->grads[1][i] *= 0.25f;
    }
    cddpi_optim_step(optim_a, a->grad_pointers, 0.1, 0.25, NULL);
    cddpi_optim_step(optim_b, b->grad_pointers, 0.1, 1.0, NULL);
    assert_memory_equal(a->data, b->data, sizeof a->data);
    cddpi_optim_destroy(optim_a);
    cddpi_optim_destroy(optim_b);
    free(a);
    free(b);
}

static void frozen_parameters_and_those_without_a_gradient_keep_still(void **state)
{
    const struct cddpi_optim_spec *const specs[] = {&sgd_spec, &adamw_spec};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct model *model = small_model();
        struct model *before = small_model();
        struct cddpi_optim *optim;

        assert_int_equal(cddpi_optim_create(specs[i], model->params, NULL, 4, NULL, NULL, &optim),
                         CDDP_OK);
        small_grads(model, 1);
        model->grad_pointers[1] = NULL;
        model->grad_pointers[2] = model->grads[2];
        cddpi_optim_step(optim, model->grad_pointers, 0.1, 1.0, NULL);
        assert_memory_not_equal(model->data[0], before->data[0], sizeof model->data[0]);
        assert_memory_equal(model->data[1], before->data[1], sizeof model->data[1]);
        assert_memory_equal(model->data[2], before->data[2], sizeof model->data[2]);
        cddpi_optim_destroy(optim);
        free(model);
        free(before);
    }
}

static void decay_can_be_kept_from_some_parameters_or_not(void **state)
{
    struct cddpi_optim_spec spec = {.type = CDDPI_OPTIM_SGD, .weight_decay = 0.5};

    (void)state;
    for (int all = 0; all < 2; all++) {
        struct model *model = small_model();
        struct model *before = small_model();
        struct cddpi_optim *optim;

        spec.decay_all = all == 1;
        model->decays[1] = false;
        assert_int_equal(
            cddpi_optim_create(&spec, model->params, model->decays, 4, NULL, NULL, &optim),
            CDDP_OK);
        cddpi_optim_step(optim, model->grad_pointers, 1.0, 1.0, NULL); /* gradients are 0 */
        assert_float_equal(model->data[0][0], 0.5 * (double)before->data[0][0], 0);
        assert_float_equal(model->data[1][0], (all ? 0.5 : 1.0) * (double)before->data[1][0], 0);
        cddpi_optim_destroy(optim);
        free(model);
        free(before);
    }
}

static void run_steps(struct cddpi_optim *optim, struct model *model, uint32_t from, uint32_t to)
{
    for (uint32_t step = from; step < to; step++) {
        small_grads(model, step);
        model->grad_pointers[1] = step % 3 == 1 ? NULL : model->grads[1];
        cddpi_optim_step(optim, model->grad_pointers, 0.01, 1.0, NULL);
    }
}

static void resume_gives_the_same_bits(const struct cddpi_optim_spec *spec, const char *path)
{
    struct model *straight = small_model();
    struct model *resumed = small_model();
    struct cddpi_optim *optim;
    const cddp_param *tensors;
    cddp_tensor written[8];
    size_t count;

    assert_int_equal(cddpi_optim_create(spec, straight->params, NULL, 4, NULL, NULL, &optim),
                     CDDP_OK);
    run_steps(optim, straight, 0, 7);
    memcpy(resumed->data, straight->data, sizeof resumed->data);
    tensors = cddpi_optim_tensors(optim, &count);
    assert_true(count <= 8);
    assert_int_equal(cddp_tensors_of(tensors, count, written), CDDP_OK);
    assert_int_equal(cddp_safetensors_write(path, written, count, NULL), CDDP_OK);
    run_steps(optim, straight, 7, 12);
    cddpi_optim_destroy(optim);

    assert_int_equal(cddpi_optim_create(spec, resumed->params, NULL, 4, NULL, NULL, &optim),
                     CDDP_OK);
    tensors = cddpi_optim_tensors(optim, &count);
    assert_int_equal(cddp_safetensors_load(path, tensors, count), CDDP_OK);
    assert_string_equal(tensors[0].name, "step");
    assert_int_equal(*(int64_t *)tensors[0].data, 7);
    run_steps(optim, resumed, 7, 12);
    cddpi_optim_destroy(optim);
    assert_memory_equal(straight->data, resumed->data, sizeof straight->data);
    free(straight);
    free(resumed);
}

static void saved_state_continues_bit_by_bit(void **state)
{
    const struct cddpi_optim_spec plain = {.type = CDDPI_OPTIM_SGD};
    char *dir = support_mkdtemp();
    char path[5000];

    (void)state;
    snprintf(path, sizeof path, "%s/optimizer.safetensors", dir);
    resume_gives_the_same_bits(&plain, path);
    resume_gives_the_same_bits(&sgd_spec, path);
    resume_gives_the_same_bits(&adamw_spec, path);
    support_rmdir(dir);
}

static void state_tensors_are_named_after_their_parameters(void **state)
{
    struct model *model = small_model();
    struct cddpi_optim *optim;
    const cddp_param *tensors;
    size_t count;

    (void)state;
    assert_int_equal(cddpi_optim_create(&adamw_spec, model->params, NULL, 4, NULL, NULL, &optim),
                     CDDP_OK);
    tensors = cddpi_optim_tensors(optim, &count);
    assert_int_equal(count, 8); /* two counters, two moments of three parameters */
    assert_string_equal(tensors[0].name, "step");
    assert_int_equal(tensors[0].dims, 0);
    assert_string_equal(tensors[1].name, "param_steps");
    assert_string_equal(tensors[2].name, "exp_avg.fc.weight");
    assert_string_equal(tensors[3].name, "exp_avg_sq.fc.weight");
    assert_int_equal(tensors[3].shape[0], 1037);
    assert_int_equal((uintptr_t)tensors[3].data % 64, 0);
    assert_string_equal(tensors[7].name, "exp_avg_sq.empty");
    cddpi_optim_destroy(optim);
    free(model);
}

static void a_senseless_optimizer_is_refused(void **state)
{
    static const struct cddpi_optim_spec bad[] = {
        {.type = CDDPI_OPTIM_SGD, .momentum = -0.1},
        {.type = CDDPI_OPTIM_SGD, .momentum = NAN},
        {.type = CDDPI_OPTIM_SGD, .nesterov = true},
        {.type = CDDPI_OPTIM_SGD, .weight_decay = -1},
        {.type = CDDPI_OPTIM_ADAMW, .beta1 = 1.0},
        {.type = CDDPI_OPTIM_ADAMW, .beta2 = -0.5},
        {.type = CDDPI_OPTIM_ADAMW, .epsilon = INFINITY},
        {.type = (enum cddpi_optim_type)9},
    };
    struct model *model = small_model();
    struct cddpi_optim *optim = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(cddpi_optim_create(&bad[i], model->params, NULL, 4, NULL, NULL, &optim),
                         CDDP_ERR_ARGUMENT);
    }
    model->params[1].type = CDDP_BF16;
    assert_true(
        failure_is(cddpi_optim_create(&sgd_spec, model->params, NULL, 4, NULL, NULL, &optim),
                   CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("fc.bias"));
    assert_null(optim);
    free(model);
}

static void without_memory_an_optimizer_is_refused_and_nothing_leaks(void **state)
{
    struct model *model = small_model();
    struct cddpi_optim *optim = NULL;
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned nth;

    (void)state;
    for (nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddpi_optim_create(&adamw_spec, model->params, NULL, 4, NULL, NULL, &optim);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    cddpi_alloc_fail_nth(0);
    assert_int_equal(nth - 2, 14); /* 6 blocks and 8 names, each of which has failed once */
    cddpi_optim_destroy(optim);
    free(model);
}

static void powers_are_those_of_the_c_library(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 3000; n = n * 3 / 2 + 1) {
        double wanted = pow(0.999, (double)n);

        assert_float_equal(cddpi_power(0.999, n) / wanted, 1.0, 1e-12);
    }
    assert_float_equal(cddpi_power(0.0, 0), 1.0, 0);
    assert_float_equal(cddpi_power(0.5, INT64_MAX), 0.0, 0);
}

static void one_gradient_that_is_no_number_or_infinite_forbids_the_update(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    struct model *model = small_model();
    struct cddpi_loss_scale scale;
    double grad_scale = 0;

    (void)state;
    cddpi_loss_scale_init(&scale);
    small_grads(model, 1);
    model->grads[0][5] = FLT_MAX; /* large, but a number */
    assert_true(cddpi_loss_scale_allows(&scale, norm_of(model), &grad_scale));
    for (size_t i = 0; i < 3; i++) {
        model->grads[0][1036] = bad[i];
        assert_false(cddpi_loss_scale_allows(&scale, norm_of(model), &grad_scale));
    }
    free(model);
}

static void a_loss_scale_falls_to_one_and_helps_until_enough_steps_were_skipped(void **state)
{
    struct cddpi_loss_scale scale;

    (void)state;
    cddpi_loss_scale_init(&scale);
    for (int step = 1; step <= 60; step++) {
        cddpi_loss_scale_update(&scale, false);
        assert_true(scale.scale == (step < 16 ? ldexpf(1, 16 - step) : 1));
        assert_int_equal(scale.good_steps, -step);
        assert_true(cddpi_loss_scale_helps(&scale) == (step < 50));
    }
    cddpi_loss_scale_update(&scale, true);
    assert_int_equal(scale.good_steps, 1);
    assert_true(cddpi_loss_scale_helps(&scale));
    for (int step = 1; step <= 49; step++) {
        cddpi_loss_scale_update(&scale, false);
    }
    assert_true(cddpi_loss_scale_helps(&scale));
    assert_int_equal(scale.skipped, 60 + 49);
    scale.scale = 0x1p60F; /* there is much left to be tried */
    for (int step = 1; step < 60; step++) {
        cddpi_loss_scale_update(&scale, false);
        assert_true(cddpi_loss_scale_helps(&scale));
    }
    cddpi_loss_scale_update(&scale, false);
    assert_false(cddpi_loss_scale_helps(&scale));
    scale.scale = 0.25F; /* of a checkpoint that knew no bound */
    cddpi_loss_scale_update(&scale, false);
    assert_true(scale.scale == 0.25F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_pytorch),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(the_norm_is_that_of_all_gradients),
        cmocka_unit_test(a_gradient_is_scaled_on_the_way),
        cmocka_unit_test(frozen_parameters_and_those_without_a_gradient_keep_still),
        cmocka_unit_test(decay_can_be_kept_from_some_parameters_or_not),
        cmocka_unit_test(saved_state_continues_bit_by_bit),
        cmocka_unit_test(state_tensors_are_named_after_their_parameters),
        cmocka_unit_test(a_senseless_optimizer_is_refused),
        cmocka_unit_test(without_memory_an_optimizer_is_refused_and_nothing_leaks),
        cmocka_unit_test(one_gradient_that_is_no_number_or_infinite_forbids_the_update),
        cmocka_unit_test(a_loss_scale_falls_to_one_and_helps_until_enough_steps_were_skipped),
        cmocka_unit_test(powers_are_those_of_the_c_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
