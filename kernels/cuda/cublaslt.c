/* cublaslt.c - owns how cuBLASLt is found. With CDDPI_CUBLASLT_LINKED (the emulated module) its
 * functions are those that are linked in. */
#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>

#ifdef CDDPI_CUBLASLT_LINKED

const char *cddpi_cublaslt_open(struct cddpi_cublaslt *out)
{
#define TAKE(member, symbol) .member = symbol,
    *out = (struct cddpi_cublaslt){.library = NULL, CDDPI_CUBLASLT_FUNCTIONS(TAKE)};
    return NULL;
}

void cddpi_cublaslt_close(struct cddpi_cublaslt *lt)
{
    (void)lt;
}

#else

/* What is used here is the same in 12 and 13; the toolkit's own comes first. */
static const char *const files[] = {
#if CUBLAS_VER_MAJOR < 13
    "libcublasLt.so.12",
    "libcublasLt.so.13",
#else
    "libcublasLt.so.13",
    "libcublasLt.so.12",
#endif
};

const char *cddpi_cublaslt_open(struct cddpi_cublaslt *out)
{
    struct cddpi_cublaslt lt = {.library = NULL};
    const char *why = NULL;

    for (size_t i = 0; i < sizeof files / sizeof files[0] && lt.library == NULL; i++) {
        lt.library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        why = lt.library == NULL && why == NULL ? dlerror() : why;
    }
    if (lt.library == NULL) {
        return why;
    }
#define LOOK_UP(member, symbol)                                                                    \
    *(void **)&lt.member = dlsym(lt.library, #symbol);                                             \
    if (lt.member == NULL) {                                                                       \
        dlclose(lt.library);                                                                       \
        return "it lacks " #symbol;                                                                \
    }
    CDDPI_CUBLASLT_FUNCTIONS(LOOK_UP)
    *out = lt;
    return NULL;
}

void cddpi_cublaslt_close(struct cddpi_cublaslt *lt)
{
    if (lt->library != NULL) {
        dlclose(lt->library);
        lt->library = NULL;
    }
}

#endif
