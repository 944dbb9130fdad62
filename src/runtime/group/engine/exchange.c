/* exchange.c - owns the exchanges of more than one operation: several messages at once, bytes of
 * any length, and blocks of different lengths. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/types.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/engine/handles.h"
#include "group/group.h"
#include "group/join/group_agree.h"

#include <cddp/exchange.h>

#include <stdio.h>
#include <string.h>

/* --- several messages: check all before any starts, and start all before waiting for any --- */

static cddp_status check_message(const cddp_group *group, const cddp_message *messages,
                                 size_t index)
{
    const cddp_message *message = &messages[index];
    cddp_status status;
    char call[64];

    if (message->peer < 0 || message->peer >= group->world_size || message->peer == group->rank) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "messages_start: message %zu: rank %d is %s", index, message->peer,
                               message->peer == group->rank ? "this one" : "not in the group");
    }
    if (cddp_type_bytes(message->type) == 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "messages_start: message %zu: there is no element type %d", index,
                               (int)message->type);
    }
    if ((message->receives ? message->in : message->out) != NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "messages_start: message %zu: it %s, so its %s has to be NULL",
                               index, message->receives ? "receives" : "sends",
                               message->receives ? "in" : "out");
    }
    snprintf(call, sizeof call, "messages_start: message %zu", index);
    status = cddpi_flags_check(message->flags, message->reserved[0] | message->reserved[1]);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", call);
    }
    return cddpi_check_memory(group, call, message->receives ? "out" : "in",
                              message->receives ? message->out : message->in, message->count,
                              message->type);
}

static void destroy_all(cddp_work **works, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cddp_work_destroy(works[i]);
    }
}

/* Start all messages; if one cannot be started, abort the group. */
static cddp_status start_messages(cddp_group *group, const cddp_message *messages, size_t count,
                                  cddp_work **works)
{
    for (size_t i = 0; i < count; i++) {
        const cddp_message *m = &messages[i];
        cddp_status status = m->receives
                                 ? cddp_recv(group, m->out, m->count, m->type, m->peer, &works[i])
                                 : cddp_send(group, m->in, m->count, m->type, m->peer, &works[i]);

        if (status != CDDP_OK) { /* there is no memory, or the group is broken */
            struct cddpi_failure failure = *cddpi_last_failure();

            /* peers wait for the messages that were not started */
            cddp_group_abort(group, cddp_last_error());
            destroy_all(works, i);
            return cddpi_fail_again(status, &failure);
        }
    }
    return CDDP_OK;
}

/* Start @p messages and wait for all of them. */
static cddp_status do_all(cddp_group *group, const cddp_message *messages, size_t count)
{
    cddp_work **works = cddpi_zalloc_array(count, sizeof(cddp_work *));
    struct cddpi_failure failure;
    cddp_status status;

    if (works == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank,
                               "messages_start: no memory for %zu handles", count);
    }
    status = start_messages(group, messages, count, works);
    if (status != CDDP_OK) {
        cddpi_free(works); /* start_messages() has destroyed the works that it had started */
        return status;
    }
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = cddp_work_wait(works[i]);
    }
    failure = *cddpi_last_failure();
    destroy_all(works, count);
    cddpi_free(works);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_again(status, &failure);
}

cddp_status cddp_messages_start(cddp_group *group, const cddp_message *messages, size_t count,
                                cddp_work **works)
{
    CDDPI_ENTER_GROUP(group, "messages_start");
    if (messages == NULL && count > 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "messages_start: the array of messages is NULL");
    }
    if (count > CDDPI_BYTES_MAX / sizeof *messages) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "messages_start: %zu messages",
                               count);
    }
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(check_message(group, messages, i));
    }
    return works == NULL && count > 0 ? do_all(group, messages, count)
                                      : start_messages(group, messages, count, works);
}

/* --- bytes of any length: first the length, then the bytes --- */

/* Allocate memory for @p bytes and a NUL byte. A rank without memory aborts the group, since the
 * others wait for it. */
static cddp_status reserve_bytes(cddp_group *group, const char *what, uint64_t bytes, char **out)
{
    cddp_status status;

    *out = bytes < CDDPI_BYTES_MAX ? cddpi_zalloc((size_t)bytes + 1) : NULL;
    if (*out != NULL) {
        return CDDP_OK;
    }
    status = cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "%s: no memory for %llu bytes", what,
                             (unsigned long long)bytes);
    cddp_group_abort(group, cddp_last_error());
    return status;
}

static cddp_status check_bytes(const cddp_group *group, const char *what, const void *data,
                               size_t bytes, const void *out)
{
    if (out == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: out is NULL", what);
    }
    return cddpi_check_memory(group, what, "data", data, bytes, CDDP_U8);
}

