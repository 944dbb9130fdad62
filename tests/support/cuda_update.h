/* cuda_update.h - models of a few tensors, on the host and on a CUDA device, for tests of optimizer
 * updates. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_UPDATE_H
#define CDDP_TESTS_SUPPORT_CUDA_UPDATE_H

#include "kernels/cpu/cpu_optim.h"
#include "kernels/cpu/reduce.h"
#include "optim/loss_scale.h"
#include "optim/optim_impl.h"
#include "support/cuda.h"

enum { TENSORS = 8, STEPS = 4 };

static const size_t counts[TENSORS] = {1, 3, 17, 4096, 16384, 16385, 40003, 8};

/* One tensor, on the host and on the device. On the device, its arrays may start one element late,
 * so that they are not aligned. */
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

float *some(uint32_t stream, size_t count, float scale);
void *placed(void **out_memory, const void *from, size_t bytes, size_t late);
void make(struct model *model, cddp_type copy_type, bool is_adamw);
void unmake(struct model *model);

static const struct cddpi_cuda_update sgd = {.weight_decay = 0.0123, .grad_scale = 0.37f};

static const struct cddpi_cuda_update adamw = {.adamw = true,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .grad_scale = 0.37f};

#endif
