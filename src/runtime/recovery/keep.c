/* keep.c - owns when and what a rank copies to memory that outlives it. */
#include "recovery/keep.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "recovery/keep_impl.h"

#include <limits.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

enum {
    PIECE_BYTES = 1 << 15, /* stays in the processor's cache until its checksum is known */
    COPIES = 2,            /* of each rank; they take turns */
    COST_LIMIT = 50,       /* copies take at most 1/50 of the time */
    TEXT_BYTES = 1024
};

void cddpi_keep_warn(const struct cddpi_keep *keep, const char *format, ...)
{
    char text[TEXT_BYTES];
    size_t length = (size_t)snprintf(text, sizeof text, "%s: ", keep->owner->name);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - length, format, arguments);
    va_end(arguments);
    keep->owner->warn(keep->owner->self, text);
}

/* Map the files that this rank can read; the first is its own. */
static void open_files(struct cddpi_keep *keep)
{
    int files[CDDPI_MACHINE_RANKS];
    int count = cddpi_kept_files(files);
    int local = (int)cddpi_env_integer(CDDPI_ENV_LOCAL_RANK, 0, INT32_MAX, 0);
    int ranks = cddpi_keep_local_ranks();

    for (int i = local; i < count && keep->count < CDDPI_KEEP_FILES; i += ranks) {
        if (cddpi_kept_open(files[i], &keep->files[keep->count]) == CDDP_OK) {
            keep->count++;
        } else if (i == local) {
            cddpi_keep_warn(keep, "%s", cddp_last_error());
            return;
        }
    }
    keep->is_on = keep->count > 0;
}

cddp_status cddpi_keep_open(struct cddpi_keep *keep, cddp_group *group,
                            const struct cddpi_keep_owner *owner, uint64_t run, uint64_t layout)
{
    uint64_t numbers[2] = {0, 0};

    *keep = (struct cddpi_keep){.owner = owner, .group = group, .layout = layout};
    keep->rank = cddp_group_rank(group);
    keep->world_size = cddp_group_world_size(group);
    keep->began_ns = cddpi_now_ns();
    open_files(keep);
    if (keep->rank == 0) {
        numbers[0] = run;
        randombytes_buf(&numbers[1], sizeof numbers[1]);
    }
    CDDPI_TRY(cddp_broadcast(group, numbers, sizeof numbers, CDDP_U8, 0, NULL));
    keep->run = numbers[0];
    keep->writer = numbers[1];
    return CDDP_OK;
}

void cddpi_keep_close(struct cddpi_keep *keep)
{
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_close(&keep->files[i]);
    }
    keep->count = 0;
    keep->is_on = false;
    cddpi_keep_clear(&keep->state);
}

bool cddpi_keep_is_due(const struct cddpi_keep *keep)
{
    return keep->is_on && !keep->is_off &&
           keep->spent_ns <= (cddpi_now_ns() - keep->began_ns) / COST_LIMIT;
}

/* Check that memory suffices for both kinds of slots of all ranks here, if they need as much more
 * as this one. */
static cddp_status check_memory(const struct cddpi_keep *keep)
{
    int here = cddpi_keep_local_ranks();
    uint64_t bytes = (here < keep->world_size ? 4 : 2) * keep->bytes;
    uint64_t there = cddpi_kept_room(&keep->files[0]);
    uint64_t missing = bytes > there ? bytes - there : 0; /* of this rank */
    uint64_t most;
    char size[CDDPI_SIZE_TEXT], rest[CDDPI_SIZE_TEXT];
    struct cddpi_memory_left left;

    cddpi_memory_left(&left);
    most = (keep->owner->is_frugal ? left.bytes / 2 : left.bytes) / (uint64_t)here;
    if (missing <= most) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "it takes %s of memory, and %s are left (%s)",
                      cddpi_print_size(missing * (uint64_t)here, size),
                      cddpi_print_size(left.bytes, rest), left.limit);
}

static uint64_t part_bytes(const struct cddpi_keep_contents *state)
{
    uint64_t bytes = cddpi_keep_padded(sizeof(struct cddpi_kept_head)) +
                     cddpi_keep_padded(state->keeps.count * sizeof(struct cddpi_keep_piece)) +
                     cddpi_keep_calls_bytes(state) + CDDPI_KEPT_CHECKSUM_BYTES;

    for (size_t i = 0; i < state->keeps.count; i++) {
        bytes += cddpi_keep_padded(state->keeps.at[i].piece.bytes);
    }
    return bytes;
}

/* Take memory for one more slot. */
static cddp_status prepare(struct cddpi_keep *keep, int slot)
{
    if (!keep->is_on) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the launcher holds no memory for it");
    }
    if (!keep->is_listed) {
        CDDPI_TRY(keep->owner->list(keep->owner->self));
        keep->bytes = part_bytes(&keep->state);
        keep->is_listed = true;
        CDDPI_TRY(check_memory(keep));
    }
    return cddpi_kept_reserve(&keep->files[0], slot, keep->bytes);
}

/* A copy under way. */
struct copy {
    unsigned char *to;         /* the next item */
    uint64_t at;               /* bytes of the item that are there */
    struct cddpi_kept_sum sum; /* of what is before the item */
};

