/* loader.c - owns the public loader: its ring of batches and their memory, which samples a batch
 * contains, and calling the user's function that loads one. A piece of a batch is a sample. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/types.h"
#include "device/device.h"
#include "group/engine/group_entry.h"
#include "group/on_device.h"
#include "loader/batch_ring.h"

#include <cddp/loader.h>

#include <limits.h>

enum { THREADS = 2, AHEAD = 2, MOST_THREADS = 1024, MOST_AHEAD = 4096 };

struct loader_slot {
    unsigned char *data;
    uint64_t *indices;
    cddp_share share; /* what the slot holds, as positions in the epoch */
};

struct cddp_loader {
    struct cddpi_handle handle;
    cddp_loader_options options;
    cddp_group *group; /* holds a reference; NULL: no group, world size 1 */
    struct cddpi_device *device;
    int rank;
    int world_size;
    cddp_sampler *sampler;
    uint64_t epoch;
    bool begun;       /* an epoch has begun and no batch of it has failed */
    uint64_t batches; /* per epoch */
    cddp_share own;   /* with micro-batches: those of each batch that are this rank's */
    uint64_t parts;   /* of the ring's batches, for each global batch: `own`, but at least 1 */
    struct loader_slot *slots;
    struct cddpi_batch_ring ring;
};

/* The positions in the epoch of batch @p number, over all ranks. */
static cddp_share positions_of(const cddp_loader *loader, uint64_t number)
{
    uint64_t first = number * loader->options.batch_size;
    uint64_t left = loader->options.samples - first;
    uint64_t count = left < loader->options.batch_size ? left : loader->options.batch_size;

    return (cddp_share){first, count};
}

/* The positions of micro-batch @p index of the batch at the positions @p all. */
static cddp_share micro_batch_of(const cddp_loader *loader, cddp_share all, uint64_t index)
{
    return cddp_share_of(all.first, all.count, (int)index, (int)loader->options.micro_batches);
}

/* What this rank has of the batch at the positions @p all, micro-batches or not: they are next to
 * each other. */
static cddp_share own_of(const cddp_loader *loader, cddp_share all)
{
    cddp_share first, last;

    if (loader->options.micro_batches == 0) {
        return cddp_share_of(all.first, all.count, loader->rank, loader->world_size);
    }
    if (loader->own.count == 0) {
        return (cddp_share){all.first, 0};
    }
    first = micro_batch_of(loader, all, loader->own.first);
    last = micro_batch_of(loader, all, loader->own.first + loader->own.count - 1);
    return (cddp_share){first.first, last.first + last.count - first.first};
}

/* A batch of the ring is a part of a global batch. */
static uint64_t open_batch(void *owner, uint64_t number, uint64_t slot_index)
{
    const cddp_loader *loader = owner;
    struct loader_slot *slot = &loader->slots[slot_index];
    cddp_share all = positions_of(loader, number / loader->parts);

    slot->share = loader->own.count > 0
                      ? micro_batch_of(loader, all, loader->own.first + number % loader->parts)
                      : own_of(loader, all);
    return slot->share.count;
}

static cddp_status make_sample(void *owner, uint64_t number, uint64_t slot_index, uint64_t sample)
{
    const cddp_loader *loader = owner;
    const cddp_loader_options *options = &loader->options;
    const struct loader_slot *slot = &loader->slots[slot_index];
    uint64_t position = slot->share.first + sample;
    uint64_t index = cddp_sampler_at(loader->sampler, position);
    cddp_status status;

    (void)number;
    slot->indices[sample] = index;
    cddpi_error_clear();
    status = options->load(options->state, index, slot->data + sample * options->sample_bytes);
    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    status = cddpi_fail_callback(status, "");
    return cddpi_fail_prefix(status, "loader: sample %llu, position %llu of epoch %llu",
                             (unsigned long long)index, (unsigned long long)position,
                             (unsigned long long)loader->epoch);
}

static const struct cddpi_batch_ring_ops ring_ops = {.open = open_batch, .make = make_sample};

static cddp_status read_options(const cddp_loader_options *options, cddp_loader_options *out)
{
    cddp_loader_options read = CDDP_LOADER_OPTIONS_INIT;

    if (options == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: options is NULL");
    }
    CDDPI_TRY(cddpi_struct_read("loader options", "CDDP_LOADER_OPTIONS_INIT", options, sizeof read,
                                &read));
    if (read.samples == 0 || read.sample_bytes == 0 || read.batch_size == 0 || read.load == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: %s",
                          read.load == NULL        ? "load is NULL"
                          : read.samples == 0      ? "there are no samples"
                          : read.sample_bytes == 0 ? "samples have 0 bytes"
                                                   : "batch_size is 0");
    }
    if (read.threads < 0 || read.threads > MOST_THREADS || read.ahead < 0 ||
        read.ahead > MOST_AHEAD) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader_create: %d threads (at most %d), %d batches ahead (at most %d)",
                          read.threads, MOST_THREADS, read.ahead, MOST_AHEAD);
    }
    if (read.micro_batches > INT_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: %llu micro-batches; at most %d",
                          (unsigned long long)read.micro_batches, INT_MAX);
    }
    read.threads = read.threads > 0 ? read.threads : THREADS;
    read.ahead = read.ahead > 0 ? read.ahead : AHEAD;
    *out = read;
    return CDDP_OK;
}

