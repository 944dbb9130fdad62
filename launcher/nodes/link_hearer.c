/* link_hearer.c - owns what a node reads from the store: the job's events, in their order, and the
 * signs of life of the nodes that it watches. Node 0 watches all other nodes, they watch node 0,
 * and the cddp-run that started the nodes watches all. If the store is outside, the process that
 * serves it watches all nodes, and they do not watch each other: all that a node could see of
 * another one is what is in the store.
 *
 * A node is watched from the start or from its JOIN on, until it is lost, has left, or the job has
 * ended. It writes its first sign of life before its JOIN. */
#include "launcher/nodes/link_state_own.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_WAIT_MS = 250, /* longest wait for an event */
    GONE_MS = 1000      /* once a node's connection has closed: how long its earlier writes may
                           still arrive */
};

static struct cddpi_link_peer *find_peer(struct cddpi_link_hearer *hearer, int node)
{
    for (int i = 0; i < hearer->count; i++) {
        if (hearer->peers[i].node == node) {
            return &hearer->peers[i];
        }
    }
    return NULL;
}

bool cddpi_hearer_watch(struct cddpi_link_state *link, int node)
{
    struct cddpi_link_hearer *hearer = &link->hearer;
    bool watches = link->self > 0 ? node == 0 : node >= 0 && node != link->self;
    struct cddpi_link_peer *peers;

    watches = watches && (link->self < 0 || !link->has_outside_store);
    if (!watches || find_peer(hearer, node) != NULL) {
        return true;
    }
    peers = cddpi_grow(hearer->peers, &hearer->room, (size_t)hearer->count + 1, sizeof *peers);
    if (peers == NULL) {
        return false;
    }
    hearer->peers = peers;
    peers[hearer->count++] = (struct cddpi_link_peer){.node = node};
    return true;
}

/* The place of the first watched node from place @p i on; -1: there is none. */
static int next_watched(const struct cddpi_link_hearer *hearer, int i)
{
    while (i < hearer->count && hearer->peers[i].is_gone) {
        i++;
    }
    return i < hearer->count ? i : -1;
}

void cddpi_hearer_next(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       struct cddpi_link_request *out)
{
    struct cddpi_link_hearer *hearer = &link->hearer;

    if (link->is_cut || link->is_ending) {
        out->kind = CDDPI_LINK_OVER;
    } else if (hearer->must_reconnect) {
        out->kind = CDDPI_LINK_RECONNECT;
    } else if (hearer->looking >= 0) {
        out->kind = CDDPI_LINK_TRY_GET;
        cddpi_link_beat_key(link,
                            hearer->looking < hearer->count ? hearer->peers[hearer->looking].node
                                                            : link->self,
                            out->key);
    } else {
        int64_t left_ms = (hearer->look_ns - now->now_ns + 999999) / 1000000;

        out->kind = CDDPI_LINK_GET;
        out->wait_ms = (uint32_t)(left_ms < 1              ? 1
                                  : left_ms > MOST_WAIT_MS ? MOST_WAIT_MS
                                                           : left_ms);
        out->until_ns += out->wait_ms * INT64_C(1000000);
        cddpi_link_event_key(link, hearer->number, out->key);
    }
}

/* Whom to watch from now on. A node that leaves says BYE. Returns false without memory. */
static bool note_event(struct cddpi_link_state *link, const struct cddpi_node_event *event)
{
    struct cddpi_link_hearer *hearer = &link->hearer;
    bool is_last = event->kind == CDDPI_EVENT_BYE || event->kind == CDDPI_EVENT_LOST;

    hearer->has_begun = hearer->has_begun || event->kind == CDDPI_EVENT_START;
    /* with an outside store, not every END counts (membership_leads.c), so each node's BYE does */
    hearer->has_ended = hearer->has_ended ||
                        (event->kind == CDDPI_EVENT_END && !link->has_outside_store);
    for (int i = 0; i < hearer->count; i++) {
        struct cddpi_link_peer *peer = &hearer->peers[i];

        peer->is_gone = peer->is_gone || hearer->has_ended ||
                        (is_last && event->node == peer->node);
    }
    return event->kind != CDDPI_EVENT_JOIN || event->number < 1 || hearer->has_ended ||
           cddpi_hearer_watch(link, event->node);
}

/* The next event of the log has come. */
static bool take_event(struct cddpi_link_state *link, const struct cddpi_link_answer *answer,
                       struct cddpi_node_event *out)
{
    int64_t number = link->hearer.number++;

    if (cddpi_node_event_decode(answer->value, answer->bytes, out) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "%s/event/%lld in the store is not an event: %s", link->job,
                  (long long)number, cddp_last_error());
        out->kind = CDDPI_EVENT_NONE;
        return true;
    }
    if (!note_event(link, out)) {
        snprintf(out->text, sizeof out->text, "no memory to watch one more node");
        return false;
    }
    return true;
}

/* Node @p peer has given no sign of life for too long. */
static void lose_peer(struct cddpi_link_state *link, struct cddpi_link_peer *peer,
                      struct cddpi_node_event *out_event)
{
    struct cddpi_node_event event = {
        .kind = CDDPI_EVENT_LOST, .node = peer->node, .rank = -1, .exit_status = 1};

