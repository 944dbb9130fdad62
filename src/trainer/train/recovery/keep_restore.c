/* keep_restore.c - owns how a job goes on from what ranks have kept: each part is sent to all ranks
 * by one that can read it, and each takes from it what it needs. So the job may have another number
 * of ranks, and another division of the optimizer's state, than before. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/shape.h"
#include "group/join/group_agree.h"
#include "parallel/parallel_memory.h"
#include "train/device/host_copy.h"
#include "recovery/keep_choose.h"
#include "train/recovery/keep_impl.h"

#include <libdeflate.h>
#include <string.h>

_Static_assert(CDDPI_KEEP_STAMPS == CDDPI_KEEP_FILES * CDDPI_KEPT_SLOTS, "all of a rank's slots");

enum { MOST_PARTS = 65536 }; /* as many as ranks of a job */

/* A restoration under way. */
struct restore {
    struct cddpi_trainer *trainer;
    struct cddpi_keep_offer *offers; /* of all ranks */
    struct cddpi_kept_stamp chosen;
    struct cddpi_keep_place *places;
    struct cddpi_kept_tensors tensors;
    uint64_t elements;       /* of parameters, taken so far */
    unsigned char *received; /* the part at hand, on a rank that cannot read it itself */
};

/* Whether this rank can read what @p slot of @p file holds, and it is as it was written. */
static bool is_sound(struct cddpi_kept_memory *file, int slot, const struct cddpi_kept_stamp *stamp)
{
    const unsigned char *data = cddpi_kept_data(file, slot);
    uint64_t bytes = stamp->bytes;
    uint32_t checksum;

    if (data == NULL || bytes < sizeof checksum) {
        return false;
    }
    memcpy(&checksum, data + bytes - sizeof checksum, sizeof checksum);
    return libdeflate_crc32(0, data, (size_t)bytes - sizeof checksum) == checksum;
}

static cddp_status gather_offers(struct restore *restore, uint64_t checkpoint)
{
    struct cddpi_keep *keep = &restore->trainer->keep;
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
    CDDPI_TRY(cddpi_all_gather_bytes(restore->trainer->group, &own, sizeof own, &all));
    restore->offers = all;
    return CDDP_OK;
}

/* What ranks have kept of this run. */
struct kept_before {
    uint64_t newest;           /* step */
    bool is_refused, is_other; /* is_other: it has another layout */
};

static struct kept_before find_kept(const struct restore *restore)
{
    const struct cddpi_keep_offer *first = &restore->offers[0];
    struct kept_before found = {.newest = 0};

    for (int rank = 0; rank < restore->trainer->world_size; rank++) {
        const struct cddpi_keep_offer *offer = &restore->offers[rank];

        found.is_refused = found.is_refused || offer->is_refused != 0;
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
    struct cddpi_trainer *trainer = restore->trainer;

    if (trainer->rank == 0 && kept->newest > restore->offers[0].checkpoint) {
        cddpi_progress_line(
            &trainer->records.progress, "going back to the newest checkpoint: %s",
            kept->is_refused ? "the run failed by itself, so its last state is not used"
            : kept->is_other ? "the run was configured anew, so its last state does not fit"
                             : "a part of the last state was lost");
    }
}

static cddp_status choose(struct restore *restore)
{
    const struct kept_before kept = find_kept(restore);
    int ranks = restore->trainer->world_size;
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
    restore->trainer->keep.was_refused = kept.is_refused;
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
    struct cddpi_kept_memory *file = &restore->trainer->keep.files[place->stamp / CDDPI_KEPT_SLOTS];

    return place->rank == restore->trainer->rank
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
        if (restore->places[part].rank == restore->trainer->rank &&
            own_part(restore, part) == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "what an earlier process kept cannot be mapped");
        }
    }
    CDDPI_TRY(cddpi_keep_list_tensors(restore->trainer, &restore->tensors));
    restore->received = most <= SIZE_MAX ? cddpi_alloc_aligned((size_t)most) : NULL;
    CDDPI_TRY_MEMORY(restore->received != NULL, "no memory for %llu bytes of the state",
                     (unsigned long long)most);
    return CDDP_OK;
}

static cddp_status fail_form(uint32_t part)
{
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "train.recovery: part %u of the state that ranks kept is not in order", part);
}