/* Copy the next @p bytes of an item. */
static void put(struct copy *copy, const void *from, uint64_t bytes)
{
    memcpy(copy->to + copy->at, from, (size_t)bytes);
    copy->at += bytes;
}

/* The item is complete. */
static void end_item(struct copy *copy)
{
    uint64_t bytes = cddpi_keep_padded(copy->at);

    memset(copy->to + copy->at, 0, (size_t)(bytes - copy->at));
    cddpi_kept_sum_add(&copy->sum, copy->to, (size_t)bytes);
    copy->to += bytes;
    copy->at = 0;
}

/* Copy a large item. */
static void put_item(struct copy *copy, const unsigned char *from, uint64_t bytes)
{
    for (; bytes > PIECE_BYTES; bytes -= PIECE_BYTES) {
        put(copy, from, PIECE_BYTES);
        end_item(copy);
        from += PIECE_BYTES;
    }
    put(copy, from, bytes);
    end_item(copy);
}

static cddp_status put_calls(struct copy *copy, const struct cddpi_keep_contents *state)
{
    for (size_t i = 0; i < state->call_count; i++) {
        const struct cddpi_keep_calls *calls = &state->calls[i];
        cddp_status status;

        cddpi_error_clear();
        status = calls->save(calls->owner, copy->to);
        if (status != CDDP_OK) {
            return cddpi_fail_callback(status, "a function that saves a part of the state");
        }
        copy->at = calls->bytes;
        end_item(copy);
    }
    return CDDP_OK;
}

static cddp_status copy_state(const struct cddpi_keep_contents *state, unsigned char *to)
{
    const struct cddpi_keep_list *keeps = &state->keeps;
    const struct cddpi_kept_head head = {keeps->count};
    struct copy copy = {.to = to};
    uint64_t sum;

    put(&copy, &head, sizeof head);
    end_item(&copy);
    for (size_t i = 0; i < keeps->count; i++) {
        put(&copy, &keeps->at[i].piece, sizeof keeps->at[i].piece);
    }
    end_item(&copy);
    CDDPI_TRY(put_calls(&copy, state));
    for (size_t i = 0; i < keeps->count; i++) {
        put_item(&copy, keeps->at[i].data, keeps->at[i].piece.bytes);
    }
    sum = cddpi_kept_sum_end(&copy.sum);
    memset(copy.to, 0, CDDPI_KEPT_CHECKSUM_BYTES);
    memcpy(copy.to, &sum, sizeof sum);
    return CDDP_OK;
}

/* Functions of the program may have failed on one rank, so ask all, before a copy counts. */
static cddp_status settle_calls(struct cddpi_keep *keep, cddp_status mine)
{
    uint8_t fails = mine != CDDP_OK;

    if (keep->state.call_count == 0 || !keep->state.calls[0].is_foreign) {
        return CDDP_OK;
    }
    if (fails != 0) {
        cddpi_keep_warn(keep, "rank %d: %s; so nothing is kept from now on", keep->rank,
                        cddp_last_error());
    }
    CDDPI_TRY(cddp_all_reduce(keep->group, &fails, &fails, 1, CDDP_U8, CDDP_OP_MAX, NULL));
    keep->is_off = fails != 0;
    return CDDP_OK;
}

static cddp_status copy_step(struct cddpi_keep *keep, int slot, uint64_t step)
{
    struct cddpi_kept_memory *own = &keep->files[0];
    const struct cddpi_kept_stamp stamp = {.step = step,
                                           .run = keep->run,
                                           .writer = keep->writer,
                                           .layout = keep->layout,
                                           .bytes = keep->bytes,
                                           .part = (uint32_t)keep->rank,
                                           .parts = (uint32_t)keep->world_size};

    CDDPI_TRY(keep->owner->fetch(keep->owner->self));
    CDDPI_TRY(settle_calls(keep, copy_state(&keep->state, cddpi_kept_begin(own, slot))));
    if (keep->is_off) {
        return CDDP_OK;
    }
    cddpi_kept_end(own, slot, &stamp);
    if (keep->sends) {
        CDDPI_TRY(cddpi_keep_exchange(keep, slot, &stamp));
    }
    keep->copies++;
    keep->kept_step = step;
    keep->newest = step;
    return CDDP_OK;
}

/* Whether one more slot has to be prepared. Another loop of this process that has kept its state
 * since may have moved the slots, since both use the same memory. All ranks have the same loops, so
 * they find the same. */
static bool is_to_prepare(struct cddpi_keep *keep)
{
    static _Atomic uint64_t last_writer;

    if (atomic_exchange(&last_writer, keep->writer) != keep->writer) {
        keep->prepared = 0;
    }
    return keep->prepared < COPIES;
}

cddp_status cddpi_keep_step(struct cddpi_keep *keep, uint64_t step)
{
    int slot = keep->is_on ? cddpi_kept_next(&keep->files[0], CDDPI_KEPT_OWN, keep->run) : 0;
    int64_t begun_ns;
    cddp_status status;

    if (!keep->is_off && is_to_prepare(keep)) {
        CDDPI_TRY(cddpi_keep_introduce(keep, prepare(keep, slot)));
        keep->prepared++;
    }
    if (keep->is_off) {
        return CDDP_OK;
    }
    begun_ns = cddpi_now_ns();
    status = copy_step(keep, slot, step);
    keep->spent_ns += cddpi_now_ns() - begun_ns;
    return status;
}
