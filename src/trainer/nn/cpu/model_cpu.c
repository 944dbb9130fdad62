/* model_cpu.c - owns the part of a model that is specific to the CPU. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/dnnl.h"
#include "nn/cpu/matmul.h"
#include "nn/model_state.h"

static cddp_status create(struct cddpi_model *model, const struct cddpi_model_spec *spec)
{
    model->type = CDDP_F32;
    model->amx = cddpi_matmul_has_amx(spec->matmul, spec->invariant);
    return model->precision == CDDPI_PRECISION_BF16 ? cddpi_bf16_probe(model) : CDDP_OK;
}

static void release_params(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->params.count; i++) {
        if (!model->param_states[i].is_shared) {
            cddpi_free(model->params.items[i].data);
        }
    }
}

static cddp_status grow_arena(struct cddpi_model *model, size_t bytes, int count, bool training)
{
    char *arena = cddpi_alloc_aligned(bytes);

    (void)count;
    (void)training;
    CDDPI_TRY_MEMORY(arena != NULL, "model: no memory for %zu bytes of activations", bytes);
    cddpi_model_forget_forward(model);
    cddpi_free(model->regions[CDDPI_REGION_BATCH].data);
    model->regions[CDDPI_REGION_BATCH] = (struct cddpi_region_memory){arena, bytes};
    return CDDP_OK;
}

static cddp_status add(const struct cddpi_model *model, const void *a, const void *b, size_t count,
                       void *out)
{
    (void)model;
    cddpi_nn_add(a, b, out, count);
    return CDDP_OK;
}

static cddp_status read(struct cddpi_model *model, size_t index, size_t count, const float **out)
{
    (void)count;
    *out = (const float *)model->last.outputs + index;
    return CDDP_OK;
}

static const char *matmul_note(const struct cddpi_model *model)
{
    static const char *const bf16[] = {
        [CDDPI_BF16_ROUNDED] = "bf16 factors: rounded, multiplied as f32",
        [CDDPI_BF16_PAIRS] = "bf16 factors: AVX512_BF16",
        [CDDPI_BF16_AMX] = "bf16 factors: AMX"};

    if (model->precision == CDDPI_PRECISION_BF16) {
        return bf16[model->bf16];
    }
    return model->amx ? "f32 factors: AMX, in three parts of bf16 each, where large; else FMA"
                      : "f32 factors: FMA";
}

const struct cddpi_model_ops cddpi_model_on_cpu = {
    .keeps_outputs = true,
    .create = create,
    .release_params = release_params,
    .grow_arena = grow_arena,
    .check_batch = cddpi_model_check_batch,
    .add = add,
    .read = read,
    .matmul_note = matmul_note,
    .arithmetic = cddpi_cpu_arithmetic,
    .precision_note = cddpi_bf16_note,
    .describe_plan = cddpi_cpu_describe_plan,
};
