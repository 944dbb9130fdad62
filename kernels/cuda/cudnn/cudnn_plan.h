/* cudnn_plan.h - from an operation graph to something that runs: which of cuDNN's engines is taken,
 * and its execution. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_PLAN_H
#define CDDPI_KERNELS_CUDA_CUDNN_PLAN_H

#include "kernels/cuda/cudnn/cudnn_nodes.h"

enum { CDDPI_CUDNN_POINTERS = 16, CDDPI_CUDNN_ALTERNATIVES = 9 };

/* An engine that could do the work, too. */
struct cddpi_cudnn_alternative {
    cudnnBackendDescriptor_t plan;
    int64_t engine;
    bool reproducible;
};

struct cddpi_cudnn_plan {
    struct cddpi_cudnn_graph graph; /* keeps all descriptors */
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes; /* as much as the alternatives want, too */
    int64_t engine;         /* cuDNN's number of it, for people */
    bool reproducible;      /* the same bits in every run, as cuDNN says */
    bool exact;             /* inputs and sums are not rounded on the way */
    int tried;              /* configurations that were looked at */
    bool ran, failed;       /* what became of its first execution */
    /* Those that may be faster, until they are measured. */
    struct cddpi_cudnn_alternative alternatives[CDDPI_CUDNN_ALTERNATIVES];
    int alternative_count;
};

/* What plans are made for: a handle; or, without a device, a DEVICEPROP descriptor that describes
 * one (then the plan cannot be executed here). */
struct cddpi_cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
    bool alternatives; /* keep some of the next best engines, which need not be reproducible */
    bool tf32;         /* factors of float32 may be rounded to it */
};

/** Choose an engine for @p plan->graph, whose operations are complete: the first that cuDNN's
 * heuristics (mode A, then its fallback) offer and that can be built, among those whose numerical
 * notes are clean; then, if there is none, among those that round on the way; at last among those
 * that are not reproducible. CDDP_ERR_UNAVAILABLE: no engine can do it. */
cddp_status cddpi_cudnn_plan_choose(struct cddpi_cudnn_plan *plan,
                                    const struct cddpi_cudnn_target *target);
void cddpi_cudnn_plan_fini(struct cddpi_cudnn_plan *plan);

/* What a graph's ids stand for in one call: device memory, or a float in the processor's memory. */
struct cddpi_cudnn_pointers {
    int64_t ids[CDDPI_CUDNN_POINTERS];
    void *pointers[CDDPI_CUDNN_POINTERS];
    int count;
};

void cddpi_cudnn_bind(struct cddpi_cudnn_pointers *pointers, int64_t id, const void *pointer);

/** Measure @p plan's engine and its alternatives on what @p pointers show, which is written over,
 * and keep the fastest alone. Waits; not in a capture. */
cddp_status cddpi_cudnn_plan_measure(struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace);

/** Puts it into the handle's stream. @p workspace: of plan->workspace_bytes. */
cddp_status cddpi_cudnn_plan_execute(const struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace);

#endif
