/* test_cuda_update.c - optimizers' updates on a CUDA device, bit by bit against the processor's;
 * sums of squares, clipping, loss scales. */
#include "cuda_support.h"
#include "kernels/cpu/optim.h"
#include "kernels/cpu/reduce.h"
#include "optim/impl.h"
#include "optim/loss_scale.h"

enum { TENSORS = 8, STEPS = 4 };

static const size_t counts[TENSORS] = {1, 3, 17, 4096, 16384, 16385, 40003, 8};

/* One tensor, here and there; there all of it may begin an element late. */
struct tensor {
    size_t count;
    bool decays;
    float *p, *g, *m, *v;
    void *memory[5];
    struct cddpi_cuda_slot slot;
};

struct model {
    cddp_type copy_type;
    struct tensor tensors[TENSORS];
    void *table;
    struct cddpi_cuda_tensors made;
    double *lr;
};

static float *some(uint32_t stream, size_t count, float scale)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = scale * test_number(stream, i);
    }
    return x;
}

static void *placed(void **out_memory, const void *from, size_t bytes, size_t late)
{
    *out_memory = cuda_alloc(bytes + late);
    if (from != NULL) {
        cuda_copy((char *)*out_memory + late, from, bytes);
    }
    return (char *)*out_memory + late;
}

static void tensor_make(struct tensor *t, uint32_t i, cddp_type copy_type, bool adamw)
{
    size_t late = i == 3 ? sizeof(float) : 0; /* one that is not aligned */
    size_t bytes = counts[i] * sizeof(float);
    const int64_t none = 0;

    t->count = counts[i];
    t->decays = i % 2 == 0;
    t->p = some(10 * i + 1, t->count, 1);
    t->g = some(10 * i + 2, t->count, 0.1f);
    t->m = calloc(t->count, sizeof(float));
    t->v = calloc(t->count, sizeof(float));
    t->slot = (struct cddpi_cuda_slot){.count = t->count, .decays = t->decays};
    t->slot.param = placed(&t->memory[0], t->p, bytes, late);
    t->slot.grad = placed(&t->memory[1], t->g, bytes, late);
    t->slot.first = placed(&t->memory[2], t->m, bytes, late);
    t->slot.second = placed(&t->memory[3], t->v, bytes, late);
    if (i != 1) { /* one has no copy */
        t->slot.copy = placed(&t->memory[4], NULL, t->count * cddp_type_bytes(copy_type), 0);
    }
    t->slot.steps = adamw ? cuda_upload(&none, sizeof none) : NULL;
}

static void make(struct model *model, cddp_type copy_type, bool adamw)
{
    struct cddpi_cuda_slot slots[TENSORS];
    double lr = 0;

    *model = (struct model){.copy_type = copy_type};
    for (uint32_t i = 0; i < TENSORS; i++) {
        tensor_make(&model->tensors[i], i, copy_type, adamw);
        slots[i] = model->tensors[i].slot;
    }
    model->table = cuda_alloc(cuda->kernels->tensors_bytes(slots, TENSORS));
    cuda_ok(cuda->kernels->tensors(cuda, slots, TENSORS, model->table, &model->made));
    model->lr = cuda_upload(&lr, sizeof lr);
}

static void unmake(struct model *model)
{
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &model->tensors[i];

        free(t->p);
        free(t->g);
        free(t->m);
        free(t->v);
        for (int k = 0; k < 5; k++) {
            cuda_release(t->memory[k]);
        }
        cuda_release(t->slot.steps);
    }
    cuda_release(model->table);
    cuda_release(model->lr);
}

static void next_grads(struct model *model, uint32_t step)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        struct tensor *t = &model->tensors[i];

        free(t->g);
        t->g = some(1000 * step + i, t->count, 0.1f);
        cuda_copy((void *)(uintptr_t)t->slot.grad, t->g, t->count * sizeof(float));
    }
}

/* What the processor does in step @p step, the first being 1. */
static void update_here(struct model *model, const struct cddpi_cuda_update *u, double lr,
                        float grad_scale, int64_t step)
{
    const struct cddpi_optim_kernels *kernels = cddpi_optim_kernels();

    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &model->tensors[i];

        if (u->adamw) {
            const struct cddpi_adamw_step s = {
                .keep = t->decays ? (float)(1.0 - lr * u->weight_decay) : 1.0f,
                .beta1_left = (float)(1.0 - u->beta1),
                .beta2 = (float)u->beta2,
                .beta2_left = (float)(1.0 - u->beta2),
                .step_size = (float)(lr / (1.0 - cddpi_power(u->beta1, step))),
                .correction2 = (float)sqrt(1.0 - cddpi_power(u->beta2, step)),
                .epsilon = (float)u->epsilon,
                .grad_scale = grad_scale};

            kernels->adamw(t->p, t->g, t->m, t->v, t->count, &s);
        } else {
            const struct cddpi_sgd_step s = {.lr = (float)lr,
                                             .momentum = (float)u->momentum,
                                             .weight_decay = t->decays ? (float)u->weight_decay
                                                                       : 0.0f,
                                             .grad_scale = grad_scale,
                                             .nesterov = u->nesterov};

            kernels->sgd(t->p, t->g, u->momentum != 0 ? t->m : NULL, t->count, &s);
        }
    }
}

