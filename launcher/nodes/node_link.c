/* node_link.c - owns the two threads that connect a node with the store: one tells (writes), one
 * hears (reads).
 *
 * Event N of the job is the value of the key "JOB/event/N". A node publishes an event under the
 * first number that is not used yet, so that failures that are already known come first. Node I
 * writes its sign of life to "JOB/beat/I". Node 0 watches all other nodes, they watch node 0, and
 * the cddp-run that started them watches all. base/silence.h says how long a node may be silent, as
 * for ranks. When a cddp-run dies, the store sees its connection close, and replaces that
 * node's sign of life with "gone".
 *
 * A request that is not answered is repeated over a new connection: TCP would retransmit it after
 * longer and longer pauses, too late once the link is back. */
#include "launcher/nodes/node_link.h"

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_link_own.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVENT struct cddpi_node_event

CDDPI_MESSAGE_FORM(cddpi_node_event_form, EVENT, EVENT, sizeof(EVENT) + 128,
                   CDDPI_NUMBER(EVENT, kind, CDDPI_EVENT_START, CDDPI_EVENT_SAVING),
                   CDDPI_NUMBER(EVENT, generation, 0, INT32_MAX),
                   CDDPI_NUMBER(EVENT, node, -1, CDDPI_MAX_NODES + CDDPI_MAX_JOINS - 1),
                   CDDPI_NUMBER(EVENT, rank, -1, CDDPI_MAX_WORLD_SIZE - 1),
                   CDDPI_NUMBER(EVENT, number, 0, 65535), CDDPI_NUMBER(EVENT, exit_status, 0, 255),
                   CDDPI_NUMBER(EVENT, may_restart, 0, 1), CDDPI_NUMBER(EVENT, has_saved, 0, 1),
                   CDDPI_TEXT(EVENT, text));

cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, struct cddpi_node_event *out)
{
    return cddpi_message_decode(&cddpi_node_event_form, data, bytes, out);
}

enum {
    LEAST_LIMIT_MS = 1000, /* shorter limits are for connections, not for processes */
    ANSWERS = 8,           /* this many answers fit into the limit, within these bounds: */
    LEAST_ANSWER_MS = 500, /* timeout of a request and */
    MOST_ANSWER_MS = 1500, /* of a new connection */
    FILE_ANSWER_MS = 5000, /* other nodes may lock the shared file, one after the other */
    OWN_ANSWER_MS = 60000, /* the server runs in this process */
    CLOSE_MS = 3000,
    RECENT_MS = 120000 /* how long after a standstill a failure may be its consequence */
};

void cddpi_node_link_deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    struct cddpi_node_event *copy = cddpi_zalloc(sizeof *copy);

    if (copy == NULL) {
        cddpi_log(CDDPI_LOG_ERROR, "no memory for what another node tells");
        return;
    }
    *copy = *event;
    while (write(link->pipe[1], &copy, sizeof copy) < 0) {
        if (errno != EINTR) {
            cddpi_free(copy);
            return;
        }
    }
}

void cddpi_node_link_cut(struct cddpi_node_link *link, const char *why)
{
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1};
    bool is_news;

    pthread_mutex_lock(&link->lock);
    is_news = !link->is_cut && !link->is_ending;
    link->is_cut = true;
    pthread_mutex_unlock(&link->lock);
    if (is_news) {
        snprintf(event.text, sizeof event.text, "%s", why);
        cddpi_node_link_deliver(link, &event);
    }
}

void cddpi_node_event_key(const struct cddpi_node_link *link, int64_t number,
                          char out[CDDPI_NODE_KEY_BYTES])
{
    snprintf(out, CDDPI_NODE_KEY_BYTES, "%s/event/%lld", link->job, (long long)number);
}

cddp_status cddpi_node_link_connect_again(const struct cddpi_node_link *link, cddp_store **store)
{
    cddp_store_close(*store);
    *store = NULL;
    return cddp_store_open(&link->options, store);
}