/* Allocate the slots: one for each prefetched batch, and one for the batch that the caller uses. */
static cddp_status make_slots(cddp_loader *loader)
{
    const cddp_loader_options *options = &loader->options;
    uint64_t most = options->batch_size < options->samples ? options->batch_size : options->samples;
    uint64_t shares = options->micro_batches > 0 ? options->micro_batches
                                                 : (uint64_t)loader->world_size;
    uint64_t capacity = most / shares + (most % shares != 0);
    uint64_t slot_count = (uint64_t)options->ahead + 1;
    size_t bytes;

    CDDPI_TRY(cddpi_batch_ring_init(&loader->ring, "loader_create", &ring_ops, loader, slot_count,
                                    options->threads, 0));
    loader->slots = cddpi_zalloc_array(slot_count, sizeof *loader->slots);
    if (loader->slots == NULL || __builtin_mul_overflow(capacity, options->sample_bytes, &bytes)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory for %llu batches",
                          (unsigned long long)slot_count);
    }
    for (uint64_t s = 0; s < slot_count; s++) {
        struct loader_slot *slot = &loader->slots[s];
        void *memory = NULL;
        cddp_status status = loader->device->ops->pin(loader->device, bytes, &memory);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "loader_create: a batch of %zu bytes", bytes);
        }
        slot->data = memory;
        slot->indices = cddpi_zalloc_array(capacity, sizeof *slot->indices);
        if (slot->indices == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory for %llu indices",
                              (unsigned long long)capacity);
        }
    }
    return CDDP_OK;
}

static void release_loader(cddp_loader *loader)
{
    uint64_t slot_count = loader->ring.slot_count;

    cddpi_batch_ring_fini(&loader->ring);
    for (uint64_t s = 0; loader->slots != NULL && s < slot_count; s++) {
        loader->device->ops->unpin(loader->device, loader->slots[s].data);
        cddpi_free(loader->slots[s].indices);
    }
    cddpi_free(loader->slots);
    cddp_sampler_destroy(loader->sampler);
    if (loader->group != NULL) {
        cddpi_group_unref(loader->group);
    }
    cddpi_handle_release(&loader->handle, sizeof *loader);
}

static void take_group(cddp_loader *loader, cddp_group *group)
{
    loader->device = cddpi_device_cpu();
    loader->world_size = 1;
    if (group != NULL) {
        loader->group = group;
        cddpi_group_ref(group);
        loader->device = cddpi_group_on_device(group);
        loader->rank = cddp_group_rank(group);
        loader->world_size = cddp_group_world_size(group);
    }
}

/* Find this rank's micro-batches. */
static cddp_status divide(cddp_loader *loader)
{
    uint64_t micro_batches = loader->options.micro_batches;
    uint64_t parts;

    loader->own = cddp_share_of(0, micro_batches, loader->rank, loader->world_size);
    loader->parts = loader->own.count > 0 ? loader->own.count : 1;
    return __builtin_mul_overflow(loader->batches, loader->parts, &parts)
               ? cddpi_fail(CDDP_ERR_ARGUMENT,
                            "loader_create: %llu batches of %llu micro-batches are too many",
                            (unsigned long long)loader->batches, (unsigned long long)micro_batches)
               : CDDP_OK;
}

cddp_status cddp_loader_create(const cddp_loader_options *options, cddp_loader **out)
{
    cddp_loader_options read = CDDP_LOADER_OPTIONS_INIT;
    struct cddpi_failure failure;
    cddp_loader *loader;
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_create: out is NULL");
    }
    CDDPI_TRY(read_options(options, &read));
    if (read.group != NULL) {
        CDDPI_TRY(cddpi_group_enter(read.group, "loader_create"));
        CDDPI_TRY(cddpi_group_leave(read.group, CDDP_OK));
    }
    loader = cddpi_zalloc(sizeof *loader);
    if (loader == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: no memory");
    }
    cddpi_handle_init(&loader->handle, CDDPI_HANDLE_LOADER);
    loader->options = read;
    take_group(loader, read.group);
    loader->batches = read.samples / read.batch_size +
                      (!read.drop_last && read.samples % read.batch_size != 0);
    CDDPI_TRY_GOTO(fail, status, divide(loader));
    CDDPI_TRY_GOTO(fail, status,
                   cddp_sampler_create(read.order, read.samples, read.seed, &loader->sampler));
    CDDPI_TRY_GOTO(fail, status, make_slots(loader));
    if (cddpi_batch_ring_start(&loader->ring, read.threads) == 0) {
        *out = loader;
        return CDDP_OK;
    }
    status = cddpi_fail(CDDP_ERR_NO_MEMORY, "loader_create: thread %d of %d did not start",
                        loader->ring.thread_count, read.threads);

