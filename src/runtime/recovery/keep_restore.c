/* keep_restore.c - owns how a job goes on from what ranks have kept: each part is sent to all ranks
 * by one that can read it, and each takes from it what it needs. So the job may have another number
 * of ranks, and another division of the optimizer's state, than before. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "group/join/group_agree.h"
#include "recovery/keep_choose.h"
#include "recovery/keep_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CDDPI_KEEP_STAMPS == CDDPI_KEEP_FILES * CDDPI_KEPT_SLOTS, "all of a rank's slots");

enum { MOST_PARTS = 65536 }; /* as many as ranks of a job */

/* A restoration under way. */
struct restore {
    struct cddpi_keep *keep;
    struct cddpi_keep_offer *offers; /* of all ranks */
    struct cddpi_kept_stamp chosen;
    struct cddpi_keep_place *places;
    uint64_t taken;          /* bytes that this rank needs, so far */
    unsigned char *received; /* the part at hand, on a rank that cannot read it itself */
};

/* Whether this rank can read what @p slot of @p file holds, and it is as it was written. */
static bool is_sound(struct cddpi_kept_memory *file, int slot, const struct cddpi_kept_stamp *stamp)
{
    const unsigned char *data = cddpi_kept_data(file, slot);
    struct cddpi_kept_sum sum = {{0}};
    uint64_t bytes = stamp->bytes;
    uint64_t kept;

    if (data == NULL || bytes < CDDPI_KEPT_CHECKSUM_BYTES || bytes % CDDPI_KEPT_BLOCK != 0) {
        return false;
    }
    bytes -= CDDPI_KEPT_CHECKSUM_BYTES;
    memcpy(&kept, data + bytes, sizeof kept);
    cddpi_kept_sum_add(&sum, data, (size_t)bytes);
    return cddpi_kept_sum_end(&sum) == kept;
}

static cddp_status gather_offers(struct restore *restore, uint64_t checkpoint)
{
    struct cddpi_keep *keep = restore->keep;
    struct cddpi_keep_offer own = {
        .run = keep->run, .layout = keep->layout, .checkpoint = checkpoint};
    void *all = NULL;

    for (int i = 0; i < keep->count; i++) {
        own.is_refused = own.is_refused || cddpi_kept_is_refused(&keep->files[i], keep->run);
        for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
            const struct cddpi_kept_stamp stamp = cddpi_kept_stamp(&keep->files[i], slot);

            if (stamp.step > 0 && stamp.run == keep->run &&
                is_sound(&keep->files[i], slot, &stamp)) {
                own.stamps[i * CDDPI_KEPT_SLOTS + slot] = stamp;
            }
        }
    }
    CDDPI_TRY(cddpi_all_gather_bytes(restore->keep->group, &own, sizeof own, &all));
    restore->offers = all;
    return CDDP_OK;
}

/* What ranks have kept of this run. */
struct kept_before {
    uint64_t newest;           /* step */
    bool is_refused, is_other; /* is_other: it has another layout */
    bool ranks_differ;         /* now, in their layout */
};

static struct kept_before find_kept(const struct restore *restore)
{
    const struct cddpi_keep_offer *first = &restore->offers[0];
    struct kept_before found = {.newest = 0};

    for (int rank = 0; rank < restore->keep->world_size; rank++) {
        const struct cddpi_keep_offer *offer = &restore->offers[rank];

        found.is_refused = found.is_refused || offer->is_refused != 0;
        found.ranks_differ = found.ranks_differ || offer->layout != first->layout;
        for (int i = 0; i < CDDPI_KEEP_STAMPS; i++) {
            if (offer->stamps[i].run == first->run && offer->stamps[i].step > found.newest) {
                found.newest = offer->stamps[i].step;
                found.is_other = offer->stamps[i].layout != first->layout;
            }
        }
    }
    return found;
}

