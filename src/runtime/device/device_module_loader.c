/* device_module_loader.c - owns the CUDA module's handle. */
#include "device/device_module_loader.h"

#include "base/error.h"

static struct cddpi_module_file file = {
    .title = "CUDA",
    .file = "libcddp-cuda.so",
    .at = CDDPI_ENV_CUDA_MODULE,
    .symbol = CDDPI_MODULE_SYMBOL,
    .built_in = "runtime/device/cuda/",
    .build_with = "-Dcuda=enabled",
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

cddp_status cddpi_module_open(const struct cddpi_module **out)
{
    const void *table;

    CDDPI_TRY(cddpi_module_file_open(&file, &table));
    *out = table;
    return CDDP_OK;
}
