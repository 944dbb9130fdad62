/* recovery_arrays.c - owns the arrays that a program registers, those of a cddp_ddp among them.
 * What is on a device goes through memory of the CPU. */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/types.h"
#include "ddp/ddp.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/group_info.h"
#include "recovery/recovery.h"

#include <string.h>

/* Give an array on the device a copy in host memory. */
static cddp_status make_copy(cddp_recovery *recovery, const struct cddpi_recovery_entry *entry,
                             unsigned char **out)
{
    struct cddpi_device *device = recovery->device;
    struct cddpi_recovery_copy *copies = cddpi_grow(recovery->copies, &recovery->copy_room,
                                                    recovery->copy_count + 1, sizeof *copies);
    void *memory = NULL;

    CDDPI_TRY_MEMORY(copies != NULL, "recovery: no memory for a list of arrays");
    recovery->copies = copies;
    CDDPI_TRY(device->ops->pin(device, (size_t)entry->bytes, &memory));
    copies[recovery->copy_count++] = (struct cddpi_recovery_copy){.there = entry->data,
                                                                  .here = memory,
                                                                  .bytes = entry->bytes,
                                                                  .first = entry->kept -
                                                                           entry->first,
                                                                  .count = entry->kept_bytes};
    *out = memory;
    return CDDP_OK;
}

cddp_status cddpi_recovery_enter(cddp_recovery *recovery, const struct cddpi_recovery_entry *entry)
{
    struct cddpi_device *device = recovery->device;
    unsigned char *data = entry->data;

    if (entry->bytes == 0) {
        return CDDP_OK;
    }
    if (cddpi_device_is_async(device) && device->ops->owns(device, data)) {
        CDDPI_TRY(make_copy(recovery, entry, &data));
    }
    CDDPI_TRY(
        cddpi_keep_add(&recovery->state.takes, entry->name, entry->first, entry->bytes, data));
    return cddpi_keep_add(&recovery->state.keeps, entry->name, entry->kept, entry->kept_bytes,
                          data + (entry->kept - entry->first));
}

/* Release all copies but the first @p left. */
static void drop_copies(cddp_recovery *recovery, size_t left)
{
    struct cddpi_device *device = recovery->device;

    while (recovery->copy_count > left) {
        device->ops->unpin(device, recovery->copies[--recovery->copy_count].here);
    }
}

void cddpi_recovery_release_copies(cddp_recovery *recovery)
{
    drop_copies(recovery, 0);
    cddpi_free(recovery->copies);
}

/* What was registered before a call, which fails as a whole. */
struct mark {
    size_t names, takes, keeps, copies;
    uint64_t layout, whole, cover;
};

static struct mark mark_of(const cddp_recovery *recovery)
{
    const struct cddpi_keep_contents *state = &recovery->state;

    return (struct mark){.names = recovery->name_count,
                         .takes = state->takes.count,
                         .keeps = state->keeps.count,
                         .copies = recovery->copy_count,
                         .layout = recovery->layout,
                         .whole = state->whole,
                         .cover = state->cover};
}

static cddp_status undo(cddp_recovery *recovery, const struct mark *mark, cddp_status status)
{
    drop_copies(recovery, mark->copies);
    recovery->name_count = mark->names;
    recovery->state.takes.count = mark->takes;
    recovery->state.keeps.count = mark->keeps;
    recovery->layout = mark->layout;
    recovery->state.whole = mark->whole;
    recovery->state.cover = mark->cover;
    return status;
}

static cddp_status finish(const cddp_recovery *recovery)
{
    struct cddpi_device *device = recovery->device;

    CDDPI_TRY(device->ops->finish(device, cddpi_group_timeout_ms(recovery->group)));
    return cddpi_group_verify(recovery->group); /* no copy of what a failed operation has made */
}

cddp_status cddpi_recovery_fetch(void *self)
{
    const cddp_recovery *recovery = self;
    struct cddpi_device *device = recovery->device;

    for (size_t i = 0; i < recovery->copy_count; i++) {
        const struct cddpi_recovery_copy *copy = &recovery->copies[i];

        CDDPI_TRY(device->ops->copy(device, CDDPI_STREAM_COMPUTE, copy->here + copy->first,
                                    (const unsigned char *)copy->there + copy->first,
                                    (size_t)copy->count));
    }
    return cddpi_device_is_async(device) ? finish(recovery) : CDDP_OK; /* functions read it, too */
}

cddp_status cddpi_recovery_send(void *self)
{
    const cddp_recovery *recovery = self;
    struct cddpi_device *device = recovery->device;

    for (size_t i = 0; i < recovery->copy_count; i++) {
        const struct cddpi_recovery_copy *copy = &recovery->copies[i];

        CDDPI_TRY(device->ops->copy(device, CDDPI_STREAM_COMPUTE, copy->there, copy->here,
                                    (size_t)copy->bytes));
    }
    return cddpi_device_is_async(device) ? finish(recovery) : CDDP_OK;
}

