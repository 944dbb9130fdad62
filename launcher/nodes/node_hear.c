/* node_hear.c - the hearing thread of a node: reads events, and checks that the other nodes and the
 * store give signs of life. */
#include "launcher/nodes/node_link_own.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

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
    int begin = link->self == 0 ? 1 : 0;
    int end = link->self > 0 ? 1 : link->count;
    cddp_status status = CDDP_OK;

    for (int node = begin; node < end && status == CDDP_OK; node++) {
        status = look_after(link, node);
    }
    return status;
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
    if (status == CDDP_OK &&
        cddpi_node_event_decode(value, bytes, link->count, &event) == CDDP_OK) {
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
        status = judge_store(link, CDDP_ERR_TIMEOUT);
        if (status != CDDP_OK) {
            return status;
        }
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
