/* kernels.c - gives the kernels what they need from a device (kernels/cuda/kernels_module.h). */
#include "device/cuda/cuda_internal.h"
#include "kernels/cuda/services.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cudaStream_t compute_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
}

static cudaStream_t comm_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMM);
}

static cddp_status copy(struct cddpi_device *device, void *to, const void *from, size_t bytes)
{
    return cuda_copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes);
}

static cddp_status clear(struct cddpi_device *device, void *memory, size_t bytes)
{
    return cuda_clear(device, CDDPI_STREAM_COMPUTE, memory, bytes);
}

static size_t multiprocessors(const struct cddpi_device *device)
{
    return (size_t)((const struct cuda_device *)(const void *)device)->multiprocessors;
}

static const struct cddpi_cuda_kernels *rows(struct cddpi_device *device)
{
    return device->kernels;
}

enum { DEVICE_BYTES = 320, VARIABLE_BYTES = 320 };

/* Variables that change what cuBLASLt and cuDNN propose or compute. */
static const char *const variables[] = {"NVIDIA_TF32_OVERRIDE",
                                        "CUBLASLT_HEURISTICS_LUT_FILE",
                                        "CUBLAS_EMULATE_SINGLE_PRECISION",
                                        "CUBLAS_EMULATION_STRATEGY",
                                        "CUBLAS_EMULATION_SPECIAL_VALUES_SUPPORT_MASK",
                                        "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT"};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

/* Append those that are set. */
static void add_variables(char *text, size_t room)
{
    size_t at = strlen(text);

    for (int i = 0; i < VARIABLES && at < room; i++) {
        const char *value = getenv(variables[i]);

        if (value != NULL) {
            at += (size_t)snprintf(text + at, room - at, ", %s=%.255s", variables[i], value);
        }
    }
}

static struct cddpi_tuning *tuning(struct cddpi_device *device, const char *subject,
                                   const char *library)
{
    const struct cuda_device *self = cuda_device_of(device);
    char identity[DEVICE_BYTES + VARIABLES * VARIABLE_BYTES];
    int driver = 0;
    int runtime = 0;

    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    snprintf(identity, DEVICE_BYTES,
             "%s, compute capability %d.%d, %d multiprocessors, driver %d, runtime %d, %s",
             device->title, self->capability / 10, self->capability % 10, self->multiprocessors,
             driver, runtime, library);
    add_variables(identity, sizeof identity);
    return cddpi_tuning_open(subject, identity);
}

static struct cddpi_cuda_cache *cache(struct cddpi_device *device, enum cddpi_cuda_cache_kind kind)
{
    return &cuda_device_of(device)->caches[kind];
}

void cuda_kernels_serve(void)
{
    static const struct cddpi_cuda_services services = {
        .compute_stream = compute_stream,
        .comm_stream = comm_stream,
        .status = cuda_failed_call,
        .fail = cuda_word_failure,
        .alloc = cuda_alloc,
        .release = cuda_release,
        .pin = cuda_pin,
        .unpin = cuda_unpin,
        .copy = copy,
        .clear = clear,
        .multiprocessors = multiprocessors,
        .rows = rows,
        .tuning = tuning,
        .cache = cache,
    };

    cddpi_cuda_services_use(&services);
}