static cddp_status check_array(const cddp_recovery_array *array)
{
    if (array->bytes > 0 && array->data == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add: %s: data is NULL", array->name);
    }
    if (array->bytes > SIZE_MAX / 2 || (array->total_bytes == 0 && array->bytes == 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add: %s: %llu bytes", array->name,
                          (unsigned long long)array->bytes);
    }
    if (array->total_bytes == 0 ? array->first_byte != 0
                                : array->first_byte > array->total_bytes ||
                                      array->bytes > array->total_bytes - array->first_byte) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "recovery_add: %s: bytes %llu to %llu are not inside of %llu",
                          array->name, (unsigned long long)array->first_byte,
                          (unsigned long long)(array->first_byte + array->bytes),
                          (unsigned long long)array->total_bytes);
    }
    return CDDP_OK;
}

cddp_status cddp_recovery_add(cddp_recovery *recovery, const cddp_recovery_array *array)
{
    cddp_recovery_array read = CDDP_RECOVERY_ARRAY_INIT;
    struct cddpi_recovery_entry entry;
    struct mark mark;
    uint64_t name;
    cddp_status status;

    CDDPI_ENTER_RECOVERY(recovery, "recovery_add");
    if (array == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add: array is NULL");
    }
    CDDPI_TRY(
        cddpi_struct_read("recovery array", "CDDP_RECOVERY_ARRAY_INIT", array, sizeof read, &read));
    if (read.name == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add: name is NULL");
    }
    CDDPI_TRY(check_array(&read));
    mark = mark_of(recovery);
    name = cddpi_hash_text(cddpi_hash_start, read.name);
    CDDPI_TRY(cddpi_recovery_name(recovery, "recovery_add", read.name, name,
                                  read.total_bytes == 0 ? 'a' : 'p',
                                  read.total_bytes == 0 ? read.bytes : read.total_bytes));
    entry = (struct cddpi_recovery_entry){.name = name,
                                          .data = read.data,
                                          .first = read.first_byte,
                                          .bytes = read.bytes,
                                          .kept = read.first_byte,
                                          .kept_bytes = read.bytes};
    if (read.total_bytes == 0) {
        entry.kept_bytes = cddpi_keep_share(read.bytes, cddp_group_rank(recovery->group),
                                            cddp_group_world_size(recovery->group), &entry.kept);
    }
    status = cddpi_recovery_enter(recovery, &entry);
    return status == CDDP_OK ? CDDP_OK : undo(recovery, &mark, status);
}

/* What this rank keeps of parameter @p index, which has @p bytes bytes: its span if the optimizer
 * is sharded, else a share. */
static void find_kept(const cddp_ddp *ddp, size_t index, struct cddpi_recovery_entry *entry)
{
    size_t unit = cddp_type_bytes(ddp->params[index].type);
    size_t count = 0;
    const cddp_span *spans = cddp_ddp_spans(ddp, ddp->rank, &count);

    if (spans == NULL) {
        entry->kept_bytes = cddpi_keep_share(entry->bytes, ddp->rank, ddp->world_size,
                                             &entry->kept);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (spans[i].param == index) {
            entry->kept = spans[i].first * unit;
            entry->kept_bytes = spans[i].count * unit;
        }
    }
}

/* Names of a model never clash with those of other models or arrays. */
static uint64_t name_tensor(const cddp_recovery *recovery, const char *name, char kind)
{
    return cddpi_hash_add(
        cddpi_hash_add(cddpi_hash_text(cddpi_hash_start, name), (unsigned char)kind),
        recovery->ddp_count);
}

static cddp_status add_tensor(cddp_recovery *recovery, const cddp_ddp *ddp, size_t index)
{
    bool is_param = index < ddp->param_count;
    const struct cddpi_param *tensor = is_param ? &ddp->params[index]
                                                : &ddp->buffers[index - ddp->param_count];
    uint64_t bytes = tensor->count * cddp_type_bytes(tensor->type);
    char kind = is_param ? 'd' : 'b';
    struct cddpi_recovery_entry entry = {
        .name = name_tensor(recovery, tensor->name, kind), .data = tensor->data, .bytes = bytes};

    if (bytes == 0 || (is_param && tensor->slot == UINT32_MAX)) { /* frozen */
        return CDDP_OK;
    }
    CDDPI_TRY(
        cddpi_recovery_name(recovery, "recovery_add_ddp", tensor->name, entry.name, kind, bytes));
    if (is_param) {
        find_kept(ddp, index, &entry);
    } else {
        entry.kept_bytes = ddp->rank == 0 ? bytes : 0;
    }
    return cddpi_recovery_enter(recovery, &entry);
}

cddp_status cddp_recovery_add_ddp(cddp_recovery *recovery, cddp_ddp *ddp)
{
    struct mark mark;

    CDDPI_ENTER_RECOVERY(recovery, "recovery_add_ddp");
    CDDPI_TRY(cddpi_handle_check((struct cddpi_handle *)ddp, CDDPI_HANDLE_DDP, "recovery_add_ddp"));
    if (ddp->group != recovery->group) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add_ddp: the cddp_ddp is of another group");
    }
    mark = mark_of(recovery);
    for (size_t i = 0; i < ddp->param_count + ddp->buffer_count; i++) {
        cddp_status status = add_tensor(recovery, ddp, i);

        if (status != CDDP_OK) {
            return undo(recovery, &mark, status);
        }
    }
    recovery->ddp_count++;
    return CDDP_OK;
}
