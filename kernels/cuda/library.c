/* library.c - opens NVIDIA's libraries at run time, so that the module loads where some are
 * missing.
 *
 * The loader searches LD_LIBRARY_PATH, the folders where the libraries were when the module was
 * built (its run path), and the system's folders, for each library separately. So some could come
 * from the system and some from Python's wheels. But each is built and tested with the others of
 * its release, and cuDNN calls cuBLASLt, so such a mix is rejected unless it is requested. */
#include "kernels/cuda/library.h"

#include "base/error.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    char *place; /* the wheels' folder; "": the system; NULL: not opened yet. Never freed */
} libraries[CUDA_LIBRARY_COUNT] = {
    [CUDA_LIBRARY_CUBLASLT] = {LT_NAME, "products", NULL, NULL},
    [CUDA_LIBRARY_CUDNN] = {"libcudnn.so.9", "convolutions", NULL, NULL},
    [CUDA_LIBRARY_NCCL] = {"libnccl.so.2", "collectives between GPUs", NULL, NULL},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* cuDNN opens cuBLASLt, and the compiler for its attention, by name. Its own search folders do not
 * lead to those of a toolkit, but it uses libraries that are already open, so open them first.
 * Without them cuDNN has fewer engines, which shows when one is needed. */
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

/* Wheels are side by side: .../site-packages/nvidia/cudnn/lib/libcudnn.so.9. Everything else counts
 * as the system, where a toolkit and the packages of cuDNN and NCCL have separate folders. */
static void name_place(void *handle, char *out, size_t bytes)
{
    static const char wheels[] = "-packages/nvidia/";
    struct link_map *map = NULL;
    const char *at = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
        at = strstr(map->l_name, wheels);
    }
    snprintf(out, bytes, "%.*s", at != NULL ? (int)(at - map->l_name + (long)sizeof wheels - 2) : 0,
             at != NULL ? map->l_name : "");
}

static const char *place_text(const char *place)
{
    return place[0] != '\0' ? place : "the system";
}

static bool mix_is_wanted(void)
{
    const char *wanted = getenv("CDDP_MIXED_LIBRARIES");

    return wanted != NULL && strcmp(wanted, "1") == 0;
}

/* Keep an opened library, if it comes from the same place as the others. */
static cddp_status take_library(enum cuda_library library, void *handle)
{
    char place[4096];

    name_place(handle, place, sizeof place);
    for (int other = 0; other < CUDA_LIBRARY_COUNT && !mix_is_wanted(); other++) {
        if (libraries[other].place != NULL && strcmp(libraries[other].place, place) != 0) {
            return cddpi_fail(
                CDDP_ERR_CONFIG,
                "%s (%s) is from %s, but %s from %s: NVIDIA's libraries are tested as they come "
                "together; let LD_LIBRARY_PATH name one place with all of them, or set "
                "CDDP_MIXED_LIBRARIES=1",
                libraries[library].name, libraries[library].purpose, place_text(place),
                libraries[other].name, place_text(libraries[other].place));
        }
    }
    libraries[library].place = strdup(place);
    if (libraries[library].place == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the path of %s",
                          libraries[library].name);
    }
    libraries[library].handle = handle;
    return CDDP_OK;
}

static cddp_status open_locked(enum cuda_library library)
{
    const char *reason;
    void *handle;

    if (library == CUDA_LIBRARY_CUDNN) {
        open_helpers();
    }
    handle = dlopen(libraries[library].name, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) {
        return take_library(library, handle);
    }
    reason = dlerror();
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s (%s) cannot be opened: %s", libraries[library].name,
                      libraries[library].purpose, reason != NULL ? reason : "no reason given");
}

cddp_status cuda_library_open(enum cuda_library library, void **out)
{
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&lock);
    if (libraries[library].handle == NULL) {
        status = open_locked(library);
    }
    if (status == CDDP_OK) {
        *out = libraries[library].handle;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

cddp_status cuda_nvml_open(void **out)
{
    static const char name[] = "libnvidia-ml.so.1";
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *reason = handle == NULL ? dlerror() : NULL;

    if (handle == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s cannot be opened: %s", name,
                          reason != NULL ? reason : "no reason given");
    }
    *out = handle;
    return CDDP_OK;
}

void cuda_libraries_describe(char *out, size_t bytes)
{
    const char *first = NULL;
    bool mixed = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < CUDA_LIBRARY_COUNT; i++) {
        first = first == NULL ? libraries[i].place : first;
        mixed = mixed || (libraries[i].place != NULL && strcmp(libraries[i].place, first) != 0);
    }
    if (mixed) {
        snprintf(out, bytes, "from several places, as CDDP_MIXED_LIBRARIES allows");
    } else {
        snprintf(out, bytes, "%s%s", first != NULL ? "from " : "no: there are none",
                 first != NULL ? place_text(first) : "");
    }
    pthread_mutex_unlock(&lock);
}

void *cuda_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}
