/* library.c - opens NVIDIA's libraries at run time, so that the module loads where some are
 * missing. The loader looks in LD_LIBRARY_PATH, in the folders where they were when the module was
 * built (its run path), and in the system's. */
#include "device/cuda/internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#if CUDART_VERSION >= 13000
#define LT_NAME "libcublasLt.so.13"
#define COMPILER_NAME "libnvrtc.so.13"
#else
#define LT_NAME "libcublasLt.so.12"
#define COMPILER_NAME "libnvrtc.so.12"
#endif

static struct {
    const char *name;
    const char *purpose;
    void *handle;
} libraries[CUDA_LIBRARY_COUNT] = {
    [CUDA_LIBRARY_CUBLASLT] = {LT_NAME, "products", NULL},
    [CUDA_LIBRARY_CUDNN] = {"libcudnn.so.9", "convolutions", NULL},
    [CUDA_LIBRARY_NCCL] = {"libnccl.so.2", "collectives between GPUs", NULL},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* cuDNN opens cuBLASLt, and the compiler of its attention, by name and from its own folders, which
 * in a toolkit's do not lead to them; what is open already it takes. Without them it has fewer
 * engines, which shows when one is wanted. */
static void open_helpers(void)
{
    void *compiler = dlopen(COMPILER_NAME, RTLD_NOW | RTLD_LOCAL);
    int (*version)(int *major, int *minor) = NULL;
    char name[64];
    int major, minor;

    dlopen(LT_NAME, RTLD_NOW | RTLD_LOCAL);
    if (compiler != NULL) {
        *(void **)&version = dlsym(compiler, "nvrtcVersion");
    }
    if (version != NULL && version(&major, &minor) == 0) {
        snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
        dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
}

cddp_status cuda_library_open(const struct cddpi_module_host *host, enum cuda_library library,
                              void **out)
{
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&lock);
    if (libraries[library].handle == NULL) {
        if (library == CUDA_LIBRARY_CUDNN) {
            open_helpers();
        }
        libraries[library].handle = dlopen(libraries[library].name, RTLD_NOW | RTLD_LOCAL);
    }
    if (libraries[library].handle == NULL) {
        const char *reason = dlerror();

        status = cuda_host_fail(host, CDDP_ERR_UNAVAILABLE, "%s (%s) cannot be opened: %s",
                                libraries[library].name, libraries[library].purpose,
                                reason != NULL ? reason : "no reason given");
    } else {
        *out = libraries[library].handle;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void *cuda_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