fail:
    failure = *cddpi_last_failure();
    release_loader(loader);
    return cddpi_fail_again(status, &failure);
}

void cddp_loader_destroy(cddp_loader *loader)
{
    if (loader != NULL && cddpi_batch_ring_is_maker(&loader->ring)) {
        cddpi_log(CDDPI_LOG_WARN,
                  "loader_destroy: a function that makes samples cannot destroy its "
                  "loader; nothing was done");
        return;
    }
    if (loader == NULL ||
        !cddpi_handle_enter_last(&loader->handle, CDDPI_HANDLE_LOADER, "loader_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&loader->handle)) {
        cddpi_handle_end(&loader->handle); /* a forked process does not have the ring's threads */
        return;
    }
    release_loader(loader);
}

/* Begin the public call @p call in this function: see base/handle.h. */
#define ENTER_LOADER(loader, call)                                                                 \
    CDDPI_ENTER(&(loader)->handle,                                                                 \
                cddpi_handle_enter((struct cddpi_handle *)(loader), CDDPI_HANDLE_LOADER, call))

cddp_status cddp_loader_begin(cddp_loader *loader, uint64_t epoch, uint64_t batch)
{
    ENTER_LOADER(loader, "loader_begin");
    if (batch > loader->batches) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader_begin: batch %llu of %llu",
                          (unsigned long long)batch, (unsigned long long)loader->batches);
    }
    if (cddpi_batch_ring_is_maker(&loader->ring)) {
        return cddpi_fail(CDDP_ERR_STATE, "loader_begin: the function that makes samples calls it");
    }
    CDDPI_TRY(cddpi_batch_ring_check(&loader->ring));
    loader->begun = false;
    cddpi_batch_ring_cancel(&loader->ring); /* the ring's threads read the sampler */
    CDDPI_TRY(cddp_sampler_set_epoch(loader->sampler, epoch));
    loader->epoch = epoch;
    loader->begun = true;
    cddpi_batch_ring_begin(&loader->ring, batch * loader->parts, loader->batches * loader->parts);
    return CDDP_OK;
}

cddp_status cddp_loader_next(cddp_loader *loader, cddp_batch *out)
{
    cddp_batch batch = CDDP_BATCH_INIT;
    const struct loader_slot *slot;
    uint64_t part;
    cddp_status status;

    ENTER_LOADER(loader, "loader_next");
    /* check the caller's struct first: a failure must not cost a batch */
    CDDPI_TRY(cddpi_struct_fill("batch", "CDDP_BATCH_INIT", &batch, sizeof batch, out));
    if (cddpi_batch_ring_is_maker(&loader->ring)) {
        return cddpi_fail(CDDP_ERR_STATE, "loader_next: the function that makes samples calls it");
    }
    if (!loader->begun) {
        return cddpi_fail(CDDP_ERR_STATE, "loader_next: no epoch was begun, or it failed");
    }
    part = loader->ring.taken;
    batch.number = part / loader->parts;
    batch.end = batch.number == loader->batches;
    if (!batch.end) {
        cddp_share all = positions_of(loader, batch.number);

        int64_t begin_ns = cddpi_now_ns();

        status = cddpi_batch_ring_await(&loader->ring);
        batch.wait_ns = (uint64_t)(cddpi_now_ns() - begin_ns);
        loader->begun = status == CDDP_OK;
        CDDPI_TRY(status);
        loader->ring.taken++;
        slot = &loader->slots[part % loader->ring.slot_count];
        batch.data = slot->data;
        batch.indices = slot->indices;
        batch.count = slot->share.count;
        batch.total = all.count;
        batch.micro_batch = loader->own.count > 0 ? loader->own.first + part % loader->parts
                                                  : loader->options.micro_batches;
        batch.samples = own_of(loader, all).count;
    }
    return cddpi_struct_fill("batch", "CDDP_BATCH_INIT", &batch, sizeof batch, out);
}

uint64_t cddp_loader_batch_count(const cddp_loader *loader)
{
    return cddpi_handle_check_life((const struct cddpi_handle *)loader, CDDPI_HANDLE_LOADER,
                                   "loader_batch_count") == CDDP_OK
               ? loader->batches
               : 0;
}
