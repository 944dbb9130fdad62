/* cudnn_plan.h - chooses one of cuDNN's engines for an operation graph, and executes it. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_PLAN_H
#define CDDPI_KERNELS_CUDA_CUDNN_PLAN_H

#include "kernels/cuda/cudnn/cudnn_nodes.h"

enum { CDDPI_CUDNN_POINTERS = 16, CDDPI_CUDNN_ALTERNATIVES = 9 };

/* Another engine that could do the work. */
struct cddpi_cudnn_alternative {
    cudnnBackendDescriptor_t plan;
    int64_t engine;
    bool reproducible;
};

struct cddpi_cudnn_plan {
    struct cddpi_cudnn_graph graph; /* owns all descriptors */
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes; /* enough for the alternatives, too */
    int64_t engine;         /* cuDNN's number of it, for reports */
    bool reproducible;      /* the same bits in every run, according to cuDNN */
    bool exact;             /* inputs and intermediate sums are not rounded */
    int tried;              /* number of configurations tried */
    bool ran, failed;       /* the outcome of its first execution */
    /* Engines that may be faster; empty once they are measured. */
    struct cddpi_cudnn_alternative alternatives[CDDPI_CUDNN_ALTERNATIVES];
    int alternative_count;
};

/* What plans are made for: a handle, or without a device a DEVICEPROP descriptor that describes one
 * (then the plan cannot be executed here). */
struct cddpi_cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
    bool alternatives; /* keep some of the next best engines, reproducible or not */
    bool tf32;         /* float32 factors may be rounded to TF32 */
};

/** Choose an engine for the complete graph @p plan->graph: the first one that cuDNN's heuristics
 *  (mode A, then its fallback) offer and that can be built. Engines without numerical notes come
 *  first, then those that round intermediate values, then those that are not reproducible.
 *  CDDP_ERR_UNAVAILABLE: no engine can do it. */
cddp_status cddpi_cudnn_plan_choose(struct cddpi_cudnn_plan *plan,
                                    const struct cddpi_cudnn_target *target);
void cddpi_cudnn_plan_fini(struct cddpi_cudnn_plan *plan);

/* The values of a graph's ids in one call: device memory, or a float in CPU memory. */
struct cddpi_cudnn_pointers {
    int64_t ids[CDDPI_CUDNN_POINTERS];
    void *pointers[CDDPI_CUDNN_POINTERS];
    int count;
};

void cddpi_cudnn_bind(struct cddpi_cudnn_pointers *pointers, int64_t id, const void *pointer);

/** Measure @p plan's engine and its alternatives on the memory in @p pointers, which is
 *  overwritten, and keep only the fastest. Waits; not allowed in a capture. */
cddp_status cddpi_cudnn_plan_measure(struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace);

/** Enqueue it in the handle's stream. @p workspace: plan->workspace_bytes. */
cddp_status cddpi_cudnn_plan_execute(const struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace);

#endif