cddp_status cddp_all_gather_bytes(cddp_group *group, const void *data, size_t bytes, void **out,
                                  size_t *out_bytes)
{
    static const char what[] = "all_gather_bytes";
    uint64_t own = bytes;
    uint64_t sum = 0;
    void *sizes = NULL;
    char *all = NULL;
    cddp_status status;

    CDDPI_ENTER_GROUP(group, what);
    CDDPI_TRY(check_bytes(group, what, data, bytes, out_bytes != NULL ? out : NULL));
    CDDPI_TRY(cddpi_all_gather_bytes(group, &own, sizeof own, &sizes));
    for (int r = 0; r < group->world_size; r++) {
        uint64_t given = ((const uint64_t *)sizes)[r];

        sum = given < UINT64_MAX - sum ? sum + given : UINT64_MAX;
        out_bytes[r] = (size_t)given;
    }
    cddpi_free(sizes);
    CDDPI_TRY(reserve_bytes(group, what, sum, &all));
    status = cddp_all_gatherv(group, data, all, out_bytes, CDDP_U8, NULL);
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

cddp_status cddp_broadcast_bytes(cddp_group *group, const void *data, size_t bytes, int root,
                                 void **out, size_t *out_bytes)
{
    static const char what[] = "broadcast_bytes";
    uint64_t length = bytes;
    char *copy = NULL;
    cddp_status status;
    bool is_root;

    CDDPI_ENTER_GROUP(group, what);
    is_root = group->rank == root;
    CDDPI_TRY(check_bytes(group, what, data, is_root ? bytes : 0, out));
    CDDPI_TRY(cddp_broadcast(group, &length, sizeof length, CDDP_U8, root, NULL));
    CDDPI_TRY(reserve_bytes(group, what, length, &copy));
    if (is_root && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    status = cddp_broadcast(group, copy, (size_t)length, CDDP_U8, root, NULL);
    if (status != CDDP_OK) {
        cddpi_free(copy);
        return status;
    }
    *out = copy;
    if (out_bytes != NULL) {
        *out_bytes = (size_t)length;
    }
    return CDDP_OK;
}

/* --- blocks of different lengths: one broadcast per rank, from its block's place to the same place
 * on all ranks, so that nothing is padded --- */

/* Count the elements before each rank's block, and in total; checks for overflow. */
static cddp_status count_before(const cddp_group *group, const size_t *counts, cddp_type type,
                                size_t *out_own, size_t *out_all)
{
    size_t most = CDDPI_BYTES_MAX / cddp_type_bytes(type);
    size_t all = 0;

    for (int r = 0; r < group->world_size; r++) {
        if (r == group->rank) {
            *out_own = all;
        }
        if (counts[r] > most - all) {
            return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                                   "all_gatherv: %zu elements of rank %d are too many", counts[r],
                                   r);
        }
        all += counts[r];
    }
    *out_all = all;
    return CDDP_OK;
}

static cddp_status check_blocks(const cddp_group *group, const void *in, const void *out,
                                const size_t *counts, cddp_type type, size_t *out_own)
{
    static const char call[] = "all_gatherv";
    size_t element = cddp_type_bytes(type);
    size_t all = 0;

    if (element == 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no element type %d",
                               call, (int)type);
    }
    if (counts == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: counts is NULL", call);
    }
    CDDPI_TRY(count_before(group, counts, type, out_own, &all));
    CDDPI_TRY(cddpi_check_memory(group, call, "in", in, counts[group->rank], type));
    CDDPI_TRY(cddpi_check_memory(group, call, "out", out, all, type));
    if (out == NULL ||
        in == (const char *)out + *out_own * element) { /* NULL: no rank has any elements */
        return CDDP_OK;
    }
    return cddpi_check_apart(group, call, in, counts[group->rank] * element, out, all * element);
}

/* Copy this rank's block to its place, in CPU or device memory. */
static cddp_status place_own(cddp_group *group, void *to, const void *from, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    if (to == from || bytes == 0) {
        return CDDP_OK;
    }
    if (cddpi_group_has_device(group) && device->ops->owns(device, to)) {
        return device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes);
    }
    memmove(to, from, bytes);
    return CDDP_OK;
}

/* Start the broadcasts. Their handles are linked to that of the last broadcast, which is done after
 * all others. */
static cddp_status start_broadcasts(cddp_group *group, unsigned char *out, const size_t *counts,
                                    cddp_type type, cddp_work **out_last)
{
    cddp_work *last = NULL;
    size_t element = cddp_type_bytes(type);

    for (int r = 0; r < group->world_size; r++) {
        cddp_work *work = NULL;
        cddp_status status = cddp_broadcast(group, out, counts[r], type, r, &work);

        if (status != CDDP_OK) {
            struct cddpi_failure failure = *cddpi_last_failure();

            /* the other ranks will start this broadcast */
            cddp_group_abort(group, cddp_last_error());
            cddp_work_destroy(last);
            return cddpi_fail_again(status, &failure);
        }
        work->before = last;
        last = work;
        out += counts[r] * element;
    }
    *out_last = last;
    return CDDP_OK;
}

cddp_status cddp_all_gatherv(cddp_group *group, const void *in, void *out, const size_t *counts,
                             cddp_type type, cddp_work **work)
{
    /* placeholder for blocks without elements, if the caller has no memory */
    static unsigned char nothing;
    size_t element = cddp_type_bytes(type);
    cddp_work *last = NULL;
    size_t own = 0;
    cddp_status status;

    CDDPI_ENTER_GROUP(group, "all_gatherv");
    CDDPI_TRY(check_blocks(group, in, out, counts, type, &own));
    out = out != NULL ? out : &nothing;
    CDDPI_TRY(place_own(group, (char *)out + own * element, in, counts[group->rank] * element));
    CDDPI_TRY(start_broadcasts(group, out, counts, type, &last));
    if (work != NULL) {
        *work = last;
        return CDDP_OK;
    }
    status = cddp_work_wait(last);
    cddp_work_destroy(last);
    return status;
}
