/* nccl_exchange.c - exchanges pieces of device memory between any two ranks, all at once. */
#include "group/cuda/nccl/nccl_transport.h"

cddp_status cddpi_nccl_copy(struct nccl_transport *transport, void *to, const void *from,
                            size_t bytes)
{
    if (bytes == 0 || to == from) {
        return CDDP_OK;
    }
    return CUDA_CHECK(transport->device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                                         transport->stream));
}

/* Enqueue one peer's transfers. NCCL starts the calls inside a group only at the group's end. */
static ncclResult_t note(struct nccl_transport *transport, const struct nccl_transfer *transfer,
                         int peer)
{
    ncclResult_t result = ncclSuccess;

    if (transfer->out_bytes > 0) {
        result = transport->nccl.send(transfer->out, transfer->out_bytes, ncclUint8, peer,
                                      transport->comm, transport->stream);
    }
    if ((result == ncclSuccess || result == ncclInProgress) && transfer->in_bytes > 0) {
        result = transport->nccl.recv(transfer->in, transfer->in_bytes, ncclUint8, peer,
                                      transport->comm, transport->stream);
    }
    return result == ncclInProgress ? ncclSuccess : result;
}

cddp_status cddpi_nccl_exchange(struct nccl_transport *transport,
                                const struct nccl_transfer *transfers)
{
    const struct nccl_transfer *own = &transfers[transport->rank];
    ncclResult_t result = transport->nccl.group_start();
    ncclResult_t end;
    cddp_status status;

    for (int i = 1; i < transport->size && result == ncclSuccess; i++) {
        int peer = (transport->rank + i) % transport->size;

        result = note(transport, &transfers[peer], peer);
    }
    end = transport->nccl.group_end(); /* also after a failure, otherwise the next call would be
                                          part of the group */
    status = cddpi_nccl_await(transport, result != ncclSuccess ? result : end, "send and receive");
    return status != CDDP_OK ? status
                             : cddpi_nccl_copy(transport, own->in, own->out, own->in_bytes);
}