/* Say why the job does not go on from a step that a rank has kept. */
static void say_why_not(const struct restore *restore, const struct kept_before *kept)
{
    const struct cddpi_keep_owner *owner = restore->keep->owner;
    char text[160];

    if (restore->keep->rank == 0 && kept->newest > restore->offers[0].checkpoint) {
        snprintf(text, sizeof text, "going back to the newest checkpoint: %s",
                 kept->is_refused     ? "the run failed by itself, so its last state is not used"
                 : kept->ranks_differ ? "ranks have registered different states"
                 : kept->is_other ? "the run was configured anew, so its last state does not fit"
                                  : "a part of the last state was lost");
        owner->tell(owner->self, text);
    }
}

static cddp_status choose(struct restore *restore)
{
    const struct kept_before kept = find_kept(restore);
    int ranks = restore->keep->world_size;
    size_t room = 1;

    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < CDDPI_KEEP_STAMPS; i++) {
            const struct cddpi_kept_stamp *stamp = &restore->offers[rank].stamps[i];

            if (stamp->step > 0 && stamp->parts > room && stamp->parts <= MOST_PARTS) {
                room = stamp->parts;
            }
        }
    }
    restore->places = cddpi_zalloc_array(room, sizeof *restore->places);
    CDDPI_TRY_MEMORY(restore->places != NULL, "no memory for a list of %zu parts", room);
    cddpi_keep_choose(restore->offers, ranks, &restore->chosen, restore->places, room);
    restore->keep->was_refused = kept.is_refused;
    if (restore->chosen.step == 0) {
        say_why_not(restore, &kept);
    }
    return CDDP_OK;
}

static const struct cddpi_kept_stamp *stamp_of(const struct restore *restore, uint32_t part)
{
    const struct cddpi_keep_place *place = &restore->places[part];

    return &restore->offers[place->rank].stamps[place->stamp];
}

/* Part @p part as this rank can read it; NULL: it cannot. */
static const unsigned char *own_part(const struct restore *restore, uint32_t part)
{
    const struct cddpi_keep_place *place = &restore->places[part];
    struct cddpi_kept_memory *file = &restore->keep->files[place->stamp / CDDPI_KEPT_SLOTS];

    return place->rank == restore->keep->rank
               ? cddpi_kept_data(file, place->stamp % CDDPI_KEPT_SLOTS)
               : NULL;
}

/* Map what this rank sends, and take memory for what it receives. */
static cddp_status prepare(struct restore *restore)
{
    uint64_t most = 1;

    for (uint32_t part = 0; part < restore->chosen.parts; part++) {
        uint64_t bytes = stamp_of(restore, part)->bytes;

        most = bytes > most ? bytes : most;
        if (restore->places[part].rank == restore->keep->rank && own_part(restore, part) == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "what an earlier process kept cannot be mapped");
        }
    }
    CDDPI_TRY(restore->keep->owner->list(restore->keep->owner->self));
    restore->received = most <= SIZE_MAX ? cddpi_alloc_aligned((size_t)most) : NULL;
    CDDPI_TRY_MEMORY(restore->received != NULL, "no memory for %llu bytes of the state",
                     (unsigned long long)most);
    return CDDP_OK;
}

/* Take the next item, of @p bytes bytes, of a part of which @p left bytes are left. NULL: there are
 * fewer. */
static const unsigned char *take(const unsigned char **at, uint64_t *left, uint64_t bytes)
{
    const unsigned char *taken = *at;

    if (bytes > *left || cddpi_keep_padded(bytes) > *left) {
        return NULL;
    }
    *at += cddpi_keep_padded(bytes);
    *left -= cddpi_keep_padded(bytes);
    return taken;
}

static int compare(const void *a, const void *b)
{
    const struct cddpi_keep_piece *one = &((const struct cddpi_keep_at *)a)->piece;
    const struct cddpi_keep_piece *other = &((const struct cddpi_keep_at *)b)->piece;

    return (one->array > other->array) - (one->array < other->array);
}

static void sort(struct cddpi_keep_list *list)
{
    if (list->count > 1) {
        qsort(list->at, list->count, sizeof *list->at, compare);
    }
}