/* Take the next @p bytes of a part of which @p left bytes are left. NULL: there are fewer. */
static const unsigned char *take(const unsigned char **at, uint64_t *left, uint64_t bytes)
{
    const unsigned char *taken = *at;

    if (bytes > *left) {
        return NULL;
    }
    *at += bytes;
    *left -= bytes;
    return taken;
}

/* Copy the elements of @p piece at @p from to those of the optimizer's moment @p moment that this
 * rank has. */
static void copy_moment(const struct cddpi_trainer *trainer, const struct cddpi_kept_piece *piece,
                        size_t moment, const unsigned char *from)
{
    size_t count = cddpi_optim_part_count(trainer->step.optim);

    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part own = cddpi_optim_part(trainer->step.optim, i);
        uint64_t begin = own.first > piece->first ? own.first : piece->first;
        uint64_t own_end = own.first + own.count;
        uint64_t piece_end = piece->first + piece->count;
        uint64_t end = own_end < piece_end ? own_end : piece_end;

        if (own.param == piece->param && begin < end) {
            memcpy(own.moments[moment] + (begin - own.first),
                   from + (begin - piece->first) * sizeof(float),
                   (size_t)(end - begin) * sizeof(float));
        }
    }
}

/* Whether @p piece lies in a parameter of this run. */
static bool is_inside(const struct cddpi_trainer *trainer, const struct cddpi_kept_piece *piece)
{
    uint64_t count;

    if (piece->param >= trainer->params.count) {
        return false;
    }
    count = cddpi_elements(trainer->params.list[piece->param].dims,
                           trainer->params.list[piece->param].shape);
    return piece->first <= count && piece->count <= count - piece->first;
}

/* Copy the pieces' elements; @p pieces: their list in the part, @p at: their elements. */
static bool take_pieces(struct restore *restore, const unsigned char *pieces, uint64_t count,
                        const unsigned char *at, uint64_t left)
{
    const struct cddpi_trainer *trainer = restore->trainer;
    size_t moments = cddpi_keep_moments(trainer);

    for (uint64_t i = 0; i < count; i++) {
        struct cddpi_kept_piece piece;

        memcpy(&piece, pieces + i * sizeof piece, sizeof piece);
        if (!is_inside(trainer, &piece)) {
            return false;
        }
        restore->elements += piece.count;
        for (size_t k = 0; k <= moments; k++) {
            const unsigned char *from = take(&at, &left, piece.count * sizeof(float));

            if (from == NULL) {
                return false;
            }
            if (k == 0) {
                memcpy((float *)restore->tensors.model[piece.param].data + piece.first, from,
                       (size_t)piece.count * sizeof(float));
            } else {
                copy_moment(trainer, &piece, k - 1, from);
            }
        }
    }
    return left == 0;
}

/* Rank 0 goes on with the sums of all parts: the next line of metrics is that of an undisturbed
 * run. */
static void take_sums(struct cddpi_trainer *trainer, uint32_t part, const unsigned char *from)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_kept_sums sums;

    memcpy(&sums, from, sizeof sums);
    if (part == 0) { /* a checkpoint is due as if these processes had begun it */
        trainer->folder.whole_ns = cddpi_now_ns() - sums.unsaved_ns;
        trainer->folder.saved_ns = trainer->folder.whole_ns;
    }
    if (trainer->rank == 0) {
        cddpi_exact_merge(&interval->loss_sum, &sums.loss);
        interval->correct += sums.correct;
        interval->count += sums.count;
        interval->skipped_count += sums.skipped_count;
        interval->skipped += sums.skipped;
    }
}

/* Take the tensors of @p list from a part that has them at @p at. */
static void take_tensors(const cddp_param *list, size_t count, const unsigned char **at,
                         uint64_t *left, bool copies)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddpi_tensors_bytes(&list[i], 1);
        const unsigned char *from = take(at, left, bytes);

        if (copies) {
            memcpy(list[i].data, from, bytes);
        }
    }
}

/* Take from part @p part what this rank needs of it. What all ranks have whole comes from the first
 * part. */
