/* node_tell.c - the telling thread of a node: writes events, keys for the ranks, and the node's
 * sign of life to the store. A request that is not answered is repeated over a new connection: TCP
 * would retransmit it after longer and longer pauses, too late once the link is back. */
#include "launcher/nodes/node_link_own.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Whether the telling thread may keep trying. The hearing thread decides when the store is lost. */
static bool may_try(struct cddpi_node_link *link)
{
    bool may_try;

    pthread_mutex_lock(&link->lock);
    may_try = !link->is_cut && !(link->is_ending && cddpi_now_ns() > link->end_ns);
    pthread_mutex_unlock(&link->lock);
    return may_try;
}

/* The teller's request was not answered: connect again. CDDP_OK: the request can be repeated. */
static cddp_status teller_again(struct cddpi_node_link *link)
{
    cddp_status status;

    do {
        if (!may_try(link)) {
            return CDDP_ERR_TIMEOUT;
        }
        status = cddpi_node_link_connect_again(link, &link->teller);
    } while (status == CDDP_ERR_TIMEOUT);
    return status;
}

static cddp_status set_key(struct cddpi_node_link *link, const char *key, const void *value,
                           size_t bytes)
{
    for (;;) {
        int64_t due_ns = cddpi_node_answer_due_ns(link);
        cddp_status status = cddp_store_set(link->teller, key, value, bytes);

        cddpi_node_notice_sleep(link, due_ns);
        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        CDDPI_TRY(teller_again(link));
    }
}

/* Write the event to @p key, unless that key is used. *out_is_taken: the key holds this event now,
 * perhaps since an earlier attempt that was not answered. */
static cddp_status tell_as(struct cddpi_node_link *link, const char *key,
                           const struct cddpi_wire_buffer *event, bool *out_is_taken)
{
    cddp_status status;
    bool is_again = false;

    for (;;) {
        void *present = NULL;
        size_t bytes = 0;
        int64_t due_ns = cddpi_node_answer_due_ns(link);

        status = cddp_store_compare_set(link->teller, key, NULL, 0, event->data, event->bytes,
                                        out_is_taken, &present, &bytes);
        cddpi_node_notice_sleep(link, due_ns);
        if (status == CDDP_OK && is_again && !*out_is_taken && present != NULL) {
            *out_is_taken = bytes == event->bytes && memcmp(present, event->data, bytes) == 0;
        }
        cddp_free(present);
        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        is_again = true;
        CDDPI_TRY(teller_again(link));
    }
}

static cddp_status tell_item(struct cddpi_node_link *link, const struct node_item *item,
                             int64_t *number)
{
    bool is_taken = false;
    cddp_status status = CDDP_OK;

    if (item->key[0] != '\0') {
        return set_key(link, item->key, item->value.data, item->value.bytes);
    }
    while (status == CDDP_OK && !is_taken) {
        char key[CDDPI_NODE_KEY_BYTES];

        cddpi_node_event_key(link, *number, key);
        status = tell_as(link, key, &item->value, &is_taken);
        *number += status == CDDP_OK ? 1 : 0;
    }
    return status;
}

void cddpi_node_item_release(struct node_item *item)
{
    cddpi_buffer_fini(&item->value);
    cddpi_free(item);
}

/* Wait until an item is queued, the next sign of life is due, or the link ends. NULL: no item. */
static struct node_item *next_item(struct cddpi_node_link *link, int64_t beat_ns, bool *out_is_over)
{
    struct timespec until = {beat_ns / 1000000000, beat_ns % 1000000000};
    struct node_item *item;
    int error = 0;

    pthread_mutex_lock(&link->lock);
    while (link->first == NULL && !link->is_ending && !link->is_cut && error == 0) {
        error = pthread_cond_timedwait(&link->wake, &link->lock, &until);
    }
    item = link->first;
    if (item != NULL) {
        link->first = item->next;
        link->last = link->first != NULL ? link->last : NULL;
    }
    *out_is_over = link->is_cut ||
                   (link->is_ending && (item == NULL || cddpi_now_ns() > link->end_ns));
    pthread_mutex_unlock(&link->lock);
    return item;
}

void *cddpi_node_tell(void *argument)
{
    struct cddpi_node_link *link = argument;
    int64_t beat_ns = cddpi_now_ns();
    int64_t due_ns = cddpi_node_boot_ns();
    int64_t number = 0;
    int64_t beats = 0;
    cddp_status status = CDDP_OK;
    char key[CDDPI_NODE_KEY_BYTES];

    snprintf(key, sizeof key, "%s/beat/%d", link->job, link->self);
    while (status == CDDP_OK) {
        bool is_over;
        struct node_item *item;

        link->due_ns = due_ns;
        item = next_item(link, beat_ns, &is_over);
        cddpi_node_notice_sleep(link, due_ns);
        link->due_ns = INT64_MAX;
        if (item != NULL && !is_over) {
            status = tell_item(link, item, &number);
        }
        if (item != NULL) {
            cddpi_node_item_release(item);
        }
        if (is_over) {
            return NULL;
        }
        if (status == CDDP_OK && link->self >= 0 && cddpi_now_ns() >= beat_ns) {
            char beat[24];

            snprintf(beat, sizeof beat, "%lld", (long long)++beats);
            status = set_key(link, key, beat, strlen(beat));
        }
        if (cddpi_now_ns() >= beat_ns) {
            beat_ns = cddpi_deadline_ns(link->look_ms);
        }
        due_ns = cddpi_node_boot_ns() + beat_ns - cddpi_now_ns();
    }
    if (status != CDDP_ERR_TIMEOUT) { /* after a timeout, the link has ended or the hearing thread
                                         reports the loss */
        cddpi_node_link_cut(link, cddp_last_error());
    }
    return NULL;
}

static void queue_item(struct cddpi_node_link *link, struct node_item *item)
{
    pthread_mutex_lock(&link->lock);
    if (link->last != NULL) {
        link->last->next = item;
    } else {
        link->first = item;
    }
    link->last = item;
    pthread_cond_signal(&link->wake);
    pthread_mutex_unlock(&link->lock);
}

/* Without memory the item cannot be sent; log that. */
static void drop_item(struct node_item *item, const char *why)
{
    cddpi_log(CDDPI_LOG_ERROR, "what is to be told to other nodes: %s", why);
    if (item != NULL) {
        cddpi_node_item_release(item);
    }
}

void cddpi_node_link_publish(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    struct node_item *item = cddpi_zalloc(sizeof *item);

    if (item == NULL) {
        drop_item(item, "no memory");
    } else if (cddpi_message_encode(&cddpi_node_event_form, event, &item->value) != CDDP_OK) {
        drop_item(item, cddp_last_error());
    } else {
        queue_item(link, item);
    }
}

void cddpi_node_link_set(struct cddpi_node_link *link, const char *key, const char *text)
{
    struct node_item *item = cddpi_zalloc(sizeof *item);

    if (item == NULL || !cddpi_buffer_reserve(&item->value, strlen(text))) {
        drop_item(item, "no memory");
        return;
    }
    snprintf(item->key, sizeof item->key, "%s", key);
    cddpi_buffer_append(&item->value, text, strlen(text));
    queue_item(link, item);
}
