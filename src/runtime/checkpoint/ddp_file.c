/* ddp_file.c - owns the files that hold a handle's whole model: rank 0 writes and reads them, and
 * every rank gets the same status. What is on a device goes through memory of the CPU. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "ddp/ddp_create.h"
#include "ddp/ddp_shard.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <cddp/checkpoint.h>
#include <cddp/ddp.h>

/* The parameters of a handle, then its buffers, as a file has them. */
struct listing {
    cddp_param *tensors; /* `data` is in the CPU's memory: the tensor itself, or in `staged` */
    cddp_tensor *read_only;
    size_t count;
    unsigned char *staged; /* for what is on the device; NULL: nothing is */
};

static const struct cddpi_param *tensor_at(const cddp_ddp *ddp, size_t index)
{
    return index < ddp->param_count ? &ddp->params[index] : &ddp->buffers[index - ddp->param_count];
}

static size_t bytes_of(const struct cddpi_param *tensor)
{
    return tensor->count * cddp_type_bytes(tensor->type);
}

static bool is_staged(const cddp_ddp *ddp, const struct cddpi_param *tensor)
{
    return cddpi_device_is_async(ddp->device) && ddp->device->ops->owns(ddp->device, tensor->data);
}

static size_t staged_bytes(const struct cddpi_param *tensor)
{
    return cddpi_align(bytes_of(tensor));
}

static void release(struct listing *listing)
{
    cddpi_free(listing->tensors);
    cddpi_free(listing->read_only);
    cddpi_free(listing->staged);
}

static cddp_status list(const cddp_ddp *ddp, struct listing *out)
{
    size_t count = ddp->param_count + ddp->buffer_count;
    const int64_t *shape = ddp->shapes;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += is_staged(ddp, tensor_at(ddp, i)) ? staged_bytes(tensor_at(ddp, i)) : 0;
    }
    out->count = count;
    out->tensors = cddpi_zalloc_array(count, sizeof *out->tensors);
    out->read_only = cddpi_zalloc_array(count, sizeof *out->read_only);
    out->staged = bytes > 0 ? cddpi_zalloc(bytes) : NULL;
    if (out->tensors == NULL || out->read_only == NULL || (out->staged == NULL && bytes > 0)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu tensors, %zu bytes of them on %s",
                          count, bytes, ddp->device->ops->name);
    }
    bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct cddpi_param *tensor = tensor_at(ddp, i);
        cddp_param *listed = &out->tensors[i];

        listed->name = tensor->name;
        listed->type = tensor->type;
        listed->dims = ddp->dims[i];
        memcpy(listed->shape, shape, ddp->dims[i] * sizeof *shape);
        shape += ddp->dims[i];
        listed->data = is_staged(ddp, tensor) ? out->staged + bytes : tensor->data;
        bytes += is_staged(ddp, tensor) ? staged_bytes(tensor) : 0;
    }
    return cddp_tensors_of(out->tensors, count, out->read_only);
}

/* Copy what is staged from the device, or to it if @p up, and wait for the device. */
static cddp_status move_staged(const cddp_ddp *ddp, const struct listing *listing, bool up)
{
    for (size_t i = 0; i < listing->count && listing->staged != NULL; i++) {
        const struct cddpi_param *tensor = tensor_at(ddp, i);
        void *there = tensor->data;
        void *here = listing->tensors[i].data;

        if (there != here) {
            CDDPI_TRY(cddpi_ddp_copy(ddp, up ? there : here, up ? here : there, bytes_of(tensor)));
        }
    }
    return listing->staged != NULL
               ? ddp->device->ops->finish(ddp->device, cddpi_group_timeout_ms(ddp->group))
               : CDDP_OK;
}

static cddp_status write_file(const cddp_ddp *ddp, const char *path, const char *const *metadata,
                              struct listing *listing)
{
    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "path is NULL");
    }
    CDDPI_TRY(list(ddp, listing));
    CDDPI_TRY(move_staged(ddp, listing, false));
    return cddp_safetensors_write(path, listing->read_only, listing->count, metadata);
}

static cddp_status read_file(const cddp_ddp *ddp, const char *path, struct listing *listing)
{
    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "path is NULL");
    }
    CDDPI_TRY(list(ddp, listing));
    CDDPI_TRY(cddp_safetensors_load(path, listing->tensors, listing->count));
    return move_staged(ddp, listing, true);
}

/* Begin @p call: the handle is between two steps, and each rank has all parameters. */
static cddp_status settle(cddp_ddp *ddp, const char *call)
{
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    if (ddp->backward.begun || ddp->backward.done > 0) {
        return cddpi_fail(CDDP_ERR_INCOMPLETE, "ddp: %s in the middle of a step", call);
    }
    return cddpi_ddp_params_whole(ddp);
}

/* What became of rank 0's file, on all ranks. */
static cddp_status agree(cddp_ddp *ddp, const char *call, cddp_status own)
{
    if (own != CDDP_OK) {
        (void)cddpi_fail_prefix(own, "ddp: %s", call);
    }
    return cddpi_agree(ddp->group, own);
}

cddp_status cddp_ddp_save(cddp_ddp *ddp, const char *path, const char *const *metadata)
{
    struct listing listing = {NULL, NULL, 0, NULL};
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_save");
    CDDPI_TRY(settle(ddp, "save"));
    status = ddp->rank == 0 ? write_file(ddp, path, metadata, &listing) : CDDP_OK;
    release(&listing);
    return agree(ddp, "save", status);
}

cddp_status cddp_ddp_load(cddp_ddp *ddp, const char *path)
{
    struct listing listing = {NULL, NULL, 0, NULL};
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_load");
    CDDPI_TRY(settle(ddp, "load"));
    status = ddp->rank == 0 ? read_file(ddp, path, &listing) : CDDP_OK;
    release(&listing);
    CDDPI_TRY(agree(ddp, "load", status));
    return cddp_ddp_broadcast(ddp, 0, CDDP_BROADCAST_PARAMS | CDDP_BROADCAST_BUFFERS);
}