/* The first of the sorted @p list that is of @p array, or would be. */
static size_t first_of(const struct cddpi_keep_list *list, uint64_t array)
{
    size_t low = 0;
    size_t high = list->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (list->at[middle].piece.array < array) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Copy what this rank needs of @p piece, whose data are @p from, and count it. */
static void take_piece(struct restore *restore, const struct cddpi_keep_piece *piece,
                       const unsigned char *from)
{
    const struct cddpi_keep_list *takes = &restore->keep->state.takes;
    uint64_t piece_end = piece->first + piece->bytes;

    for (size_t i = first_of(takes, piece->array);
         i < takes->count && takes->at[i].piece.array == piece->array; i++) {
        const struct cddpi_keep_at *own = &takes->at[i];
        uint64_t own_end = own->piece.first + own->piece.bytes;
        uint64_t begin = own->piece.first > piece->first ? own->piece.first : piece->first;
        uint64_t end = own_end < piece_end ? own_end : piece_end;

        if (begin < end) {
            memcpy(own->data + (begin - own->piece.first), from + (begin - piece->first),
                   (size_t)(end - begin));
            restore->taken += end - begin;
        }
    }
}

/* Copy the pieces' data; @p pieces: their list in the part, @p at: their data. */
static bool take_pieces(struct restore *restore, const unsigned char *pieces, uint64_t count,
                        const unsigned char *at, uint64_t left)
{
    for (uint64_t i = 0; i < count; i++) {
        struct cddpi_keep_piece piece;
        const unsigned char *from;

        memcpy(&piece, pieces + i * sizeof piece, sizeof piece);
        from = take(&at, &left, piece.bytes);
        if (from == NULL || piece.first + piece.bytes < piece.first) {
            return false;
        }
        take_piece(restore, &piece, from);
    }
    return left == 0;
}

static cddp_status load(struct cddpi_keep *keep, const struct cddpi_keep_calls *calls,
                        const unsigned char *from, uint32_t part, uint32_t parts)
{
    cddp_status status;

    if (!calls->is_foreign) {
        return calls->load(calls->owner, from, (int)part, (int)parts);
    }
    cddpi_keep_refuse(keep); /* if this process does not come back, the next does not try it */
    cddpi_error_clear();
    status = calls->load(calls->owner, from, (int)part, (int)parts);
    if (status != CDDP_OK) {
        (void)cddpi_fail_callback(status, "");
        return cddpi_fail_prefix(CDDP_ERR_FORMAT, "%s: a function that loads a part of the state",
                                 keep->owner->name);
    }
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_forget_refusal(&keep->files[i], keep->run);
    }
    return CDDP_OK;
}

/* Take from part @p part what this rank needs of it. */
static cddp_status take_part(struct restore *restore, uint32_t part, const unsigned char *data)
{
    struct cddpi_keep_contents *state = &restore->keep->state;
    uint64_t left = stamp_of(restore, part)->bytes - CDDPI_KEPT_CHECKSUM_BYTES;
    const unsigned char *at = data;
    const unsigned char *first = take(&at, &left, sizeof(struct cddpi_kept_head));
    struct cddpi_kept_head head = {0};
    const unsigned char *pieces, *calls;

    if (first != NULL) {
        memcpy(&head, first, sizeof head);
    }
    pieces = head.pieces <= left / sizeof(struct cddpi_keep_piece)
                 ? take(&at, &left, head.pieces * sizeof(struct cddpi_keep_piece))
                 : NULL;
    calls = take(&at, &left, cddpi_keep_calls_bytes(state));
    if (pieces == NULL || calls == NULL || !take_pieces(restore, pieces, head.pieces, at, left)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: part %u of the state that ranks kept is not in order",
                          restore->keep->owner->name, part);
    }
    for (size_t i = 0; i < state->call_count; i++) {
        CDDPI_TRY(load(restore->keep, &state->calls[i], calls, part, restore->chosen.parts));
        calls += cddpi_keep_padded(state->calls[i].bytes);
    }
    return CDDP_OK;
}

