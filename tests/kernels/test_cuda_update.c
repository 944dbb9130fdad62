/* test_cuda_update.c - optimizers' updates on a CUDA device equal the CPU's, bit by bit. */
#include "support/cuda_update.h"
#include "support/failure.h"

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

/* Nothing of a capture but what pointers show may change between its launches. */
static void a_recorded_update_reads_rate_and_counts_anew(void **state)
{
    struct cddpi_captured_graph *captured;
    struct cddpi_cuda_update update = adamw;
    struct cddpi_cuda_tensors made;
    struct model model;

    (void)state;
    NEEDS_CUDA();
    if (cuda->ops->capture_begin == NULL) {
        skip();
    }
    make(&model, CDDP_BF16, true);
    update.copy_type = CDDP_BF16;
    update.lr = model.lr;
    cuda_ok(cuda->ops->capture_begin(cuda));
    assert_int_equal(cuda->kernels->tensors(cuda, &model.tensors[0].slot, 1, model.table, &made),
                     CDDP_ERR_UNAVAILABLE);
    cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
    cuda_ok(cuda->ops->capture_end(cuda, &captured));
    for (int step = 1; step <= STEPS; step++) {
        double lr = lr_of(step);

        next_grads(&model, (uint32_t)step);
        cuda_copy(model.lr, &lr, sizeof lr);
        cuda_ok(cuda->ops->replay(cuda, captured));
        update_here(&model, &update, lr, update.grad_scale, step);
    }
    compare(&model);
    cuda->ops->graph_destroy(cuda, captured);
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
    assert_true(last_error_has("tensor 1 of 2 has no elements"));
    slots[0].grad = NULL;
    assert_int_equal(cuda->kernels->tensors(cuda, slots, 2, memory, &made), CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("tensor 0 of 2 has no gradient"));
    cuda_release(memory);
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
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
