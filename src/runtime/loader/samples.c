/* samples.c - owns which samples a batch contains, and calling the user's function that loads one.
 */
#include "loader/loader.h"

cddp_share cddpi_loader_positions(const cddp_loader *loader, uint64_t number)
{
    uint64_t first = number * loader->options.batch_size;
    uint64_t left = loader->options.samples - first;
    uint64_t count = left < loader->options.batch_size ? left : loader->options.batch_size;

    return (cddp_share){first, count};
}

static uint64_t open_batch(void *owner, uint64_t number, uint64_t slot_index)
{
    const cddp_loader *loader = owner;
    struct cddpi_loader_slot *slot = &loader->slots[slot_index];
    cddp_share all = cddpi_loader_positions(loader, number);

    slot->share = cddp_share_of(all.first, all.count, loader->rank, loader->world_size);
    return slot->share.count;
}

static cddp_status make_sample(void *owner, uint64_t number, uint64_t slot_index, uint64_t sample)
{
    const cddp_loader *loader = owner;
    const cddp_loader_options *options = &loader->options;
    const struct cddpi_loader_slot *slot = &loader->slots[slot_index];
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
    if (cddpi_last_failure()->status == CDDP_OK) {
        (void)cddpi_fail(status, "%s", cddp_status_text(status));
    }
    return cddpi_fail_prefix(status, "loader: sample %llu, position %llu of epoch %llu",
                             (unsigned long long)index, (unsigned long long)position,
                             (unsigned long long)loader->epoch);
}

const struct cddpi_batch_ring_ops cddpi_loader_ring_ops = {.open = open_batch, .make = make_sample};