static void assert_bits(const void *there, const void *here, size_t bytes, const char *what, int i)
{
    void *got = cuda_download(there, bytes);

    if (memcmp(got, here, bytes) != 0) {
        fail_msg("tensor %d of %zu elements: other bits in %s", i, counts[i], what);
    }
    free(got);
}

static void compare(const struct model *model)
{
    for (int i = 0; i < TENSORS; i++) {
        const struct tensor *t = &model->tensors[i];
        size_t bytes = t->count * sizeof(float);
        size_t copy_bytes = t->count * cddp_type_bytes(model->copy_type);
        void *copy = malloc(copy_bytes);

        assert_bits(t->slot.param, t->p, bytes, "the parameter", i);
        assert_bits(t->slot.first, t->m, bytes, "the first moment", i);
        assert_bits(t->slot.second, t->v, bytes, "the second moment", i);
        if (t->slot.copy != NULL) {
            cddpi_cast(copy, model->copy_type, t->p, CDDP_F32, t->count);
            assert_bits(t->slot.copy, copy, copy_bytes, "the copy", i);
        }
        free(copy);
    }
}

static double lr_of(int step)
{
    return 0.0123 / (step + 1);
}

static void run_steps(const struct cddpi_cuda_update *kind, cddp_type copy_type)
{
    struct cddpi_cuda_update update = *kind;
    struct model model;

    make(&model, copy_type, update.adamw);
    update.copy_type = copy_type;
    update.lr = model.lr;
    for (int step = 1; step <= STEPS; step++) {
        double lr = lr_of(step);

        next_grads(&model, (uint32_t)step);
        cuda_copy(model.lr, &lr, sizeof lr);
        cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
        update_here(&model, &update, lr, update.grad_scale, step);
    }
    compare(&model);
    unmake(&model);
}

static const struct cddpi_cuda_update sgd = {.weight_decay = 0.0123, .grad_scale = 0.37f};
static const struct cddpi_cuda_update adamw = {.adamw = true,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .grad_scale = 0.37f};

static void sgd_has_the_processors_bits(void **state)
{
    struct cddpi_cuda_update kind = sgd;

    (void)state;
    NEEDS_CUDA();
    run_steps(&kind, CDDP_BF16);
    kind.momentum = 0.9;
    run_steps(&kind, CDDP_F16);
    kind.nesterov = true;
    run_steps(&kind, CDDP_F32);
}

static void adamw_has_the_processors_bits(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < 3; t++) {
        run_steps(&adamw, cuda_types[t]);
    }
}

static int64_t count_of(const int64_t *steps)
{
    int64_t *host = cuda_download(steps, sizeof *steps);
    int64_t count = *host;

    free(host);
    return count;
}

static void a_step_that_is_skipped_changes_nothing(void **state)
{
    const int32_t skips[] = {0, 1, 0};
    struct cddpi_cuda_update update = adamw;
    struct model model;
    double lr = 0.01;
    int32_t *skip;
    int64_t counted = 0;

    (void)state;
    NEEDS_CUDA();
    make(&model, CDDP_BF16, true);
    skip = cuda_alloc(sizeof *skip);
    cuda_copy(model.lr, &lr, sizeof lr);
    update.copy_type = CDDP_BF16;
    update.lr = model.lr;
    update.skip = skip;
    for (int step = 0; step < 3; step++) {
        cuda_copy(skip, &skips[step], sizeof *skip);
        cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
        if (skips[step] == 0) {
            update_here(&model, &update, lr, update.grad_scale, ++counted);
        }
    }
    compare(&model);
    assert_int_equal(count_of(model.tensors[0].slot.steps), 2);
    assert_int_equal(count_of(model.tensors[TENSORS - 1].slot.steps), 2);
    cuda_release(skip);
    unmake(&model);
}

static void gradients_are_scaled_from_device_memory_too(void **state)
{
    const float by = 0.125f;
    struct cddpi_cuda_update update = sgd;
    struct model model;
    double lr = 0.01;
    float *scale;

    (void)state;
    NEEDS_CUDA();
    make(&model, CDDP_BF16, false);
    scale = cuda_upload(&by, sizeof by);
    cuda_copy(model.lr, &lr, sizeof lr);
    update.copy_type = CDDP_BF16;
    update.lr = model.lr;
    update.device_scale = scale;
    cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
    update_here(&model, &update, lr, update.grad_scale * by, 1);
    compare(&model);
    cuda_release(scale);
    unmake(&model);
}

