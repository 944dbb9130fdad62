/* cudnn_config.c - an engine and its knobs as numbers that can be stored, and back.
 *
 * Follows NVIDIA's "cuDNN backend API": ENGINE (global index), KNOB_CHOICE, ENGINECFG. Numbers mean
 * the same only with one version of cuDNN. */
#include "kernels/cuda/cudnn/cudnn_plan.h"

size_t cddpi_cudnn_config_bytes(const struct cddpi_cudnn_config *config)
{
    return offsetof(struct cddpi_cudnn_config, knobs) +
           (size_t)config->knob_count * sizeof config->knobs[0];
}

bool cddpi_cudnn_config_is_whole(const struct cddpi_cudnn_config *config, size_t bytes)
{
    return bytes >= offsetof(struct cddpi_cudnn_config, knobs) && config->knob_count >= 0 &&
           config->knob_count <= CDDPI_CUDNN_KNOBS && config->engine >= 0 &&
           bytes == cddpi_cudnn_config_bytes(config);
}

static bool read_knob(const struct cddpi_cudnn *cudnn, cudnnBackendDescriptor_t knob,
                      struct cddpi_cudnn_knob *out)
{
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t value = -1;
    int64_t count = 0;

    if (cudnn->get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count,
                   &type) != CUDNN_STATUS_SUCCESS ||
        cudnn->get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count, &value) !=
            CUDNN_STATUS_SUCCESS ||
        value < INT32_MIN || value > INT32_MAX) {
        return false;
    }
    *out = (struct cddpi_cudnn_knob){(int32_t)type, (int32_t)value};
    return true;
}

bool cddpi_cudnn_config_read(const struct cddpi_cudnn *cudnn, cudnnBackendDescriptor_t config,
                             int64_t engine, struct cddpi_cudnn_config *out)
{
    cudnnBackendDescriptor_t knobs[CDDPI_CUDNN_KNOBS] = {NULL};
    int made = 0;
    int64_t count = 0;
    bool good = config != NULL && engine >= 0 && engine <= INT32_MAX;

    while (good && made < CDDPI_CUDNN_KNOBS) {
        good = cudnn->make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[made]) ==
               CUDNN_STATUS_SUCCESS;
        made += good;
    }
    good = good &&
           cudnn->get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      CDDPI_CUDNN_KNOBS, &count, knobs) == CUDNN_STATUS_SUCCESS &&
           count >= 0 && count <= CDDPI_CUDNN_KNOBS;
    *out = (struct cddpi_cudnn_config){.engine = (int32_t)engine, .knob_count = (int32_t)count};
    for (int i = 0; good && i < out->knob_count; i++) {
        good = read_knob(cudnn, knobs[i], &out->knobs[i]);
    }
    while (made > 0) {
        cudnn->unmake(knobs[--made]);
    }
    return good;
}

static cudnnBackendDescriptor_t make_knob(struct cddpi_cudnn_graph *graph,
                                          const struct cddpi_cudnn_knob *knob)
{
    cudnnBackendDescriptor_t made = cddpi_cudnn_make(graph, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)knob->type;
    int64_t value = knob->value;

    cddpi_cudnn_set(graph, made, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    cddpi_cudnn_finalize(graph, made, "knob of an engine");
    return made;
}

cudnnBackendDescriptor_t cddpi_cudnn_config_make(struct cddpi_cudnn_graph *graph,
                                                 const struct cddpi_cudnn_target *target,
                                                 cudnnBackendDescriptor_t operations,
                                                 const struct cddpi_cudnn_config *config)
{
    cudnnBackendDescriptor_t engine = cddpi_cudnn_make(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t made = cddpi_cudnn_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t knobs[CDDPI_CUDNN_KNOBS];
    int64_t index = config->engine;

    cddpi_cudnn_set(graph, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    1, &operations);
    cddpi_cudnn_set(graph, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (target->properties != NULL) {
        cddpi_cudnn_set(graph, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        1, &target->properties);
    }
    cddpi_cudnn_finalize(graph, engine, "engine");
    for (int i = 0; i < config->knob_count; i++) {
        knobs[i] = make_knob(graph, &config->knobs[i]);
    }
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &engine);
    if (config->knob_count > 0) {
        cddpi_cudnn_set(graph, made, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, config->knob_count, knobs);
    }
    cddpi_cudnn_finalize(graph, made, "configuration of an engine");
    return made;
}
