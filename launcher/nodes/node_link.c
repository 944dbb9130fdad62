/* node_link.c - owns a node's connection with the store: its beginning and end, and the descriptor
 * through which its owner hears.
 *
 * Event N of the job is the value of the key "JOB/event/N", and node I writes its sign of life to
 * "JOB/beat/I" (link_state.h). base/silence.h says how long a node may be silent, as for ranks.
 * When a cddp-run dies, the store sees its connection close, and replaces that node's sign of life
 * with "gone".
 *
 * Events are never deleted: a node that comes late reads all of them. Each takes some 210 bytes of
 * the store's memory. A generation of N nodes has N + 2 events and a few for what changed, so 100
 * nodes that change 400 times leave 8 MiB, and reading them takes as many round trips. */
#include "launcher/nodes/node_link.h"

#include "launcher/nodes/node_link_own.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAST_LIMIT_MS = 1000, /* shorter limits are for connections, not for processes */
    ANSWERS = 8,           /* this many answers fit into the limit, within these bounds: */
    LEAST_ANSWER_MS = 500, /* timeout of a request and */
    MOST_ANSWER_MS = 1500, /* of a new connection */
    FILE_ANSWER_MS = 5000, /* other nodes may lock the shared file, one after the other */
    OWN_ANSWER_MS = 60000, /* the server runs in this process */
    CLOSE_MS = 3000
};

/* Signals are blocked in the threads, since the supervising thread handles them. */
static cddp_status start_threads(struct cddpi_node_link *link)
{
    void *(*const bodies[])(void *) = {cddpi_node_tell, cddpi_node_hear};
    sigset_t all;
    sigset_t before;
    int error = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (link->started < CDDPI_LINK_SIDES && error == 0) {
        error = pthread_create(&link->threads[link->started], NULL, bodies[link->started], link);
        link->started += error == 0 ? 1 : 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? CDDP_OK
                      : cddpi_fail_errno(CDDP_ERR_IO, error, "starting a thread for the nodes");
}

static bool is_tcp(const char *url)
{
    return strncmp(url, "tcp://", 6) == 0;
}

static uint32_t answer_ms(const struct cddpi_node_link_options *options, uint32_t limit_ms)
{
    uint32_t ms = limit_ms / ANSWERS;

    if (options->self < 0) {
        return OWN_ANSWER_MS;
    }
    if (!is_tcp(options->store)) {
        return FILE_ANSWER_MS;
    }
    return ms < LEAST_ANSWER_MS ? LEAST_ANSWER_MS : ms > MOST_ANSWER_MS ? MOST_ANSWER_MS : ms;
}

/* Tell the store what to write when this process has died. */
static cddp_status leave_word(struct cddpi_node_link *link, const cddp_store_options *options)
{
    char key[CDDPI_NODE_KEY_BYTES];

    if (link->state.self < 0 || !is_tcp(link->url)) {
        return CDDP_OK;
    }
    cddpi_link_beat_key(&link->state, link->state.self, key);
    CDDPI_TRY(cddp_store_open(options, &link->word));
    return cddpi_store_last_word(link->word, key, CDDPI_NODE_GONE, strlen(CDDPI_NODE_GONE));
}

static cddp_status open_stores(struct cddpi_node_link *link,
                               const struct cddpi_node_link_options *options)
{
    cddp_store_options first;

    link->url = cddpi_strdup(options->store);
    link->token = cddpi_strdup(options->token != NULL ? options->token : "");
    CDDPI_TRY_MEMORY(link->url != NULL && link->token != NULL,
                     "no memory for the connection of nodes");
    link->options = (cddp_store_options)CDDP_STORE_OPTIONS_INIT;
    link->options.url = link->url;
    link->options.token = link->token;
    link->options.timeout_ms = link->state.answer_ms;
    first = link->options;
    first.timeout_ms = link->state.limit_ms +
                       CDDPI_SILENCE_SPARE_MS; /* only for the first connection */
    for (int side = 0; side < CDDPI_LINK_SIDES; side++) {
        CDDPI_TRY(cddp_store_open(&first, &link->stores[side]));
        cddpi_store_set_timeout(link->stores[side], link->options.timeout_ms);
    }
    return leave_word(link, &first);
}

static void init_lock(struct cddpi_node_link *link)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes); /* cannot fail with these attributes, nor can the next
                                           call */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&link->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&link->lock, NULL);
}