/* Nothing of a recording but what pointers show may change between its launches. */
static void a_recorded_update_reads_rate_and_counts_anew(void **state)
{
    struct cddpi_recording *recording;
    struct cddpi_cuda_update update = adamw;
    struct cddpi_cuda_tensors made;
    struct model model;

    (void)state;
    NEEDS_CUDA();
    if (cuda->ops->record_begin == NULL) {
        skip();
    }
    make(&model, CDDP_BF16, true);
    update.copy_type = CDDP_BF16;
    update.lr = model.lr;
    cuda_ok(cuda->ops->record_begin(cuda));
    assert_int_equal(cuda->kernels->tensors(cuda, &model.tensors[0].slot, 1, model.table, &made),
                     CDDP_ERR_UNAVAILABLE);
    cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
    cuda_ok(cuda->ops->record_end(cuda, &recording));
    for (int step = 1; step <= STEPS; step++) {
        double lr = lr_of(step);

        next_grads(&model, (uint32_t)step);
        cuda_copy(model.lr, &lr, sizeof lr);
        cuda_ok(cuda->ops->replay(cuda, recording));
        update_here(&model, &update, lr, update.grad_scale, step);
    }
    compare(&model);
    cuda->ops->recording_destroy(cuda, recording);
    unmake(&model);
}

static void a_table_says_which_tensor_is_wrong(void **state)
{
    struct cddpi_cuda_tensors made;
    struct cddpi_cuda_slot slots[2] = {{.count = 1}, {.count = 0}};
    float *memory;

    (void)state;
    NEEDS_CUDA();
    memory = cuda_alloc(256);
    for (int i = 0; i < 2; i++) {
        slots[i].param = memory;
        slots[i].grad = memory;
    }
    assert_int_equal(cuda->kernels->tensors(cuda, slots, 2, memory, &made), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "tensor 1 of 2 has no elements"));
    slots[0].grad = NULL;
    assert_int_equal(cuda->kernels->tensors(cuda, slots, 2, memory, &made), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "tensor 0 of 2 has no gradient"));
    cuda_release(memory);
}

/* --- squares, clip, loss scale --- */

static double squares_of(const struct model *model)
{
    double *out = cuda_alloc(sizeof *out);
    double *host;
    double value;

    cuda_ok(cuda->kernels->squares(cuda, &model->made, out));
    host = cuda_download(out, sizeof *out);
    value = *host;
    free(host);
    cuda_release(out);
    return value;
}

static void squares_are_summed_in_float64_in_one_order(void **state)
{
    struct model model;
    long double expected = 0;
    double first;

    (void)state;
    NEEDS_CUDA();
    make(&model, CDDP_BF16, false);
    for (int i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < model.tensors[i].count; k++) {
            expected += (long double)model.tensors[i].g[k] * model.tensors[i].g[k];
        }
    }
    first = squares_of(&model);
    assert_true(fabs(first - (double)expected) <= 1e-13 * (double)expected);
    for (int i = 0; i < 3; i++) { /* blocks come in other orders */
        assert_true(squares_of(&model) == first);
    }
    unmake(&model);
}

/* The same numbers in a tensor that is not aligned. */
static void the_order_of_squares_is_one_of_counts_alone(void **state)
{
    enum { COUNT = 20001 };
    float *host;
    double sums[2];

    (void)state;
    NEEDS_CUDA();
    host = some(77, COUNT, 1);
    for (size_t late = 0; late < 2; late++) {
        struct cddpi_cuda_slot slot = {.count = COUNT};
        struct model model = {.copy_type = CDDP_BF16};
        void *memory;

        slot.grad = placed(&memory, host, COUNT * sizeof *host, late * sizeof(float));
        slot.param = memory;
        model.table = cuda_alloc(cuda->kernels->tensors_bytes(&slot, 1));
        cuda_ok(cuda->kernels->tensors(cuda, &slot, 1, model.table, &model.made));
        sums[late] = squares_of(&model);
        cuda_release(model.table);
        cuda_release(memory);
    }
    assert_true(sums[0] == sums[1]);
    free(host);
}

static void no_tensors_have_no_squares_and_no_update(void **state)
{
    struct cddpi_cuda_update update = adamw;
    struct model model = {.copy_type = CDDP_BF16};
    const double lr = 1;

    (void)state;
    NEEDS_CUDA();
    cuda_ok(cuda->kernels->tensors(cuda, NULL, 0, NULL, &model.made));
    assert_int_equal(cuda->kernels->tensors_bytes(NULL, 0), 0);
    assert_true(squares_of(&model) == 0);
    model.lr = cuda_upload(&lr, sizeof lr);
    update.lr = model.lr;
    cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
    cuda_release(model.lr);
}

