/* keep_choose.c - owns the choice of the state from which a job goes on. */
#include "recovery/keep_choose.h"

static bool is_of(const struct cddpi_kept_stamp *stamp, const struct cddpi_kept_stamp *state)
{
    return stamp->step == state->step && stamp->run == state->run &&
           stamp->writer == state->writer && stamp->layout == state->layout &&
           stamp->parts == state->parts;
}

/* Find all parts of @p state; of a part that several ranks can read, the first. */
static bool is_whole(const struct cddpi_keep_offer *offers, int ranks,
                     const struct cddpi_kept_stamp *state, struct cddpi_keep_place *places,
                     size_t room)
{
    uint32_t found = 0;

    if (state->parts > room) {
        return false;
    }
    for (uint32_t part = 0; part < state->parts; part++) {
        places[part].rank = -1;
    }
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < CDDPI_KEEP_STAMPS; i++) {
            const struct cddpi_kept_stamp *stamp = &offers[rank].stamps[i];

            if (is_of(stamp, state) && stamp->part < state->parts && places[stamp->part].rank < 0) {
                places[stamp->part] = (struct cddpi_keep_place){rank, i};
                found++;
            }
        }
    }
    return found == state->parts;
}

static bool may_choose(const struct cddpi_keep_offer *offers, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        if (offers[rank].is_refused != 0 || offers[rank].layout != offers[0].layout) {
            return false;
        }
    }
    return true;
}

void cddpi_keep_choose(const struct cddpi_keep_offer *offers, int ranks,
                       struct cddpi_kept_stamp *out, struct cddpi_keep_place *places, size_t room)
{
    *out = (struct cddpi_kept_stamp){.step = 0};
    for (int rank = 0; may_choose(offers, ranks) && rank < ranks; rank++) {
        for (int i = 0; i < CDDPI_KEEP_STAMPS; i++) {
            const struct cddpi_kept_stamp *stamp = &offers[rank].stamps[i];

            if (stamp->part == 0 && stamp->step > out->step &&
                stamp->step >= offers[0].checkpoint && stamp->run == offers[0].run &&
                stamp->layout == offers[0].layout && is_whole(offers, ranks, stamp, places, room)) {
                *out = *stamp;
            }
        }
    }
    if (out->step > 0) { /* a lesser candidate may have used the places */
        (void)is_whole(offers, ranks, out, places, room);
    }
}
