/* cudnn_measure.c - owns the choice among cuDNN's engines by time.
 *
 * Heuristics know the card, but not how its clocks and memory are just now; the first of their list
 * is often not the fastest. What engines write is written by each alone, in whole, so that they can
 * be run one after the other on the data at hand. They need not give the same bits: only who takes
 * sums in any order has rivals measured. */
#include "kernels/cuda/cudnn_plan.h"

#include <float.h>

enum { RUNS = 3 };

struct watch {
    struct cddpi_device *device;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static cddp_status check(const struct watch *watch, cudaError_t error, int line)
{
    return cddpi_cuda_status(watch->device, error, "a measurement of cuDNN's engines", __FILE__,
                             line);
}

/* The shortest of some runs behind one that nobody times. An engine that cannot run is no error but
 * infinitely slow. */
static cddp_status time_runs(const struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                             const struct cddpi_cudnn_pointers *pointers, void *workspace,
                             const struct watch *watch, float *out)
{
    float best = FLT_MAX;

    *out = FLT_MAX;
    if (cddpi_cudnn_plan_execute(plan, handle, pointers, workspace) != CDDP_OK) {
        return CDDP_OK;
    }
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        cudaError_t error = cudaEventRecord(watch->begin, watch->stream);

        if (error == cudaSuccess &&
            cddpi_cudnn_plan_execute(plan, handle, pointers, workspace) != CDDP_OK) {
            return CDDP_OK;
        }
        if (error == cudaSuccess) {
            error = cudaEventRecord(watch->end, watch->stream);
        }
        if (error == cudaSuccess) {
            error = cudaEventSynchronize(watch->end);
        }
        if (error == cudaSuccess) {
            error = cudaEventElapsedTime(&ms, watch->begin, watch->end);
        }
        if (error != cudaSuccess) {
            return check(watch, error, __LINE__);
        }
        best = ms < best ? ms : best;
    }
    *out = best;
    return CDDP_OK;
}

/* The plan's engine becomes a rival, and the rival the plan's. */
static void exchange(struct cddpi_cudnn_plan *plan, struct cddpi_cudnn_rival *rival)
{
    struct cddpi_cudnn_rival was = {plan->plan, plan->engine, plan->reproducible};

    plan->plan = rival->plan;
    plan->engine = rival->engine;
    plan->reproducible = rival->reproducible;
    *rival = was;
}

static cddp_status try_all(struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                           const struct cddpi_cudnn_pointers *pointers, void *workspace,
                           const struct watch *watch)
{
    float best = 0;
    cddp_status status = time_runs(plan, handle, pointers, workspace, watch, &best);

    for (int i = 0; status == CDDP_OK && i < plan->rival_count; i++) {
        float ms = 0;

        exchange(plan, &plan->rivals[i]);
        status = time_runs(plan, handle, pointers, workspace, watch, &ms);
        if (ms < best) {
            best = ms;
        } else {
            exchange(plan, &plan->rivals[i]);
        }
    }
    return status;
}

cddp_status cddpi_cudnn_plan_measure(struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace)
{
    const struct cddpi_cudnn *cudnn = plan->graph.cudnn;
    struct watch watch = {cudnn->device, cddpi_cuda_compute_stream(cudnn->device), NULL, NULL};
    cddp_status status = check(&watch, cudaEventCreate(&watch.begin), __LINE__);

    if (status != CDDP_OK) {
        return status;
    }
    status = check(&watch, cudaEventCreate(&watch.end), __LINE__);
    if (status == CDDP_OK) {
        status = try_all(plan, handle, pointers, workspace, &watch);
        cudaEventDestroy(watch.end);
    }
    cudaEventDestroy(watch.begin);
    while (plan->rival_count > 0) {
        cudnn->unmake(plan->rivals[--plan->rival_count].plan);
    }
    return status;
}
