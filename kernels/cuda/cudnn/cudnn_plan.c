/* cudnn_plan.c - chooses cuDNN's engine for a graph, and executes plans.
 *
 * Follows NVIDIA's "cuDNN backend API": OPERATIONGRAPH, ENGINEHEUR (modes A and FALLBACK),
 * ENGINECFG, ENGINE's numerical notes, EXECUTION_PLAN, VARIANT_PACK. NVIDIA calls a target without
 * a device deviceless ahead-of-time compilation (DEVICEPROP, since 9.8). */
#include "kernels/cuda/cudnn/cudnn_plan.h"

#include "base/error.h"

#include <string.h>

enum {
    CONFIGS_OF_A_MODE = 32,
    MOST_CONFIGS = 2 * CONFIGS_OF_A_MODE,
    MOST_WORKSPACE = 1 << 30,
    /* bytes of workspace beyond which a faster engine is not worth it */
    MOST_FOR_A_RIVAL = 256 << 20
};

/* Grades of engines, the best first. */
enum grade { CLEAN, ROUNDS, CHANGES, GRADES };

struct candidates {
    cudnnBackendDescriptor_t config[MOST_CONFIGS];
    enum grade grade[MOST_CONFIGS];
    int64_t engine[MOST_CONFIGS];
    bool rounds[MOST_CONFIGS];
    int count;
    int taken; /* index of the plan's configuration */
};

static cudnnBackendDescriptor_t finish_graph(struct cddpi_cudnn_graph *graph,
                                             const struct cddpi_cudnn_target *target)
{
    cudnnBackendDescriptor_t made = cddpi_cudnn_make(graph,
                                                     CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    cddpi_cudnn_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    graph->operation_count, graph->operations);
    if (target->handle != NULL) {
        cddpi_cudnn_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                        &target->handle);
    }
    cddpi_cudnn_finalize(graph, made, "operation graph");
    return made;
}

static bool rounds(cudnnBackendNumericalNote_t note, bool tf32)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* tensor cores multiply float32 only as TF32 */
        return tf32;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: /* float32 as float16 */
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
    default:
        return false;
    }
}

/* The grade of a configuration's engine by its numerical notes. @p tf32: tensor cores would round
 * to TF32. */
static enum grade grade_of(const struct cddpi_cudnn *cudnn, cudnnBackendDescriptor_t config,
                           bool tf32, int64_t *out_engine, bool *out_rounds)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    enum grade grade = CLEAN;
    int64_t count = 0;

    *out_engine = -1;
    *out_rounds = true;
    if (cudnn->make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) {
        return CHANGES;
    }
    if (cudnn->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                   &engine) != CUDNN_STATUS_SUCCESS ||
        cudnn->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS) {
        grade = CHANGES;
        count = 0;
    } else {
        *out_rounds = false;
    }
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) {
            grade = CHANGES;
        } else if (rounds(notes[i], tf32)) {
            grade = grade < ROUNDS ? ROUNDS : grade;
            *out_rounds = true;
        }
    }
    cudnn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, out_engine);
    cudnn->unmake(engine);
    return grade;
}

/* If a heuristic offers nothing, that is not an error: another mode may. */
static void ask(struct cddpi_cudnn_graph *graph, const struct cddpi_cudnn_target *target,
                cudnnBackendDescriptor_t operations, cudnnBackendHeurMode_t mode,
                struct candidates *found)
{
    const struct cddpi_cudnn *cudnn = graph->cudnn;
    cudnnBackendDescriptor_t heuristics = cddpi_cudnn_make(graph,
                                                           CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t configs[CONFIGS_OF_A_MODE];
    int64_t wanted = CONFIGS_OF_A_MODE;
    int64_t count = 0;

    cddpi_cudnn_set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations);
    cddpi_cudnn_set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->properties != NULL) {
        cddpi_cudnn_set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
    }
    if (graph->status != CDDP_OK || cudnn->finalize(heuristics) != CUDNN_STATUS_SUCCESS) {
        return;
    }
    for (int64_t i = 0; i < wanted; i++) {
        configs[i] = cddpi_cudnn_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (graph->status != CDDP_OK ||
        cudnn->get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, wanted,
                   &count, configs) != CUDNN_STATUS_SUCCESS) {
        return;
    }
    for (int64_t i = 0; i < count && i < wanted; i++) {
        int at = found->count++;

        found->config[at] = configs[i];
        found->grade[at] = grade_of(cudnn, configs[i], graph->single && !target->tf32,
                                    &found->engine[at], &found->rounds[at]);
    }
}

