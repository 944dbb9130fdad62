/* cudnn_plan.h - chooses one of cuDNN's engines for an operation graph, and executes it. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_PLAN_H
#define CDDPI_KERNELS_CUDA_CUDNN_PLAN_H

#include "kernels/cuda/cudnn/cudnn_nodes.h"

enum { CDDPI_CUDNN_POINTERS = 16, CDDPI_CUDNN_ALTERNATIVES = 9, CDDPI_CUDNN_KNOBS = 48 };

/* An engine and its knobs in numbers, which can be stored. */
struct cddpi_cudnn_knob {
    int32_t type, value;
};
struct cddpi_cudnn_config {
    int32_t engine, knob_count;
    struct cddpi_cudnn_knob knobs[CDDPI_CUDNN_KNOBS];
};

/* Another engine that could do the work. */
struct cddpi_cudnn_alternative {
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t config; /* the graph's */
    int64_t engine;
    bool reproducible;
};

struct cddpi_cudnn_plan {
    struct cddpi_cudnn_graph graph; /* owns all descriptors */
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t config; /* the engine's; the graph owns it */
    size_t workspace_bytes;          /* enough for the alternatives, too */
    int64_t engine;                  /* cuDNN's number of it, for reports */
    bool reproducible;               /* the same bits in every run, according to cuDNN */
    bool exact;                      /* inputs and intermediate sums are not rounded */
    int tried;                       /* number of configurations tried */
    bool ran, failed;                /* the outcome of its first execution */
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
/** Take the engine @p config, which an earlier process has measured. On failure @p plan is as it
 * was before: cddpi_cudnn_plan_choose() can follow. */
cddp_status cddpi_cudnn_plan_restore(struct cddpi_cudnn_plan *plan,
                                     const struct cddpi_cudnn_target *target,
                                     const struct cddpi_cudnn_config *config);
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

/* --- cudnn_config.c --- */

/** How much of @p config is in use: the part to store. */
size_t cddpi_cudnn_config_bytes(const struct cddpi_cudnn_config *config);
/** Whether @p bytes bytes that were stored are a configuration. */
bool cddpi_cudnn_config_is_whole(const struct cddpi_cudnn_config *config, size_t bytes);
/** The numbers of @p config, whose engine is @p engine. False: it has none that can be stored. */
bool cddpi_cudnn_config_read(const struct cddpi_cudnn *cudnn, cudnnBackendDescriptor_t config,
                             int64_t engine, struct cddpi_cudnn_config *out);
/** The other way: a configuration for the graph's @p operations. */
cudnnBackendDescriptor_t cddpi_cudnn_config_make(struct cddpi_cudnn_graph *graph,
                                                 const struct cddpi_cudnn_target *target,
                                                 cudnnBackendDescriptor_t operations,
                                                 const struct cddpi_cudnn_config *config);

/* --- cache.c: cuDNN's part of the device cache: its handle, and a plan for each shape --- */

enum cddpi_cudnn_kind {
    CDDPI_CUDNN_ATTENTION,
    CDDPI_CUDNN_ATTENTION_GRAD,
    CDDPI_CUDNN_CONV, /* + enum cddpi_cudnn_conv_pass */
};

/* The key of a plan. It is compared as memory; there is no padding, because all members have the
 * same size. */
struct cddpi_cudnn_key {
    int32_t kind, type;
    int32_t sizes[8];
    /* Not 0: engines are chosen by measured time, with cddpi_cudnn_plan_measure(). */
    int32_t any_order;
};

struct cddpi_cudnn_use {
    const struct cddpi_cudnn *cudnn;
    cudnnHandle_t handle;
    struct cddpi_cudnn_plan *plan;
    const struct cddpi_cudnn_key *key;
    struct cddpi_tuning *tuning;
};

/** Find the plan for @p key; the first time, @p build makes its graph from @p shape. @p out->plan
 *  NULL: there is no cuDNN here, or cuDNN cannot do it (the first call words the reason), or the
 *  plan has failed before. CDDP_ERR_UNAVAILABLE: the shape is new and work is being captured. */
cddp_status cddpi_cudnn_find(struct cddpi_device *device, const struct cddpi_cudnn_key *key,
                             void (*build)(struct cddpi_cudnn_graph *graph, const void *shape),
                             const void *shape, struct cddpi_cudnn_use *out);

/** The plan was measured, and has run: keep its engine for later processes. */
void cddpi_cudnn_keep(const struct cddpi_cudnn_use *use);
/** The plan did not run: if an earlier process had measured it, forget that. */
void cddpi_cudnn_reject(const struct cddpi_cudnn_use *use);

#endif
