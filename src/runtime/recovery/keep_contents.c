/* keep_contents.c - owns the lists of what a state consists of. */
#include "base/alloc.h"
#include "base/error.h"
#include "recovery/keep_impl.h"

#include <cddp/sampler.h>

void cddpi_keep_clear(struct cddpi_keep_contents *state)
{
    cddpi_free(state->keeps.at);
    cddpi_free(state->takes.at);
    *state = (struct cddpi_keep_contents){.call_count = 0};
}

cddp_status cddpi_keep_add(struct cddpi_keep_list *list, uint64_t array, uint64_t first,
                           uint64_t bytes, void *data)
{
    struct cddpi_keep_at *more;

    if (bytes == 0) {
        return CDDP_OK;
    }
    more = cddpi_grow(list->at, &list->room, list->count + 1, sizeof *list->at);
    CDDPI_TRY_MEMORY(more != NULL, "no memory for a list of %zu arrays", list->count + 1);
    list->at = more;
    list->at[list->count++] = (struct cddpi_keep_at){{array, first, bytes}, data};
    return CDDP_OK;
}

void cddpi_keep_add_calls(struct cddpi_keep_contents *state, const struct cddpi_keep_calls *calls)
{
    state->calls[state->call_count++] = *calls;
}

uint64_t cddpi_keep_calls_bytes(const struct cddpi_keep_contents *state)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < state->call_count; i++) {
        bytes += cddpi_keep_padded(state->calls[i].bytes);
    }
    return bytes;
}

uint64_t cddpi_keep_share(uint64_t bytes, int rank, int ranks, uint64_t *first)
{
    const cddp_share share = cddp_share_of(0, bytes / CDDPI_KEPT_BLOCK, rank, ranks);

    *first = share.first * CDDPI_KEPT_BLOCK;
    return rank == ranks - 1 ? bytes - *first : share.count * CDDPI_KEPT_BLOCK;
}

/* Any two numbers that are not both the same have another result, as far as chance goes. */
static uint64_t mix(uint64_t array, uint64_t at)
{
    uint64_t mixed = array + at * UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 33) * UINT64_C(0xff51afd7ed558ccd);
    mixed = (mixed ^ mixed >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return mixed ^ mixed >> 33;
}

uint64_t cddpi_keep_cover(uint64_t array, uint64_t first, uint64_t bytes)
{
    return mix(array, first + bytes) - mix(array, first);
}