/* NULL: this configuration cannot be built here. */
static cudnnBackendDescriptor_t build(const struct cddpi_cudnn *cudnn,
                                      cudnnBackendDescriptor_t config, int64_t *out_workspace)
{
    cudnnBackendDescriptor_t made = NULL;
    int64_t count = 0;
    bool good;

    if (cudnn->make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made) != CUDNN_STATUS_SUCCESS) {
        return NULL;
    }
    good = cudnn->set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      1, &config) == CUDNN_STATUS_SUCCESS &&
           cudnn->finalize(made) == CUDNN_STATUS_SUCCESS &&
           cudnn->get(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                      out_workspace) == CUDNN_STATUS_SUCCESS;
    if (!good) {
        cudnn->unmake(made);
        return NULL;
    }
    return made;
}

/* The first configuration that can be built and needs little memory, or else the first that can be
 * built. */
static bool build_first(struct cddpi_cudnn_plan *plan, struct candidates *found, enum grade grade)
{
    const struct cddpi_cudnn *cudnn = plan->graph.cudnn;

    for (int i = 0; i < found->count; i++) {
        int64_t workspace = 0;
        cudnnBackendDescriptor_t made = found->grade[i] == grade
                                            ? build(cudnn, found->config[i], &workspace)
                                            : NULL;

        if (made == NULL) {
            continue;
        }
        if (plan->plan != NULL && workspace > MOST_WORKSPACE) {
            cudnn->unmake(made);
            continue;
        }
        if (plan->plan != NULL) {
            cudnn->unmake(plan->plan);
        }
        plan->plan = made;
        plan->config = found->config[i];
        plan->workspace_bytes = (size_t)workspace;
        plan->engine = found->engine[i];
        found->taken = i;
        plan->reproducible = grade != CHANGES;
        plan->exact = !found->rounds[i];
        if (workspace <= MOST_WORKSPACE) {
            break;
        }
    }
    return plan->plan != NULL;
}

/* Those of the first @p count configurations that are equally exact and need little memory. */
static void build_alternatives(struct cddpi_cudnn_plan *plan, const struct candidates *found,
                               int count)
{
    const struct cddpi_cudnn *cudnn = plan->graph.cudnn;

    for (int i = 0; i < count && plan->alternative_count < CDDPI_CUDNN_ALTERNATIVES; i++) {
        int64_t workspace = 0;
        cudnnBackendDescriptor_t made = i == found->taken || (found->rounds[i] && plan->exact)
                                            ? NULL
                                            : build(cudnn, found->config[i], &workspace);

        if (made != NULL && workspace > MOST_FOR_A_RIVAL) {
            cudnn->unmake(made);
        } else if (made != NULL) {
            plan->alternatives[plan->alternative_count++] = (struct cddpi_cudnn_alternative){
                made, found->config[i], found->engine[i], found->grade[i] != CHANGES};
            if ((size_t)workspace > plan->workspace_bytes) {
                plan->workspace_bytes = (size_t)workspace;
            }
        }
    }
}

