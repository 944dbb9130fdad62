/* cuda_update.c - models of a few tensors, on the host and on a CUDA device, for tests of optimizer
 * updates. */
#include "support/cuda_update.h"

float *some(uint32_t stream, size_t count, float scale)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = scale * test_number(stream, i);
    }
    return x;
}

void *placed(void **out_memory, const void *from, size_t bytes, size_t late)
{
    *out_memory = cuda_alloc(bytes + late);
    if (from != NULL) {
        cuda_copy((char *)*out_memory + late, from, bytes);
    }
    return (char *)*out_memory + late;
}

static void tensor_make(struct tensor *t, uint32_t i, cddp_type copy_type, bool is_adamw)
{
    size_t late = i == 3 ? sizeof(float) : 0; /* not aligned */
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
    if (i != 1) { /* one tensor has no copy */
        t->slot.copy = placed(&t->memory[4], NULL, t->count * cddp_type_bytes(copy_type), 0);
    }
    t->slot.steps = is_adamw ? cuda_upload(&none, sizeof none) : NULL;
}

void make(struct model *model, cddp_type copy_type, bool is_adamw)
{
    struct cddpi_cuda_slot slots[TENSORS];
    double lr = 0;

    *model = (struct model){.copy_type = copy_type};
    for (uint32_t i = 0; i < TENSORS; i++) {
        tensor_make(&model->tensors[i], i, copy_type, is_adamw);
        slots[i] = model->tensors[i].slot;
    }
    model->table = cuda_alloc(cuda->kernels->tensors_bytes(slots, TENSORS));
    cuda_ok(cuda->kernels->tensors(cuda, slots, TENSORS, model->table, &model->made));
    model->lr = cuda_upload(&lr, sizeof lr);
}

void unmake(struct model *model)
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