static cddp_status take_part(struct restore *restore, uint32_t part, const unsigned char *data)
{
    struct cddpi_trainer *trainer = restore->trainer;
    uint64_t left = stamp_of(restore, part)->bytes - CDDPI_KEPT_CHECKSUM_BYTES;
    const unsigned char *at = data;
    const unsigned char *pieces;
    uint64_t count = 0;
    const unsigned char *first = take(&at, &left, sizeof count);

    if (first == NULL) {
        return fail_form(part);
    }
    memcpy(&count, first, sizeof count);
    if (count > left / sizeof(struct cddpi_kept_piece) ||
        cddpi_keep_head_bytes(&restore->tensors, count) > sizeof count + left) {
        return fail_form(part);
    }
    pieces = take(&at, &left, count * sizeof(struct cddpi_kept_piece));
    take_sums(trainer, part, take(&at, &left, sizeof(struct cddpi_kept_sums)));
    take_tensors(restore->tensors.list, restore->tensors.count, &at, &left, part == 0);
    return take_pieces(restore, pieces, count, at, left) ? CDDP_OK : fail_form(part);
}

/* All that are trained. */
static uint64_t count_elements(const struct cddpi_trainer *trainer)
{
    uint64_t count = 0;

    for (size_t i = 0; i < trainer->params.count; i++) {
        const cddp_param *param = &trainer->params.list[i];

        count += (param->flags & CDDP_PARAM_FROZEN) != 0
                     ? 0
                     : cddpi_elements(param->dims, param->shape);
    }
    return count;
}

static cddp_status take_all(struct restore *restore)
{
    struct cddpi_trainer *trainer = restore->trainer;

    for (uint32_t part = 0; part < restore->chosen.parts; part++) {
        const unsigned char *own = own_part(restore, part);
        unsigned char *data = own != NULL ? (unsigned char *)(uintptr_t)own : restore->received;

        CDDPI_TRY(cddp_broadcast(trainer->group, data, stamp_of(restore, part)->bytes, CDDP_U8,
                                 restore->places[part].rank, NULL));
        CDDPI_TRY(take_part(restore, part, data));
    }
    if (restore->elements != count_elements(trainer)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "train.recovery: the parts that ranks kept are not all "
                                           "of the state");
    }
    trainer->cursor = (struct cddpi_cursor){restore->chosen.step, restore->chosen.epoch,
                                            restore->chosen.position};
    return cddpi_keep_send(trainer);
}

/* Tell the launcher, which gives a job up that fails again and again without progress, that an
 * earlier generation has got on. Only now is it known that this was of use. */
static void tell_progress(const struct restore *restore)
{
    struct cddpi_keep *keep = &restore->trainer->keep;

    if (restore->trainer->rank == 0 && keep->count > 0 &&
        cddpi_kept_is_news(&keep->files[0], restore->chosen.writer)) {
        cddpi_launcher_report_kept();
    }
}

static cddp_status restore_state(struct restore *restore, uint64_t checkpoint, bool *out_found)
{
    struct cddpi_trainer *trainer = restore->trainer;
    cddp_status status;

    CDDPI_TRY(gather_offers(restore, checkpoint));
    CDDPI_TRY(choose(restore));
    if (restore->chosen.step == 0) {
        return CDDP_OK;
    }
    status = cddpi_agree(trainer->group, prepare(restore));
    if (status == CDDP_ERR_NO_MEMORY) {
        if (trainer->rank == 0) {
            cddpi_trainer_warn(trainer,
                               "train.recovery: %s; so the job goes on from its newest "
                               "checkpoint",
                               cddp_last_error());
        }
        restore->chosen.step = 0;
        return CDDP_OK;
    }
    CDDPI_TRY(status);
    status = take_all(restore);
    *out_found = status == CDDP_OK;
    restore->chosen.step = status == CDDP_OK ? restore->chosen.step : 0;
    if (*out_found) {
        tell_progress(restore);
    }
    return status;
}

cddp_status cddpi_keep_restore(struct cddpi_trainer *trainer, uint64_t checkpoint, bool *out_found)
{
    struct restore restore = {.trainer = trainer};
    cddp_status status = restore_state(&restore, checkpoint, out_found);

    trainer->keep.restored = restore.chosen;
    if (status == CDDP_ERR_FORMAT) { /* all ranks have seen the same, and do not try it again */
        cddpi_keep_forget(&trainer->keep);
    }
    cddpi_free(restore.offers);
    cddpi_free(restore.places);
    cddpi_free(restore.received);
    cddpi_keep_release_tensors(&restore.tensors);
    return status;
}
