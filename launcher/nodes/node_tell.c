/* node_tell.c - the two threads of a node. One tells: it writes events, keys for the ranks, and the
 * node's sign of life to the store. The other hears: it reads events, and checks that the other
 * nodes and the store give signs of life. A request that is not answered is repeated over a new
 * connection: TCP would retransmit it after longer and longer pauses, too late once the link is
 * back. */
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

enum {
    MOST_WAIT_MS = 250, /* longest wait for an event */
    GONE_MS = 1000      /* once a node's connection has closed: how long its earlier writes may
                           still arrive */
};

static bool is_over(struct cddpi_node_link *link)
{
    bool is_over;

    pthread_mutex_lock(&link->lock);
    is_over = link->is_ending || link->is_cut;
    pthread_mutex_unlock(&link->lock);
    return is_over;
}

/* Publish that @p node has given no sign of life for too long. */
static void lose_node(struct cddpi_node_link *link, int node)
{
    struct cddpi_node_event event = {
        .kind = CDDPI_EVENT_LOST, .node = node, .rank = -1, .exit_status = 1};

    link->peers[node].is_gone = true;
    if (strcmp(link->peers[node].beat, CDDPI_NODE_GONE) == 0) {
        snprintf(event.text, sizeof event.text,
                 "its cddp-run has ended without a word: was it killed?");
    } else {
        snprintf(event.text, sizeof event.text,
                 "no sign of life for %.1f s, and it may be silent for %g s (CDDP_HEARTBEAT_MS): "
                 "the machine stands still, or it or the network is gone",
                 (double)link->peers[node].silence.silent_ns * 1e-9, link->limit_ms / 1000.0);
    }
    if (node == 0 && link->self > 0) {
        cddpi_node_link_deliver(link, &event);
    } else {
        cddpi_node_link_publish(link, &event);
    }
}

static cddp_status look_after(struct cddpi_node_link *link, int node)
{
    struct node_peer *peer = &link->peers[node];
    char key[CDDPI_NODE_KEY_BYTES];
    void *beat = NULL;
    bool is_heard = false;
    cddp_status status;

    if (peer->is_gone) {
        return CDDP_OK;
    }
    snprintf(key, sizeof key, "%s/beat/%d", link->job, node);
    status = cddp_store_try_get(link->hearer, key, &beat, NULL);
    if (status != CDDP_OK && status != CDDP_ERR_NOT_FOUND) {
        return status;
    }
    if (status == CDDP_ERR_NOT_FOUND && link->self < 0 && !link->has_begun) {
        return CDDP_OK; /* the nodes have not met yet; the meeting has its own deadline */
    }
    if (status == CDDP_OK && strcmp(beat, peer->beat) != 0) {
        size_t length = strnlen(beat, sizeof peer->beat - 1);

        memcpy(peer->beat, beat, length);
        peer->beat[length] = '\0';
        is_heard = strcmp(peer->beat, CDDPI_NODE_GONE) != 0;
    }
    cddp_free(beat);
    if (cddpi_silence_look(&peer->silence, is_heard, link->look_ms, link->limit_ms,
                           cddpi_now_ns()) ||
        (strcmp(peer->beat, CDDPI_NODE_GONE) == 0 &&
         peer->silence.silent_ns >= GONE_MS * INT64_C(1000000))) {
        lose_node(link, node);
    }
    return CDDP_OK;
}

/* Node 0 watches the others, and they watch node 0; the cddp-run of --hosts watches all. */
static cddp_status look_after_peers(struct cddpi_node_link *link)
{
    int end = link->self > 0 ? 1 : link->count;

    for (int node = link->self == 0 ? 1 : 0; node < end; node++) {
        CDDPI_TRY(look_after(link, node));
    }
    return CDDP_OK;
}

/* Pass @p event to the link's owner. After END, no node is missed: all leave. */
static void take_event(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    link->has_begun = link->has_begun || event->kind == CDDPI_EVENT_START;
    for (int node = 0; node < link->count; node++) {
        link->peers[node].is_gone = link->peers[node].is_gone || event->kind == CDDPI_EVENT_END ||
                                    (event->kind == CDDPI_EVENT_BYE && event->node == node);
    }
    cddpi_node_link_deliver(link, event);
}

/* Pass event @p number on if it arrives within @p wait_ms; *out_came says whether it did. */
static cddp_status hear_event(struct cddpi_node_link *link, int64_t number, uint32_t wait_ms,
                              bool *out_came)
{
    struct cddpi_node_event event;
    char key[CDDPI_NODE_KEY_BYTES];
    void *value = NULL;
    size_t bytes;
    int64_t due_ns = cddpi_node_answer_due_ns(link) + wait_ms * INT64_C(1000000);
    cddp_status status;

    cddpi_node_event_key(link, number, key);
    status = cddp_store_get(link->hearer, key, wait_ms, &value, &bytes);
    cddpi_node_notice_sleep(link, due_ns); /* before this event, which may be what others say about
                                              the standstill */
    *out_came = status == CDDP_OK;
    if (status == CDDP_OK && cddpi_node_event_decode(value, bytes, &event) == CDDP_OK) {
        take_event(link, &event);
    } else if (status == CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "%s in the store is not an event: %s", key, cddp_last_error());
    }
    cddp_free(value);
    return status == CDDP_ERR_TIMEOUT ? CDDP_OK : status;
}

/* @p status is the result of the hearer's last request. Fails if the store has been silent for too
 * long. */
static cddp_status judge_store(struct cddpi_node_link *link, cddp_status status)
{
    bool is_lost = cddpi_silence_look(&link->store_silence, status != CDDP_ERR_TIMEOUT,
                                      link->options.timeout_ms + link->look_ms, link->limit_ms,
                                      cddpi_now_ns());

    if (status != CDDP_ERR_TIMEOUT) {
        return status;
    }
    if (is_lost) {
        return cddpi_fail(CDDP_ERR_TIMEOUT,
                          "it has not answered for %.1f s, and may be silent for %g s "
                          "(CDDP_HEARTBEAT_MS): the machine stands still, or it or the network is "
                          "gone",
                          (double)link->store_silence.silent_ns * 1e-9, link->limit_ms / 1000.0);
    }
    return CDDP_OK;
}

/* Check all peers. If the store does not answer, repeat over a new connection, until it has been
 * silent for too long. */
static cddp_status look_around(struct cddpi_node_link *link)
{
    cddp_status status = look_after_peers(link);

    while (status == CDDP_ERR_TIMEOUT && !is_over(link)) {
        CDDPI_TRY(judge_store(link, CDDP_ERR_TIMEOUT));
        status = cddpi_node_link_connect_again(link, &link->hearer);
    }
    return judge_store(link, status);
}

void *cddpi_node_hear(void *argument)
{
    struct cddpi_node_link *link = argument;
    int64_t look_ns = cddpi_deadline_ns(link->look_ms);
    int64_t number = 0;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && !is_over(link)) {
        int left_ms = cddpi_left_ms(look_ns);
        int wait_ms = left_ms < 1 ? 1 : left_ms > MOST_WAIT_MS ? MOST_WAIT_MS : left_ms;
        bool has_come = false;

        status = hear_event(link, number, (uint32_t)wait_ms, &has_come);
        number += has_come ? 1 : 0;
        if (status == CDDP_OK && cddpi_now_ns() >= look_ns) {
            status = look_around(link);
            look_ns = cddpi_deadline_ns(link->look_ms);
        }
    }
    if (status != CDDP_OK) {
        cddpi_node_link_cut(link, cddp_last_error());
    }
    return NULL;
}