cddp_status cddpi_cudnn_plan_choose(struct cddpi_cudnn_plan *plan,
                                    const struct cddpi_cudnn_target *target)
{
    struct cddpi_cudnn_graph *graph = &plan->graph;
    cudnnBackendDescriptor_t operations = finish_graph(graph, target);
    struct candidates found = {.count = 0};
    char why[256] = "";
    int first_mode;

    ask(graph, target, operations, CUDNN_HEUR_MODE_A, &found);
    first_mode = found.count;
    ask(graph, target, operations, CUDNN_HEUR_MODE_FALLBACK, &found);
    if (graph->status != CDDP_OK) {
        return graph->status;
    }
    plan->tried = found.count;
    for (int grade = CLEAN; grade < GRADES; grade++) {
        if (build_first(plan, &found, (enum grade)grade)) {
            if (target->alternatives) {
                build_alternatives(plan, &found, first_mode);
            }
            return CDDP_OK;
        }
    }
    graph->cudnn->last_error(why, sizeof why);
    why[strcspn(why, "\n")] = '\0';
    return cuda_fail(graph->cudnn->device, CDDP_ERR_UNAVAILABLE,
                     "cuDNN %d.%d.%d: %s: none of %d engines can do it here (%s)",
                     graph->cudnn->version / 10000, graph->cudnn->version / 100 % 100,
                     graph->cudnn->version % 100, graph->what, found.count, why);
}

cddp_status cddpi_cudnn_plan_restore(struct cddpi_cudnn_plan *plan,
                                     const struct cddpi_cudnn_target *target,
                                     const struct cddpi_cudnn_config *config)
{
    struct cddpi_cudnn_graph *graph = &plan->graph;
    const struct cddpi_cudnn *cudnn = graph->cudnn;
    cudnnBackendDescriptor_t operations = finish_graph(graph, target);
    cudnnBackendDescriptor_t made;
    int64_t workspace = 0;
    bool inexact = true;

    CDDPI_TRY(graph->status);
    made = cddpi_cudnn_config_make(graph, target, operations, config);
    if (graph->status == CDDP_OK) {
        plan->plan = build(cudnn, made, &workspace);
    }
    graph->status = CDDP_OK; /* nothing is wrong with the graph */
    if (plan->plan == NULL) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE, "%s: engine %d cannot do it here",
                         graph->what, config->engine);
    }
    plan->reproducible = grade_of(cudnn, made, graph->single && !target->tf32, &plan->engine,
                                  &inexact) != CHANGES;
    plan->exact = !inexact;
    plan->config = made;
    plan->workspace_bytes = (size_t)workspace;
    plan->tried = 1;
    return CDDP_OK;
}

void cddpi_cudnn_plan_fini(struct cddpi_cudnn_plan *plan)
{
    while (plan->alternative_count > 0) {
        plan->graph.cudnn->unmake(plan->alternatives[--plan->alternative_count].plan);
    }
    if (plan->plan != NULL) {
        plan->graph.cudnn->unmake(plan->plan);
        plan->plan = NULL;
    }
    cddpi_cudnn_graph_fini(&plan->graph);
}

void cddpi_cudnn_bind(struct cddpi_cudnn_pointers *pointers, int64_t id, const void *pointer)
{
    pointers->ids[pointers->count] = id;
    /* cuDNN takes all pointers as void * */
    pointers->pointers[pointers->count++] = (void *)(uintptr_t)pointer;
}

cddp_status cddpi_cudnn_plan_execute(const struct cddpi_cudnn_plan *plan, cudnnHandle_t handle,
                                     const struct cddpi_cudnn_pointers *pointers, void *workspace)
{
    const struct cddpi_cudnn *cudnn = plan->graph.cudnn;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t code = cudnn->make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    if (code != CUDNN_STATUS_SUCCESS) {
        return cddpi_cudnn_failed(cudnn, code, plan->graph.what);
    }
    code = cudnn->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, pointers->count,
                      pointers->ids);
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnn->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                          pointers->count, pointers->pointers);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnn->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                          &workspace);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnn->finalize(pack);
    }
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cudnn->execute(handle, plan->plan, pack);
    }
    cudnn->unmake(pack);
    return code == CUDNN_STATUS_SUCCESS ? CDDP_OK
                                        : cddpi_cudnn_failed(cudnn, code, plan->graph.what);
}
