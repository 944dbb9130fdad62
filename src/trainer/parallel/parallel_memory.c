/* parallel_memory.c - counts the memory that models hold. */
#include "parallel/parallel_memory.h"

#include "base/shape.h"

size_t cddpi_tensors_bytes(const cddp_param *tensors, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += cddpi_elements(tensors[i].dims, tensors[i].shape) *
                 cddp_type_bytes(tensors[i].type);
    }
    return bytes;
}

void cddpi_held_memory_add_model(struct cddpi_held_memory *memory, const struct cddpi_model *model)
{
    size_t count;
    const cddp_param *tensors = cddpi_model_params(model, &count);

    memory->parameters += cddpi_tensors_bytes(tensors, count);
    for (size_t i = 0; i < count; i++) {
        memory->parameters += cddpi_model_param_copy_count(model, i) *
                              cddp_type_bytes(cddpi_model_copy_type(model));
    }
    tensors = cddpi_model_buffers(model, &count);
    memory->parameters += cddpi_tensors_bytes(tensors, count);
    memory->activations += cddpi_model_arena_bytes(model);
}
