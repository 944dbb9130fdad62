/* cudnn_library.c - owns the functions of libcudnn.so.9, and words its errors. */
#include "kernels/cuda/cudnn/cudnn_library.h"

#include "base/error.h"

#include <dlfcn.h>
#include <string.h>

/* In earlier versions, attention's backward was wrong for some shapes (NVIDIA's release notes of
 * 9.10.2). */
enum { OLDEST = 91002 };

static cddp_status look_up(struct cddpi_cudnn *cudnn, const char *name, void *member)
{
    void *symbol = dlsym(cudnn->library, name);

    if (symbol == NULL) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE,
                         "libcudnn.so.9 has no %s: is it cuDNN 9?", name);
    }
    /* ISO C has no cast from data pointers to function pointers */
    memcpy(member, &symbol, sizeof symbol);
    return CDDP_OK;
}

static cddp_status look_up_all(struct cddpi_cudnn *cudnn)
{
#define LOOK_UP(member, symbol) CDDPI_TRY(look_up(cudnn, #symbol, &cudnn->member));
    CDDPI_CUDNN_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    cudnn->version = (int)cudnn->get_version();
    if (cudnn->version < OLDEST) {
        return cuda_fail(cudnn->device, CDDP_ERR_UNAVAILABLE,
                         "cuDNN %d.%d.%d is too old: 9.10.2 or later is needed",
                         cudnn->version / 10000, cudnn->version / 100 % 100, cudnn->version % 100);
    }
    return CDDP_OK;
}

cddp_status cddpi_cudnn_look_up(struct cddpi_device *device, void *library, struct cddpi_cudnn *out)
{
    struct cddpi_cudnn cudnn = {.device = device, .library = library};

    CDDPI_TRY(look_up_all(&cudnn));
    *out = cudnn;
    return CDDP_OK;
}

static cddp_status status_of(cudnnStatus_t code)
{
    /* Each thousand is a category: 3000 to 3999 all mean "not supported". */
    if (code >= CUDNN_STATUS_NOT_SUPPORTED && code < CUDNN_STATUS_INTERNAL_ERROR) {
        return CDDP_ERR_UNAVAILABLE;
    }
    return code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                   code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
               ? CDDP_ERR_NO_MEMORY
               : CDDP_ERR_DEVICE;
}

cddp_status cddpi_cudnn_failed(const struct cddpi_cudnn *cudnn, cudnnStatus_t code,
                               const char *what)
{
    char why[256] = "";

    cudnn->last_error(why, sizeof why);
    why[strcspn(why, "\n")] = '\0';
    return cuda_fail(cudnn->device, status_of(code), "cuDNN %d.%d.%d: %s: %s%s%s%s",
                     cudnn->version / 10000, cudnn->version / 100 % 100, cudnn->version % 100, what,
                     cudnn->error_name(code), why[0] != '\0' ? " (" : "", why,
                     why[0] != '\0' ? ")" : "");
}
