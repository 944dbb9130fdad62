/* link_state.c - owns what both sides of a node's link share: its beginning and end, the loss of
 * the store, and standstills of this process. */
#include "launcher/nodes/link_state_own.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum {
    RECENT_MS = 120000, /* how long after a standstill a failure may be its consequence */
    MOST_BREAKS = 3     /* connections that may end one after the other without an answer */
};

cddp_status cddpi_link_init(const struct cddpi_link_options *options,
                            const struct cddpi_link_now *now, struct cddpi_link_state *out)
{
    *out = (struct cddpi_link_state){
        .self = options->self,
        .has_outside_store = options->has_outside_store,
        .limit_ms = options->limit_ms,
        .look_ms = options->look_ms,
        .answer_ms = options->answer_ms,
        .can_mend = options->can_mend,
        .teller = {.beat_ns = now->now_ns, .due_boot_ns = INT64_MAX},
        .hearer = {.look_ns = now->now_ns + options->look_ms * INT64_C(1000000),
                   .due_boot_ns = INT64_MAX,
                   .looking = -1},
    };
    snprintf(out->job, sizeof out->job, "%s", options->job);
    for (int i = 0; i < options->count; i++) {
        CDDPI_TRY_MEMORY(cddpi_hearer_watch(out, options->nodes != NULL ? options->nodes[i] : i),
                         "no memory for %d nodes", options->count);
    }
    return CDDP_OK;
}

void cddpi_link_fini(struct cddpi_link_state *link)
{
    cddpi_teller_fini(&link->teller);
    cddpi_free(link->hearer.peers);
    link->hearer.peers = NULL;
    link->hearer.count = 0;
}

void cddpi_link_end(struct cddpi_link_state *link, int64_t end_ns)
{
    link->is_ending = true;
    link->end_ns = end_ns;
}

/* How long this process must have stood still if a wait that was due to end at @p due_boot_ns ends
 * now; 0: not longer than a node may be silent. */
static int64_t slept_until_now_ms(const struct cddpi_link_state *link, int64_t due_boot_ns,
                                  const struct cddpi_link_now *now)
{
    int64_t late_ms;

    if (due_boot_ns == INT64_MAX) {
        return 0;
    }
    late_ms = (now->boot_ns - due_boot_ns) / 1000000 + link->look_ms;
    return late_ms >= (int64_t)link->limit_ms ? late_ms : 0;
}

int64_t cddpi_link_slept_ms(const struct cddpi_link_state *link, const struct cddpi_link_now *now)
{
    /* the caller may be the first thread to run after a standstill */
    int64_t slept_ms = slept_until_now_ms(link, link->teller.due_boot_ns, now);
    bool is_recent = now->now_ns - link->woke_ns < (int64_t)RECENT_MS * 1000000;

    return slept_ms > 0 ? slept_ms : is_recent ? link->slept_ms : 0;
}

/* What was due at *due_boot_ns has ended. */
static void notice_sleep(struct cddpi_link_state *link, int64_t *due_boot_ns,
                         const struct cddpi_link_now *now)
{
    int64_t slept_ms = slept_until_now_ms(link, *due_boot_ns, now);

    if (slept_ms > 0) {
        link->slept_ms = slept_ms;
        link->woke_ns = now->now_ns;
    }
    *due_boot_ns = INT64_MAX;
}

static int64_t *due_of(struct cddpi_link_state *link, enum cddpi_link_side side)
{
    return side == CDDPI_LINK_TELLER ? &link->teller.due_boot_ns : &link->hearer.due_boot_ns;
}

static struct cddpi_link_break *break_of(struct cddpi_link_state *link, enum cddpi_link_side side)
{
    return side == CDDPI_LINK_TELLER ? &link->teller.broken : &link->hearer.broken;
}

