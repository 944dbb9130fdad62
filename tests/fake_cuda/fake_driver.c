/* fake_driver.c - the driver calls that the module looks up: streams that wait for a word in memory
 * or write one. */
#include "fake_cuda/fake.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>

struct word_write {
    volatile uint32_t *word;
    uint32_t value;
};

static void run_write(void *closure)
{
    const struct word_write *write = closure;

    __atomic_store_n(write->word, write->value, __ATOMIC_RELEASE);
}

static CUresult result_of(cudaError_t error)
{
    return error == cudaSuccess ? CUDA_SUCCESS : (CUresult)error; /* both enums have the same
                                                                     values */
}

/* Whether a stream can access @p word: an aligned word of device memory or pinned host memory. */
static bool is_word(const volatile uint32_t *word)
{
    bool whole;
    enum fake_memory kind = fake_memory_of((const void *)(uintptr_t)word, 4, &whole, NULL);

    return kind != FAKE_NONE && whole && (uintptr_t)word % 4 == 0;
}

static CUresult stream_write_value(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    struct word_write *write;

    if (error != cudaSuccess) {
        return result_of(error);
    }
    if (!is_word((volatile uint32_t *)(uintptr_t)address) ||
        flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
        return result_of(fake_leave(cudaErrorInvalidValue));
    }
    write = fake_zalloc(sizeof *write);
    *write = (struct word_write){(volatile uint32_t *)(uintptr_t)address, value};
    return result_of(fake_leave(fake_put_closure(fake_stream_of(stream), run_write, write, free)));
}

static CUresult stream_wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned int flags)
{
    struct fake_work work = {.kind = FAKE_WAIT_VALUE,
                             .word = (volatile uint32_t *)(uintptr_t)address,
                             .value = value,
                             .flags = flags};
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return result_of(error);
    }
    if (!is_word(work.word) || flags > 3) {
        return result_of(fake_leave(cudaErrorInvalidValue));
    }
    return result_of(fake_leave(fake_put(fake_stream_of(stream), &work)));
}

static CUresult get_error_name(CUresult error, const char **out)
{
    *out = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

static CUresult get_error_string(CUresult error, const char **out)
{
    *out = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

static const struct {
    const char *name;
    void (*function)(void);
} symbols[] = {
    {"cuStreamWaitValue32", (void (*)(void))stream_wait_value},
    {"cuStreamWriteValue32", (void (*)(void))stream_write_value},
    {"cuGetErrorName", (void (*)(void))get_error_name},
    {"cuGetErrorString", (void (*)(void))get_error_string},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    cudaError_t error = fake_enter();

    (void)version;
    (void)flags;
    if (error != cudaSuccess) {
        return error;
    }
    *out = NULL;
    *found = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        bool absent = !fake.config.wait_value && strncmp(symbol, "cuStreamW", 9) == 0;

        if (!absent && strcmp(symbols[i].name, symbol) == 0) {
            memcpy(out, &symbols[i].function, sizeof *out);
            *found = cudaDriverEntryPointSuccess;
        }
    }
    if (*found != cudaDriverEntryPointSuccess) {
        void (*function)(void) = fake_memops_symbol(symbol);

        memcpy(out, &function, sizeof *out);
        *found = function != NULL ? cudaDriverEntryPointSuccess : *found;
    }
    return fake_leave(cudaSuccess);
}
