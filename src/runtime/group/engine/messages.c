/* messages.c - owns the start of several messages at once: checks all before it starts any, and
 * starts all before it waits for any. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/group_check.h"
#include "group/engine/group_entry.h"
#include "group/group.h"

#include <cddp/exchange.h>

#include <stdio.h>

static cddp_status check_message(const cddp_group *group, const cddp_message *messages,
                                 size_t index)
{
    const cddp_message *message = &messages[index];
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
    snprintf(call, sizeof call, "messages_start: message %zu", index);
    return cddpi_check_memory(group, call, "data", message->data, message->count, message->type);
}

static void destroy_all(cddp_work **works, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cddp_work_destroy(works[i]);
    }
}

/* Start all messages; if one cannot be started, abort the group. */
static cddp_status start_all(cddp_group *group, const cddp_message *messages, size_t count,
                             cddp_work **works)
{
    for (size_t i = 0; i < count; i++) {
        const cddp_message *m = &messages[i];
        cddp_status status = m->receives
                                 ? cddp_recv(group, m->data, m->count, m->type, m->peer, &works[i])
                                 : cddp_send(group, m->data, m->count, m->type, m->peer, &works[i]);

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
    status = start_all(group, messages, count, works);
    if (status != CDDP_OK) {
        cddpi_free(works); /* start_all() has destroyed the works that it had started */
        return status;
    }
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = cddp_work_wait(works[i], 0);
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
                                      : start_all(group, messages, count, works);
}