void cddpi_link_next(struct cddpi_link_state *link, enum cddpi_link_side side,
                     const struct cddpi_link_now *now, struct cddpi_link_request *out)
{
    int64_t *due_boot_ns = due_of(link, side);

    notice_sleep(link, due_boot_ns, now); /* after a wait, which has no answer */
    out->key[0] = '\0';
    out->value = NULL;
    out->bytes = 0;
    out->wait_ms = 0;
    out->until_ns = now->now_ns + link->answer_ms * INT64_C(1000000);
    if (side == CDDPI_LINK_TELLER) {
        cddpi_teller_next(link, now, out);
        link->teller.asked = out->kind;
    } else {
        cddpi_hearer_next(link, now, out);
        link->hearer.asked = out->kind;
    }
    out->is_mending = out->kind == CDDPI_LINK_RECONNECT && break_of(link, side)->is_open;
    if (out->kind != CDDPI_LINK_OVER && out->kind != CDDPI_LINK_RECONNECT) {
        *due_boot_ns = now->boot_ns + out->until_ns - now->now_ns;
    }
}

/* The store is lost. Only the first side that notices tells the owner. */
static void cut(struct cddpi_link_state *link, struct cddpi_node_event *event)
{
    event->kind = link->is_cut || link->is_ending ? CDDPI_EVENT_NONE : CDDPI_EVENT_CUT;
    event->exit_status = 1;
    link->is_cut = true;
}

static bool *must_reconnect_of(struct cddpi_link_state *link, enum cddpi_link_side side)
{
    return side == CDDPI_LINK_TELLER ? &link->teller.must_reconnect : &link->hearer.must_reconnect;
}

/* The connection of @p side has ended: make it anew. */
static void begin_mending(struct cddpi_link_state *link, enum cddpi_link_side side, const char *why)
{
    struct cddpi_link_break *broken = break_of(link, side);

    if (broken->count == 0) {
        snprintf(broken->why, sizeof broken->why, "%s", why);
    }
    broken->count++;
    broken->is_open = true;
    *must_reconnect_of(link, side) = true;
    if (side == CDDPI_LINK_TELLER) {
        cddpi_teller_repeat(&link->teller);
    }
}

static bool take_answer(struct cddpi_link_state *link, enum cddpi_link_side side,
                        const struct cddpi_link_now *now, const struct cddpi_link_answer *answer,
                        struct cddpi_node_event *out_event)
{
    struct cddpi_link_break *broken = break_of(link, side);

    if (broken->is_open && answer->status == CDDP_OK) { /* which does not mean that it answers */
        broken->is_open = false;
        *must_reconnect_of(link, side) = false;
        return true;
    }
    if (broken->is_open && answer->status != CDDP_ERR_TIMEOUT) {
        snprintf(out_event->text, sizeof out_event->text, "%s", broken->why);
        return false;
    }
    if (answer->status == CDDP_ERR_IO && link->can_mend && broken->count < MOST_BREAKS) {
        begin_mending(link, side, answer->error);
        return true;
    }
    if (answer->status == CDDP_OK || answer->status == CDDP_ERR_NOT_FOUND) {
        broken->count = 0;
    }
    return side == CDDPI_LINK_TELLER ? cddpi_teller_take(link, now, answer, out_event)
                                     : cddpi_hearer_take(link, now, answer, out_event);
}

void cddpi_link_take(struct cddpi_link_state *link, enum cddpi_link_side side,
                     const struct cddpi_link_now *now, const struct cddpi_link_answer *answer,
                     struct cddpi_node_event *out_event)
{
    *out_event = (struct cddpi_node_event){.rank = -1};
    notice_sleep(link, due_of(link, side), now); /* before this event, which may be what others say
                                                    about the standstill */
    if (link->teller.has_lost) {
        snprintf(out_event->text, sizeof out_event->text,
                 "no memory for what other nodes have to know");
        cut(link, out_event);
    } else if (!take_answer(link, side, now, answer, out_event)) {
        cut(link, out_event);
    }
}
