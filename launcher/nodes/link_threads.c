/* link_threads.c - the two threads of a node link: each carries out the requests of one side of the
 * link's state machine (link_state.h) with a connection of its own, and waits for the store so that
 * the supervising thread never does. */
#include "launcher/nodes/node_link_own.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/store.h"

#include <errno.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_MS = 200 /* then look once more whether the store is gone: a process that ends closes its
                      connections and no longer listens, in any order */
};

struct cddpi_link_now cddpi_node_link_now(void)
{
    struct timespec boot;

    clock_gettime(CLOCK_BOOTTIME, &boot);
    return (struct cddpi_link_now){.now_ns = cddpi_now_ns(),
                                   .boot_ns = (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec};
}

/* The event that the owner hears instead of one for which there is no memory; NULL: it has. */
static struct cddpi_node_event *take_spare(struct cddpi_node_link *link)
{
    struct cddpi_node_event *cut;

    pthread_mutex_lock(&link->lock);
    cut = link->spare;
    link->spare = NULL;
    link->state.is_cut = true;
    pthread_cond_broadcast(&link->wake);
    pthread_mutex_unlock(&link->lock);
    if (cut != NULL) {
        *cut = (struct cddpi_node_event){.kind = CDDPI_EVENT_CUT,
                                         .rank = -1,
                                         .exit_status = 1,
                                         .text = "no memory for what another node tells"};
    }
    return cut;
}

void cddpi_node_link_deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    struct cddpi_node_event *copy = cddpi_zalloc(sizeof *copy);

    if (copy != NULL) {
        *copy = *event;
    } else {
        copy = take_spare(link);
    }
    if (copy == NULL) {
        return;
    }
    while (write(link->pipe[1], &copy, sizeof copy) < 0) {
        if (errno != EINTR) {
            cddpi_free(copy);
            return;
        }
    }
}

/* Replace @p store by a new connection. */
static cddp_status connect_again(const struct cddpi_node_link *link,
                                 const struct cddpi_link_request *request, cddp_store **store)
{
    cddp_store_options options = link->options;
    int most_ms = request->is_mending ? FIRST_MS : INT_MAX;
    cddp_status status;

    cddp_store_close(*store);
    *store = NULL;
    do {
        int left_ms = cddpi_left_ms(request->until_ns);

        if (request->is_mending && cddpi_store_is_refused(options.url, request->until_ns)) {
            return cddpi_fail(CDDP_ERR_IO, "nothing listens at %s any more", options.url);
        }
        options.timeout_ms = (uint32_t)(left_ms < 1 ? 1 : left_ms > most_ms ? most_ms : left_ms);
        most_ms = INT_MAX;
        status = cddp_store_open(&options, store);
    } while (status == CDDP_ERR_TIMEOUT && cddpi_left_ms(request->until_ns) > 0);
    if (status == CDDP_OK) {
        cddpi_store_set_timeout(*store, link->options.timeout_ms);
    }
    return status;
}

/* Do @p request. *out_value holds the answer's value: release it with cddp_free(). */
static void perform(const struct cddpi_node_link *link, cddp_store **store,
                    const struct cddpi_link_request *request, void **out_value,
                    struct cddpi_link_answer *out)
{
    *out = (struct cddpi_link_answer){.status = CDDP_OK};
    *out_value = NULL;
    switch (request->kind) {
    case CDDPI_LINK_SET:
        out->status = cddp_store_set(*store, request->key, request->value, request->bytes);
        break;
    case CDDPI_LINK_COMPARE_SET:
        out->status = cddp_store_compare_set(*store, request->key, NULL, 0, request->value,
                                             request->bytes, &out->is_set, out_value, &out->bytes);
        break;
    case CDDPI_LINK_GET:
        out->status = cddp_store_get(*store, request->key, request->wait_ms, out_value,
                                     &out->bytes);
        break;
    case CDDPI_LINK_TRY_GET:
        out->status = cddp_store_try_get(*store, request->key, out_value, &out->bytes);
        break;
    case CDDPI_LINK_RECONNECT:
        out->status = connect_again(link, request, store);
        break;
    case CDDPI_LINK_WAIT:
    case CDDPI_LINK_OVER:
        break;
    }
    out->value = *out_value;
    out->error = out->status != CDDP_OK ? cddp_last_error() : "";
}

/* What @p side has to do next, after it has waited if it has to. Returns false if it is over. */
static bool await_next(struct cddpi_node_link *link, enum cddpi_link_side side,
                       struct cddpi_link_request *out)
{
    struct cddpi_link_now now = cddpi_node_link_now();

    pthread_mutex_lock(&link->lock);
    cddpi_link_next(&link->state, side, &now, out);
    while (out->kind == CDDPI_LINK_WAIT) {
        struct timespec until = {out->until_ns / 1000000000, out->until_ns % 1000000000};
        int error = 0;

        while (!cddpi_link_wants_to_tell(&link->state) && error == 0) {
            error = pthread_cond_timedwait(&link->wake, &link->lock, &until);
        }
        now = cddpi_node_link_now();
        cddpi_link_next(&link->state, side, &now, out);
    }
    pthread_mutex_unlock(&link->lock);
    return out->kind != CDDPI_LINK_OVER;
}

static void run(struct cddpi_node_link *link, enum cddpi_link_side side)
{
    struct cddpi_link_request request;

    while (await_next(link, side, &request)) {
        struct cddpi_link_answer answer;
        struct cddpi_node_event event;
        struct cddpi_link_now now;
        void *value;

        perform(link, &link->stores[side], &request, &value, &answer);
        now = cddpi_node_link_now();
        pthread_mutex_lock(&link->lock);
        cddpi_link_take(&link->state, side, &now, &answer, &event);
        pthread_cond_broadcast(&link->wake);
        pthread_mutex_unlock(&link->lock);
        cddp_free(value);
        if (event.kind != CDDPI_EVENT_NONE) { /* without the lock, since the pipe may be full */
            cddpi_node_link_deliver(link, &event);
        }
    }
}

void *cddpi_node_tell(void *link)
{
    run(link, CDDPI_LINK_TELLER);
    return NULL;
}

void *cddpi_node_hear(void *link)
{
    run(link, CDDPI_LINK_HEARER);
    return NULL;
}
