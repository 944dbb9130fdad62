/* cuda_update_support.h - models of a few tensors, here and on a CUDA device, that optimizers'
 * tests update. */
#ifndef CDDP_TESTS_CUDA_UPDATE_SUPPORT_H
#define CDDP_TESTS_CUDA_UPDATE_SUPPORT_H

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

static inline float *some(uint32_t stream, size_t count, float scale)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = scale * test_number(stream, i);
    }
    return x;
}

static inline void *placed(void **out_memory, const void *from, size_t bytes, size_t late)
{
    *out_memory = cuda_alloc(bytes + late);
    if (from != NULL) {
        cuda_copy((char *)*out_memory + late, from, bytes);
    }
    return (char *)*out_memory + late;
}

static inline void tensor_make(struct tensor *t, uint32_t i, cddp_type copy_type, bool adamw)
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

static inline void make(struct model *model, cddp_type copy_type, bool adamw)
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

static inline void unmake(struct model *model)
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

static const struct cddpi_cuda_update sgd = {.weight_decay = 0.0123, .grad_scale = 0.37f};
static const struct cddpi_cuda_update adamw = {.adamw = true,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .grad_scale = 0.37f};

#endif