static cddp_status init_state(const struct cddpi_node_link_options *options,
                              struct cddpi_link_state *out)
{
    uint32_t limit_ms = cddpi_silence_limit_ms(LEAST_LIMIT_MS);
    const struct cddpi_link_options known = {.job = options->job,
                                             .self = options->self,
                                             .nodes = options->nodes,
                                             .count = options->count,
                                             .has_outside_store = options->has_outside_store,
                                             .limit_ms = limit_ms,
                                             .look_ms = cddpi_silence_look_ms(limit_ms),
                                             .answer_ms = answer_ms(options, limit_ms),
                                             .can_mend = options->self >= 0 &&
                                                         is_tcp(options->store)};
    struct cddpi_link_now now = cddpi_node_link_now();

    return cddpi_link_init(&known, &now, out);
}

cddp_status cddpi_node_link_open(const struct cddpi_node_link_options *options,
                                 struct cddpi_node_link **out)
{
    struct cddpi_node_link *link = cddpi_zalloc(sizeof *link);
    cddp_status status;

    CDDPI_TRY_MEMORY(link != NULL, "no memory for the connection of nodes");
    link->pipe[0] = link->pipe[1] = -1;
    init_lock(link);
    CDDPI_TRY_GOTO(fail, status, init_state(options, &link->state));
    link->spare = cddpi_zalloc(sizeof *link->spare);
    if (link->spare == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the connection of nodes");
        goto fail;
    }
    if (pipe2(link->pipe, O_CLOEXEC) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "making a pipe");
        goto fail;
    }
    (void)fcntl(link->pipe[0], F_SETFL, O_NONBLOCK);
    CDDPI_TRY_GOTO(fail, status, open_stores(link, options));
    CDDPI_TRY_GOTO(fail, status, start_threads(link));
    *out = link;
    return CDDP_OK;

fail:
    cddpi_node_link_close(link);
    return status;
}

static void drop_events(struct cddpi_node_link *link)
{
    struct cddpi_node_event event;

    while (link->pipe[0] >= 0 && cddpi_node_link_next(link, &event)) {
    }
}

void cddpi_node_link_close(struct cddpi_node_link *link)
{
    if (link == NULL) {
        return;
    }
    pthread_mutex_lock(&link->lock);
    cddpi_link_end(&link->state, cddpi_deadline_ns(CLOSE_MS));
    pthread_cond_broadcast(&link->wake);
    pthread_mutex_unlock(&link->lock);
    drop_events(link); /* a thread may wait for room in the pipe; it delivers at most one more */
    for (int i = 0; i < link->started; i++) {
        pthread_join(link->threads[i], NULL);
    }
    drop_events(link);
    if (link->pipe[0] >= 0) {
        close(link->pipe[0]);
        close(link->pipe[1]);
    }
    for (int side = 0; side < CDDPI_LINK_SIDES; side++) {
        cddp_store_close(link->stores[side]);
    }
    cddp_store_close(link->word);
    cddpi_free(link->url);
    cddpi_free(link->token);
    cddpi_free(link->spare);
    pthread_cond_destroy(&link->wake);
    pthread_mutex_destroy(&link->lock);
    cddpi_link_fini(&link->state);
    cddpi_free(link);
}

int64_t cddpi_node_link_slept_ms(struct cddpi_node_link *link)
{
    struct cddpi_link_now now = cddpi_node_link_now();
    int64_t slept_ms;

    pthread_mutex_lock(&link->lock);
    slept_ms = cddpi_link_slept_ms(&link->state, &now);
    pthread_mutex_unlock(&link->lock);
    return slept_ms;
}

int cddpi_node_link_fd(const struct cddpi_node_link *link)
{
    return link->pipe[0];
}

bool cddpi_node_link_next(struct cddpi_node_link *link, struct cddpi_node_event *out)
{
    struct cddpi_node_event *event;

    if (read(link->pipe[0], &event, sizeof event) != (ssize_t)sizeof event) {
        return false;
    }
    *out = *event;
    cddpi_free(event);
    return true;
}

void cddpi_node_link_publish(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    pthread_mutex_lock(&link->lock);
    cddpi_link_publish(&link->state, event);
    pthread_cond_broadcast(&link->wake);
    pthread_mutex_unlock(&link->lock);
}

void cddpi_node_link_set(struct cddpi_node_link *link, const char *key, const char *text)
{
    pthread_mutex_lock(&link->lock);
    cddpi_link_set(&link->state, key, text);
    pthread_cond_broadcast(&link->wake);
    pthread_mutex_unlock(&link->lock);
}