/* Whether the parts were all that this rank needs. */
static cddp_status check_taken(const struct restore *restore)
{
    const struct cddpi_keep_list *takes = &restore->keep->state.takes;
    uint64_t bytes = 0;

    for (size_t i = 0; i < takes->count; i++) {
        bytes += takes->at[i].piece.bytes;
    }
    return restore->taken == bytes
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_FORMAT,
                            "%s: the parts that ranks kept are not all of the state",
                            restore->keep->owner->name);
}

/* Get part @p part. Its bytes are the same on all ranks, but a function that loads them may fail on
 * one alone: it keeps on to take part in what all ranks do. */
static cddp_status get_part(struct restore *restore, uint32_t part, cddp_status *mine)
{
    struct cddpi_keep *keep = restore->keep;
    const unsigned char *own = own_part(restore, part);
    unsigned char *data = own != NULL ? (unsigned char *)(uintptr_t)own : restore->received;
    const struct cddpi_failure failure = *cddpi_last_failure();

    CDDPI_TRY(cddp_broadcast(keep->group, data, stamp_of(restore, part)->bytes, CDDP_U8,
                             restore->places[part].rank, NULL));
    if (*mine == CDDP_OK) {
        *mine = take_part(restore, part, data);
        return CDDP_OK;
    }
    *mine = cddpi_fail_again(*mine, &failure);
    return CDDP_OK;
}

static cddp_status take_all(struct restore *restore)
{
    struct cddpi_keep *keep = restore->keep;
    cddp_status mine = CDDP_OK;

    sort(&keep->state.takes);
    for (uint32_t part = 0; part < restore->chosen.parts; part++) {
        CDDPI_TRY(get_part(restore, part, &mine));
    }
    CDDPI_TRY(cddpi_agree(keep->group, mine == CDDP_OK ? check_taken(restore) : mine));
    return keep->owner->send(keep->owner->self);
}

/* Tell the launcher, which gives a job up that fails again and again without progress, that an
 * earlier generation has got on. Only now is it known that this was of use. */
static void tell_progress(const struct restore *restore)
{
    struct cddpi_keep *keep = restore->keep;

    if (restore->keep->rank == 0 && keep->count > 0 &&
        cddpi_kept_is_news(&keep->files[0], restore->chosen.writer)) {
        cddpi_launcher_report_kept();
    }
}

static cddp_status restore_state(struct restore *restore, uint64_t checkpoint)
{
    struct cddpi_keep *keep = restore->keep;
    cddp_status status;

    CDDPI_TRY(gather_offers(restore, checkpoint));
    CDDPI_TRY(cddpi_agree(keep->group, choose(restore)));
    if (restore->chosen.step == 0) {
        return CDDP_OK;
    }
    status = cddpi_agree(keep->group, prepare(restore));
    if (status == CDDP_ERR_NO_MEMORY && cddpi_last_failure()->is_fatal == 0) {
        if (keep->rank == 0) {
            cddpi_keep_warn(keep, "%s; so the job goes on from its newest checkpoint",
                            cddp_last_error());
        }
        restore->chosen.step = 0;
        return CDDP_OK;
    }
    CDDPI_TRY(status);
    status = take_all(restore);
    if (status == CDDP_OK) {
        tell_progress(restore);
    } else {
        restore->chosen.step = 0;
    }
    return status;
}

cddp_status cddpi_keep_restore(struct cddpi_keep *keep, uint64_t checkpoint)
{
    struct restore restore = {.keep = keep};
    cddp_status status = restore_state(&restore, checkpoint);

    keep->restored = restore.chosen;
    keep->newest = keep->restored.step;
    if (status == CDDP_ERR_FORMAT) { /* all ranks have seen the same, and do not try it again */
        cddpi_keep_forget(keep);
    }
    cddpi_free(restore.offers);
    cddpi_free(restore.places);
    cddpi_free(restore.received);
    return status;
}