    peer->is_gone = true;
    if (strcmp(peer->beat, CDDPI_NODE_GONE) == 0) {
        snprintf(event.text, sizeof event.text,
                 "its cddp-run has ended without a word: was it killed?");
    } else {
        event.number = CDDPI_LOST_SILENT;
        snprintf(event.text, sizeof event.text,
                 "no sign of life for %.1f s, and it may be silent for %g s (CDDP_HEARTBEAT_MS): "
                 "the machine stands still, or it or the network is gone",
                 (double)peer->silence.silent_ns * 1e-9, link->limit_ms / 1000.0);
    }
    if (peer->node == 0 && link->self > 0) {
        *out_event = event;
    } else {
        cddpi_link_publish(link, &event);
    }
}

/* Remember the peer's sign of life. Returns whether it is a new one. */
static bool hear_beat(struct cddpi_link_peer *peer, const struct cddpi_link_answer *answer)
{
    size_t most = sizeof peer->beat - 1;
    size_t length = answer->bytes < most ? answer->bytes : most;

    if (strlen(peer->beat) == length && memcmp(peer->beat, answer->value, length) == 0) {
        return false;
    }
    memcpy(peer->beat, answer->value, length);
    peer->beat[length] = '\0';
    return strcmp(peer->beat, CDDPI_NODE_GONE) != 0;
}

static void judge_peer(struct cddpi_link_state *link, struct cddpi_link_peer *peer,
                       const struct cddpi_link_now *now, const struct cddpi_link_answer *answer,
                       struct cddpi_node_event *out_event)
{
    bool is_heard = answer->status == CDDP_OK && answer->bytes > 0 && hear_beat(peer, answer);

    if (answer->status == CDDP_ERR_NOT_FOUND && link->self < 0 && !link->has_outside_store &&
        !link->hearer.has_begun) {
        return; /* the nodes have not met yet; the meeting has its own deadline */
    }
    if (cddpi_silence_look(&peer->silence, is_heard, link->look_ms, link->limit_ms, now->now_ns) ||
        (strcmp(peer->beat, CDDPI_NODE_GONE) == 0 &&
         peer->silence.silent_ns >= GONE_MS * INT64_C(1000000))) {
        lose_peer(link, peer, out_event);
    }
}

/* Whether the store has been silent for too long. @p is_heard: it has just answered. */
static bool judge_store(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                        bool is_heard, struct cddpi_node_event *out_event)
{
    struct cddpi_silence *store = &link->hearer.store;

    if (!cddpi_silence_look(store, is_heard, link->answer_ms + link->look_ms, link->limit_ms,
                            now->now_ns)) {
        return true;
    }
    snprintf(out_event->text, sizeof out_event->text,
             "it has not answered for %.1f s, and may be silent for %g s (CDDP_HEARTBEAT_MS): the "
             "machine stands still, or it or the network is gone",
             (double)store->silent_ns * 1e-9, link->limit_ms / 1000.0);
    return false;
}

/* Look at the first watched peer from place @p i on. After the last one, the store has answered. */
static bool look_on(struct cddpi_link_state *link, const struct cddpi_link_now *now, int i,
                    struct cddpi_node_event *out_event)
{
    link->hearer.looking = next_watched(&link->hearer, i);
    if (link->hearer.looking >= 0) {
        return true;
    }
    link->hearer.look_ns = now->now_ns + link->look_ms * INT64_C(1000000);
    return judge_store(link, now, true, out_event);
}

/* An answer to GET: the next event, or TIMEOUT. */
static bool take_got(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                     const struct cddpi_link_answer *answer, struct cddpi_node_event *out_event)
{
    struct cddpi_link_hearer *hearer = &link->hearer;

    if (answer->status == CDDP_OK && !take_event(link, answer, out_event)) {
        return false;
    }
    if (now->now_ns < hearer->look_ns) {
        return true;
    }
    if (next_watched(hearer, 0) < 0 && link->self >= 0 && !hearer->has_ended) {
        hearer->looking = hearer->count;
        return true;
    }
    return look_on(link, now, 0, out_event);
}

bool cddpi_hearer_take(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       const struct cddpi_link_answer *answer, struct cddpi_node_event *out_event)
{
    struct cddpi_link_hearer *hearer = &link->hearer;
    bool is_timeout = answer->status == CDDP_ERR_TIMEOUT;

    if (answer->status != CDDP_OK && !is_timeout &&
        !(answer->status == CDDP_ERR_NOT_FOUND && hearer->asked == CDDPI_LINK_TRY_GET)) {
        snprintf(out_event->text, sizeof out_event->text, "%s", answer->error);
        return false;
    }
    if (hearer->asked == CDDPI_LINK_GET) {
        return take_got(link, now, answer, out_event);
    }
    if (is_timeout) { /* repeat over a new connection, until the store has been silent too long */
        hearer->must_reconnect = true;
        return judge_store(link, now, false, out_event);
    }
    if (hearer->asked == CDDPI_LINK_RECONNECT) {
        hearer->must_reconnect = false;
        return look_on(link, now, hearer->count, out_event);
    }
    if (hearer->looking < hearer->count) {
        judge_peer(link, &hearer->peers[hearer->looking], now, answer, out_event);
    }
    return look_on(link, now, hearer->looking + 1, out_event);
}
