/* nccl_library.c - looks up NCCL's functions. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/library.h"

#include <stdio.h>

void cddpi_nccl_version_text(int version, char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static cddp_status look_up(const struct cddpi_device *device, struct nccl_library *nccl)
{
    char text[32];

#define LOOK_UP(member, symbol)                                                                    \
    *(void **)&nccl->member = cuda_library_symbol(nccl->handle, #symbol);                          \
    if (nccl->member == NULL) {                                                                    \
        return cddpi_transport_fail(device, CDDP_ERR_UNAVAILABLE,                                  \
                                    "libnccl.so.2 has no " #symbol ": it is too old, or damaged"); \
    }
    NCCL_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    if (nccl->get_version(&nccl->version) != ncclSuccess || nccl->version < NCCL_OLDEST) {
        cddpi_nccl_version_text(nccl->version, text, sizeof text);
        return cddpi_transport_fail(device, CDDP_ERR_UNAVAILABLE,
                                    "NCCL %s is too old: 2.18 or later is needed", text);
    }
#define LOOK_UP(member, symbol, since)                                                             \
    *(void **)&nccl->member = nccl->version >= (since)                                             \
                                  ? cuda_library_symbol(nccl->handle, #symbol)                     \
                                  : NULL;
    NCCL_NEWER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return CDDP_OK;
}

cddp_status cddpi_nccl_load(const struct cddpi_device *device, struct nccl_library *out)
{
    cddp_status status = cuda_library_open(CUDA_LIBRARY_NCCL, &out->handle);

    return status != CDDP_OK ? status : look_up(device, out);
}
