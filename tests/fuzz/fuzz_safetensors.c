/* fuzz_safetensors.c - a whole safetensors file from a stranger. */
#include "fuzz/fuzz.h"

#include <cddp/checkpoint.h>

#include <string.h>

static size_t bytes_of(const cddp_tensor *tensor)
{
    size_t bytes = cddp_type_bytes(tensor->type);

    for (int i = 0; i < tensor->dims; i++) {
        bytes *= (size_t)tensor->shape[i];
    }
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("model.safetensors", data, size);
    float weight[4];
    cddp_param into = {.name = "w", .dims = 2, .shape = {2, 2}, .data = weight};
    cddp_safetensors *file = NULL;

    if (cddp_safetensors_open(path, &file) == CDDP_OK) {
        size_t count = cddp_safetensors_count(file);
        size_t total = 0;
        const char *format = cddp_safetensors_metadata(file, "format");

        for (size_t i = 0; i < count; i++) {
            const cddp_tensor *tensor = cddp_safetensors_at(file, i);

            total += bytes_of(tensor);
            fuzz_check(total <= size, "tensors are longer than their file");
            fuzz_touch(tensor->data, bytes_of(tensor));
            fuzz_check(cddp_safetensors_find(file, tensor->name) == tensor,
                       "a tensor is not found by its name");
        }
        fuzz_touch(format, format != NULL ? strlen(format) : 0);
        fuzz_check(cddp_safetensors_at(file, count) == NULL, "one tensor too many");
    }
    cddp_safetensors_close(file);
    (void)!cddp_safetensors_load(path, &into, 1);
    return 0;
}
