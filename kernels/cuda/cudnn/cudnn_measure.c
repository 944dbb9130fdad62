/* cudnn_measure.c - chooses among cuDNN's engines by measured time.
 *
 * cuDNN's heuristics know the card, but not its present clocks and memory speed, so their first
 * engine is often not the fastest. Each engine overwrites its whole output, so engines can run one
 * after the other on the data at hand. They need not give the same bits: alternatives are only
 * measured if the caller accepts sums in any order. */
#include "kernels/cuda/cudnn/cudnn_plan.h"
#include "kernels/cuda/kernels_module.h"

#include "base/error.h"

#include <float.h>

/* The work that is measured. */
struct cudnn_measure_trial {
    struct cddpi_cudnn_plan *plan;
    cudnnHandle_t handle;
    const struct cddpi_cudnn_pointers *pointers;
    void *workspace;
};

static cddp_status check_call(const struct cudnn_measure_trial *trial, cudaError_t error, int line)
{
    return cddpi_cuda_status(trial->plan->graph.cudnn->device, error,
                             "a measurement of cuDNN's engines", __FILE__, line);
}

static bool execute(void *argument)
{
    const struct cudnn_measure_trial *trial = argument;

    return cddpi_cudnn_plan_execute(trial->plan, trial->handle, trial->pointers,
                                    trial->workspace) == CDDP_OK;
}

/* Measure it, after a first run that does not count. An engine that cannot run is not an error, but
 * infinitely slow. */
static cddp_status time_runs(struct cudnn_measure_trial *trial,
                             const struct cddpi_cuda_timer *timer, float *out)
{
    *out = FLT_MAX;
    return execute(trial)
               ? check_call(trial, cddpi_cuda_timer_best(timer, execute, trial, out), __LINE__)
               : CDDP_OK;
}

/* Exchange the plan's engine and the alternative. */
static void exchange(struct cddpi_cudnn_plan *plan, struct cddpi_cudnn_alternative *alternative)
{
    struct cddpi_cudnn_alternative was = {plan->plan, plan->config, plan->engine,
                                          plan->reproducible};

    plan->plan = alternative->plan;
    plan->config = alternative->config;
    plan->engine = alternative->engine;
    plan->reproducible = alternative->reproducible;
    *alternative = was;
}

static cddp_status try_all(struct cudnn_measure_trial *trial, const struct cddpi_cuda_timer *timer)
{
    struct cddpi_cudnn_plan *plan = trial->plan;
    float best = 0;
    cddp_status status = time_runs(trial, timer, &best);

    for (int i = 0; status == CDDP_OK && i < plan->alternative_count; i++) {
        float ms = 0;

        exchange(plan, &plan->alternatives[i]);
        status = time_runs(trial, timer, &ms);
        if (ms < best) {
            best = ms;
        } else {
            exchange(plan, &plan->alternatives[i]);
        }
    }
    return status;
}

cddp_status cddpi_cudnn_plan_measure(struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace)
{
    const struct cddpi_cudnn *cudnn = plan->graph.cudnn;
    struct cudnn_measure_trial trial = {plan, handle, pointers, workspace};
    struct cddpi_cuda_timer timer;
    cddp_status status;

    CDDPI_TRY(check_call(&trial, cddpi_cuda_timer_open(cudnn->device, &timer), __LINE__));
    status = try_all(&trial, &timer);
    cddpi_cuda_timer_close(&timer);
    while (plan->alternative_count > 0) {
        cudnn->unmake(plan->alternatives[--plan->alternative_count].plan);
    }
    return status;
}
