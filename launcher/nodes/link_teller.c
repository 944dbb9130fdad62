/* link_teller.c - owns what a node writes to the store, and in which order: its sign of life,
 * events, and keys for the ranks.
 *
 * An event is written under the first number that is not used yet, so that what is already known
 * comes first. A request that was not answered is repeated over a new connection: TCP would
 * retransmit it after longer and longer pauses, too late once the link is back. */
#include "launcher/nodes/link_state_own.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

void cddpi_link_event_key(const struct cddpi_link_state *link, int64_t number,
                          char out[CDDPI_NODE_KEY_BYTES])
{
    snprintf(out, CDDPI_NODE_KEY_BYTES, "%s/event/%lld", link->job, (long long)number);
}

void cddpi_link_beat_key(const struct cddpi_link_state *link, int node,
                         char out[CDDPI_NODE_KEY_BYTES])
{
    snprintf(out, CDDPI_NODE_KEY_BYTES, "%s/beat/%d", link->job, node);
}

static void release_item(struct cddpi_link_item *item)
{
    if (item != NULL) {
        cddpi_buffer_fini(&item->value);
        cddpi_free(item);
    }
}

void cddpi_teller_fini(struct cddpi_link_teller *teller)
{
    while (teller->first != NULL) {
        struct cddpi_link_item *item = teller->first;

        teller->first = item->next;
        release_item(item);
    }
    teller->last = NULL;
}

static void queue_item(struct cddpi_link_teller *teller, struct cddpi_link_item *item)
{
    if (teller->last != NULL) {
        teller->last->next = item;
    } else {
        teller->first = item;
    }
    teller->last = item;
}

/* The item cannot be sent; log that. */
static void drop_item(struct cddpi_link_item *item, const char *why)
{
    cddpi_log(CDDPI_LOG_ERROR, "what is to be told to other nodes: %s", why);
    release_item(item);
}

void cddpi_link_publish(struct cddpi_link_state *link, const struct cddpi_node_event *event)
{
    struct cddpi_link_item *item = cddpi_zalloc(sizeof *item);
    cddp_status status = item != NULL
                             ? cddpi_message_encode(&cddpi_node_event_form, event, &item->value)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory");

    if (status == CDDP_OK) {
        queue_item(&link->teller, item);
        return;
    }
    drop_item(item, cddp_last_error());
    if (status == CDDP_ERR_NO_MEMORY && event->kind != CDDPI_EVENT_SAVING) {
        link->teller.has_lost = true;
    }
}

void cddpi_link_set(struct cddpi_link_state *link, const char *key, const char *text)
{
    struct cddpi_link_item *item = cddpi_zalloc(sizeof *item);

    if (item == NULL || !cddpi_buffer_reserve(&item->value, strlen(text))) {
        drop_item(item, "no memory");
        return;
    }
    snprintf(item->key, sizeof item->key, "%s", key);
    cddpi_buffer_append(&item->value, text, strlen(text));
    queue_item(&link->teller, item);
}

bool cddpi_link_wants_to_tell(const struct cddpi_link_state *link)
{
    return link->teller.first != NULL || link->is_ending || link->is_cut;
}

static void ask_item(struct cddpi_link_state *link, struct cddpi_link_request *out)
{
    struct cddpi_link_teller *teller = &link->teller;
    const struct cddpi_link_item *item = teller->first;

    out->value = item->value.data;
    out->bytes = item->value.bytes;
    if (item->key[0] != '\0') {
        out->kind = CDDPI_LINK_SET;
        memcpy(out->key, item->key, sizeof out->key);
        return;
    }
    /* The hearer has found all events before its next one. But an event that may have been written
     * already is looked for where that was tried. */
    if (!teller->is_again && teller->number < link->hearer.number) {
        teller->number = link->hearer.number;
    }
    out->kind = CDDPI_LINK_COMPARE_SET;
    cddpi_link_event_key(link, teller->number, out->key);
}

static void ask_beat(struct cddpi_link_state *link, struct cddpi_link_request *out)
{
    struct cddpi_link_teller *teller = &link->teller;

    snprintf(teller->beat, sizeof teller->beat, "%lld", (long long)teller->beats + 1);
    teller->asked_beat = true;
    out->kind = CDDPI_LINK_SET;
    cddpi_link_beat_key(link, link->self, out->key);
    out->value = teller->beat;
    out->bytes = strlen(teller->beat);
}

void cddpi_teller_next(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       struct cddpi_link_request *out)
{
    struct cddpi_link_teller *teller = &link->teller;
    bool is_due = now->now_ns >= teller->beat_ns;

    teller->asked_beat = false;
    if (is_due && link->self < 0) { /* nobody watches this process, but it notices standstills */
        teller->beat_ns = now->now_ns + link->look_ms * INT64_C(1000000);
    }
    if (link->is_cut ||
        (link->is_ending && (teller->first == NULL || now->now_ns > link->end_ns))) {
        out->kind = CDDPI_LINK_OVER;
    } else if (teller->must_reconnect) {
        out->kind = CDDPI_LINK_RECONNECT;
    } else if (is_due && link->self >= 0) {
        ask_beat(link, out); /* the first one before any event: who hears JOIN looks for it */
    } else if (teller->first != NULL) {
        ask_item(link, out);
    } else {
        out->kind = CDDPI_LINK_WAIT;
        out->until_ns = teller->beat_ns;
    }
}

static void take_write(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       const struct cddpi_link_answer *answer)
{
    struct cddpi_link_teller *teller = &link->teller;
    struct cddpi_link_item *item = teller->first;
    bool is_written = true;

    if (teller->asked_beat) {
        teller->beats++;
        teller->beat_ns = now->now_ns + link->look_ms * INT64_C(1000000);
        return;
    }
    if (teller->asked == CDDPI_LINK_COMPARE_SET) {
        /* perhaps since an earlier request that was not answered */
        bool is_present = teller->is_again && answer->value != NULL &&
                          answer->bytes == item->value.bytes &&
                          memcmp(answer->value, item->value.data, answer->bytes) == 0;

        is_written = answer->is_set || is_present;
        teller->number++;
    }
    teller->is_again = false;
    if (is_written) {
        teller->first = item->next;
        teller->last = teller->first != NULL ? teller->last : NULL;
        release_item(item);
    }
}

void cddpi_teller_repeat(struct cddpi_link_teller *teller)
{
    if (teller->asked != CDDPI_LINK_RECONNECT && !teller->asked_beat) {
        teller->is_again = true;
    }
}

bool cddpi_teller_take(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       const struct cddpi_link_answer *answer, struct cddpi_node_event *out_event)
{
    struct cddpi_link_teller *teller = &link->teller;

    switch (answer->status) {
    case CDDP_OK:
        teller->must_reconnect = false;
        if (teller->asked != CDDPI_LINK_RECONNECT) {
            take_write(link, now, answer);
        }
        return true;
    case CDDP_ERR_TIMEOUT: /* the hearer decides when the store is lost */
        teller->must_reconnect = true;
        cddpi_teller_repeat(teller);
        return true;
    default:
        snprintf(out_event->text, sizeof out_event->text, "%s", answer->error);
        return false;
    }
}