/* Signals are blocked in the threads, since the supervising thread handles them. */
static cddp_status start_threads(struct cddpi_node_link *link)
{
    void *(*const bodies[])(void *) = {cddpi_node_tell, cddpi_node_hear};
    sigset_t all;
    sigset_t before;
    int error = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (link->started < 2 && error == 0) {
        error = pthread_create(&link->threads[link->started], NULL, bodies[link->started], link);
        link->started += error == 0 ? 1 : 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? CDDP_OK
                      : cddpi_fail_errno(CDDP_ERR_IO, error, "starting a thread for the nodes");
}

static uint32_t answer_ms(const struct cddpi_node_link *link)
{
    uint32_t ms = link->limit_ms / ANSWERS;

    if (link->self < 0) {
        return OWN_ANSWER_MS;
    }
    if (strncmp(link->url, "tcp://", 6) != 0) {
        return FILE_ANSWER_MS;
    }
    return ms < LEAST_ANSWER_MS ? LEAST_ANSWER_MS : ms > MOST_ANSWER_MS ? MOST_ANSWER_MS : ms;
}

/* Tell the store what to write when this process has died. */
static cddp_status leave_word(struct cddpi_node_link *link, const cddp_store_options *options)
{
    char key[CDDPI_NODE_KEY_BYTES];

    if (link->self < 0 || strncmp(link->url, "tcp://", 6) != 0) {
        return CDDP_OK;
    }
    snprintf(key, sizeof key, "%s/beat/%d", link->job, link->self);
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
    link->options.timeout_ms = answer_ms(link);
    first = link->options;
    first.timeout_ms = link->limit_ms + CDDPI_SILENCE_SPARE_MS; /* only for the first connection */
    CDDPI_TRY(cddp_store_open(&first, &link->teller));
    cddpi_store_set_timeout(link->teller, link->options.timeout_ms);
    CDDPI_TRY(cddp_store_open(&first, &link->hearer));
    cddpi_store_set_timeout(link->hearer, link->options.timeout_ms);
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

cddp_status cddpi_node_link_open(const struct cddpi_node_link_options *options,
                                 struct cddpi_node_link **out)
{
    struct cddpi_node_link *link = cddpi_zalloc(sizeof *link);
    cddp_status status;

    CDDPI_TRY_MEMORY(link != NULL, "no memory for the connection of nodes");
    link->self = options->self;
    link->count = options->count;
    link->pipe[0] = link->pipe[1] = -1;
    link->due_ns = INT64_MAX;
    snprintf(link->job, sizeof link->job, "%s", options->job);
    link->limit_ms = cddpi_silence_limit_ms(LEAST_LIMIT_MS);
    link->look_ms = cddpi_silence_look_ms(link->limit_ms);
    init_lock(link);
    link->peers = cddpi_zalloc_array((size_t)options->count, sizeof *link->peers);
    if (link->peers == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", options->count);
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

void cddpi_node_link_close(struct cddpi_node_link *link)
{
    struct cddpi_node_event event;

    if (link == NULL) {
        return;
    }
    pthread_mutex_lock(&link->lock);
    link->is_ending = true;
    link->end_ns = cddpi_deadline_ns(CLOSE_MS);
    pthread_cond_broadcast(&link->wake);
    pthread_mutex_unlock(&link->lock);
    for (int i = 0; i < link->started; i++) {
        pthread_join(link->threads[i], NULL);
    }
    while (link->first != NULL) {
        struct node_item *item = link->first;

        link->first = item->next;
        cddpi_node_item_release(item);
    }
    while (link->pipe[0] >= 0 && cddpi_node_link_next(link, &event)) {
    }
    if (link->pipe[0] >= 0) {
        close(link->pipe[0]);
        close(link->pipe[1]);
    }
    cddp_store_close(link->teller);
    cddp_store_close(link->hearer);
    cddp_store_close(link->word);
    cddpi_free(link->url);
    cddpi_free(link->token);
    pthread_cond_destroy(&link->wake);
    pthread_mutex_destroy(&link->lock);
    cddpi_free(link->peers);
    cddpi_free(link);
}

int64_t cddpi_node_boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t cddpi_node_answer_due_ns(const struct cddpi_node_link *link)
{
    return cddpi_node_boot_ns() + link->options.timeout_ms * INT64_C(1000000);
}

/* How long this process must have stood still if a wait that was due to end at @p due_ns ends now;
 * 0: not longer than a node may be silent. */
static int64_t slept_until_now_ms(const struct cddpi_node_link *link, int64_t due_ns)
{
    int64_t late_ms = (cddpi_node_boot_ns() - due_ns) / 1000000 + link->look_ms;

    return late_ms >= (int64_t)link->limit_ms ? late_ms : 0;
}

void cddpi_node_notice_sleep(struct cddpi_node_link *link, int64_t due_ns)
{
    int64_t late_ms = slept_until_now_ms(link, due_ns);

    if (late_ms > 0) {
        link->slept_ms = late_ms;
        link->woke_ns = cddpi_now_ns();
    }
}

int64_t cddpi_node_link_slept_ms(const struct cddpi_node_link *link)
{
    int64_t due_ns = link->due_ns; /* the caller may be the first thread to run after a
                                      standstill */
    int64_t slept_ms = due_ns != INT64_MAX ? slept_until_now_ms(link, due_ns) : 0;
    bool is_recent = cddpi_now_ns() - link->woke_ns < (int64_t)RECENT_MS * 1000000;

    return slept_ms > 0 ? slept_ms : is_recent ? link->slept_ms : 0;
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