struct clipped {
    float scale, norm;
    int32_t skip;
};

static struct clipped clip(double squares, float loss_scale, double limit)
{
    double *in = cuda_upload(&squares, sizeof squares);
    float *by = cuda_upload(&loss_scale, sizeof loss_scale);
    char *out = cuda_alloc(sizeof(struct clipped));
    struct clipped *host;
    struct clipped result;

    cuda_ok(cuda->kernels->clip(cuda, in, loss_scale != 0 ? by : NULL, limit,
                                (float *)(void *)(out + offsetof(struct clipped, scale)),
                                (int32_t *)(void *)(out + offsetof(struct clipped, skip)),
                                (float *)(void *)(out + offsetof(struct clipped, norm))));
    host = cuda_download(out, sizeof *host);
    result = *host;
    free(host);
    cuda_release(out);
    cuda_release(in);
    cuda_release(by);
    return result;
}

static void clipping_is_the_training_loops(void **state)
{
    const double squares = 7.3;
    float norm = (float)sqrt(squares);
    struct clipped result;

    (void)state;
    NEEDS_CUDA();
    result = clip(squares, 0, 0);
    assert_true(result.scale == 1 && result.skip == 0 && result.norm == norm);
    result = clip(squares, 0, 100);
    assert_true(result.scale == 1 && result.norm == norm);
    result = clip(squares, 0, 0.1);
    assert_true(result.scale == (float)(0.1 / norm) && result.norm == norm);
    /* of gradients times 1024 */
    result = clip(squares * 1024 * 1024, 1024, 0.1);
    assert_true(result.scale == (float)(0.1 / norm / 1024) && result.norm == norm);
    result = clip(squares * 1024 * 1024, 1024, 0);
    assert_true(result.scale == 1.0f / 1024 && result.skip == 0);
}

static void what_is_not_finite_is_skipped(void **state)
{
    struct clipped result;

    (void)state;
    NEEDS_CUDA();
    result = clip((double)INFINITY, 1024, 1);
    assert_true(result.skip == 1 && result.scale == 0);
    result = clip((double)NAN, 0, 0);
    assert_true(result.skip == 1 && result.scale == 0);
}

static void loss_scales_move_as_on_the_processor(void **state)
{
    static const bool allowed[] = {true,  true,  true,  false, true, true,  false, false,
                                   true,  true,  true,  true,  true, true,  true,  true,
                                   false, false, false, false, true, false, false};
    struct cddpi_loss_scale here;
    float *scale;
    int32_t *good;
    int32_t *skip;
    const int32_t none = 0;

    (void)state;
    NEEDS_CUDA();
    cddpi_loss_scale_init(&here);
    here.interval = 3;
    here.scale = 0x1p126f;   /* so that it grows to where it must not ... */
    here.least = 0x1.8p124f; /* ... and falls to where it stays */
    scale = cuda_upload(&here.scale, sizeof here.scale);
    good = cuda_upload(&none, sizeof none);
    skip = cuda_alloc(sizeof *skip);
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        int32_t skips = !allowed[i];
        float *moved;
        int32_t *steps;

        cuda_copy(skip, &skips, sizeof skips);
        cuda_ok(cuda->kernels->scale_loss(cuda, skip, here.growth, here.backoff, here.least,
                                          (int32_t)here.interval, scale, good));
        cddpi_loss_scale_update(&here, allowed[i]);
        moved = cuda_download(scale, sizeof *scale);
        steps = cuda_download(good, sizeof *good);
        assert_true(*moved == here.scale);
        assert_int_equal(*steps, here.good_steps);
        free(moved);
        free(steps);
    }
    cuda_release(scale);
    cuda_release(good);
    cuda_release(skip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_has_the_processors_bits),
        cmocka_unit_test(adamw_has_the_processors_bits),
        cmocka_unit_test(a_step_that_is_skipped_changes_nothing),
        cmocka_unit_test(gradients_are_scaled_from_device_memory_too),
        cmocka_unit_test(a_recorded_update_reads_rate_and_counts_anew),
        cmocka_unit_test(a_table_says_which_tensor_is_wrong),
        cmocka_unit_test(squares_are_summed_in_float64_in_one_order),
        cmocka_unit_test(the_order_of_squares_is_one_of_counts_alone),
        cmocka_unit_test(no_tensors_have_no_squares_and_no_update),
        cmocka_unit_test(clipping_is_the_training_loops),
        cmocka_unit_test(what_is_not_finite_is_skipped),
        cmocka_unit_test(loss_scales_move_as_on_the_processor),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
