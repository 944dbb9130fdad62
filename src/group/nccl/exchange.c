/* exchange.c - pieces of device memory between any two ranks, all at once. */
#include "group/nccl/nccl_plane.h"

cddp_status cddpi_nccl_copy(struct cddpi_plane *plane, void *to, const void *from, size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(plane->device,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, plane->stream));
}

/* Calls inside a group are only noted: none of them is in progress before its end. */
static ncclResult_t note(struct cddpi_plane *plane, const struct nccl_parcel *parcel, int peer)
{
    ncclResult_t result = ncclSuccess;

    if (parcel->out_bytes > 0) {
        result = plane->nccl.send(parcel->out, parcel->out_bytes, ncclUint8, peer, plane->comm,
                                  plane->stream);
    }
    if ((result == ncclSuccess || result == ncclInProgress) && parcel->in_bytes > 0) {
        result = plane->nccl.recv(parcel->in, parcel->in_bytes, ncclUint8, peer, plane->comm,
                                  plane->stream);
    }
    return result == ncclInProgress ? ncclSuccess : result;
}

cddp_status cddpi_nccl_exchange(struct cddpi_plane *plane, const struct nccl_parcel *parcels)
{
    const struct nccl_parcel *own = &parcels[plane->rank];
    ncclResult_t result = plane->nccl.group_start();
    ncclResult_t end;
    cddp_status status;

    for (int i = 1; i < plane->size && result == ncclSuccess; i++) {
        int peer = (plane->rank + i) % plane->size;

        result = note(plane, &parcels[peer], peer);
    }
    end = plane->nccl.group_end(); /* also after a failure, or the next call would be part of it */
    status = cddpi_nccl_settle(plane, result != ncclSuccess ? result : end, "send and receive");
    return status != CDDP_OK ? status : cddpi_nccl_copy(plane, own->in, own->out, own->in_bytes);
}
