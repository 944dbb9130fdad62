/* node_link.c - owns the two threads between a node and the store: one tells, one hears.
 *
 * Event N of the job is the value of the key "JOB/event/N". Who tells one writes it under the first
 * number that nobody has used yet: what is known to have failed is told at once. Node I writes its
 * sign of life under "JOB/beat/I"; node 0 looks after all others, and they after node 0, eight
 * times in CDDP_HEARTBEAT_MS. What counts is how often one has looked without a new sign, not the
 * time: who was stopped itself does not take all others for dead. */
#include "node_link.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAST_ENV_MS = 100,    /* of CDDP_HEARTBEAT_MS */
    LEAST_LIMIT_MS = 1000, /* less is for connections, not for processes */
    MOST_LIMIT_MS = 86400000,
    LIMIT_MS = 2000,
    MOST_BEAT_MS = LIMIT_MS / 8, /* also where the limit is longer: another node's may not be */
    LOOKS = 8,                   /* within the limit */
    LOST_LOOKS = LOOKS - 1,      /* without a new sign; the one before may have been late */
    FILE_ANSWER_MS = 5000,       /* a shared file may be locked by others, one after the other */
    OWN_ANSWER_MS = 60000,
    CLOSE_MS = 3000,
    RECENT_MS = 120000, /* what a failure may come of that is seen now */
    KEY_BYTES = 128
};

/* What is to be told: an event, or a key of the ranks. */
struct item {
    struct item *next;
    char key[CDDP_STORE_KEY_BYTES + 1]; /* "": an event */
    struct cddpi_message value;
};

struct peer {
    char beat[24]; /* its last sign */
    int looks;     /* without a new one */
    bool is_gone;
};

struct cddpi_node_link {
    int self;
    int count;
    char job[40];
    uint32_t limit_ms; /* of silence */
    uint32_t look_ms, beat_ms;
    cddp_store *teller; /* of the thread that tells */
    cddp_store *hearer; /* of the thread that hears */
    pthread_t threads[2];
    int started;
    int pipe[2]; /* pointers to events, from the threads to their owner */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* there is an item, or an end */
    struct item *first;  /* under the lock, as all below */
    struct item *last;
    bool is_ending;
    bool is_cut;
    int64_t end_ns;           /* when what is still queued is given up, once is_ending */
    struct peer *peers;       /* of the thread that hears, as has_begun */
    bool has_begun;           /* a generation has: all nodes are there */
    _Atomic int64_t slept_ms; /* how long this process last stood still for longer than the limit */
    _Atomic int64_t woke_ns;
};

static void deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event)
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

/* The store is gone: the first thread that notices says so. */
static void cut(struct cddpi_node_link *link, const char *why)
{
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_CUT, .rank = -1, .exit_status = 1};
    bool is_news;

    pthread_mutex_lock(&link->lock);
    is_news = !link->is_cut && !link->is_ending;
    link->is_cut = true;
    pthread_mutex_unlock(&link->lock);
    if (is_news) {
        snprintf(event.text, sizeof event.text, "%s", why);
        deliver(link, &event);
    }
}

static bool is_over(struct cddpi_node_link *link)
{
    bool is_over;

    pthread_mutex_lock(&link->lock);
    is_over = link->is_ending || link->is_cut;
    pthread_mutex_unlock(&link->lock);
    return is_over;
}

static void event_key(const struct cddpi_node_link *link, int64_t number, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s/event/%lld", link->job, (long long)number);
}

static cddp_status tell(struct cddpi_node_link *link, const struct item *item, int64_t *number)
{
    bool is_taken = false;
    cddp_status status = CDDP_OK;

    if (item->key[0] != '\0') {
        return cddp_store_set(link->teller, item->key, item->value.buffer.data,
                              item->value.buffer.bytes);
    }
    while (status == CDDP_OK && !is_taken) {
        char key[KEY_BYTES];

        event_key(link, *number, key);
        status = cddp_store_compare_set(link->teller, key, NULL, 0, item->value.buffer.data,
                                        item->value.buffer.bytes, &is_taken, NULL, NULL);
        *number += status == CDDP_OK ? 1 : 0;
    }
    return status;
}

static void release(struct item *item)
{
    cddpi_buffer_fini(&item->value.buffer);
    cddpi_free(item);
}

/* Wait until there is an item, the next sign of life is due, or the end. NULL: no item. */
static struct item *next_item(struct cddpi_node_link *link, int64_t beat_ns, bool *out_is_over)
{
    struct timespec until = {beat_ns / 1000000000, beat_ns % 1000000000};
    struct item *item;
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

/* On a clock that goes on while the machine sleeps. */
static int64_t boot_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A wait that was to end at @p due_ns is over. What takes longer than others wait for a sign of
 * life was no wait: this process, or its machine, stood still. */
static void notice_sleep(struct cddpi_node_link *link, int64_t due_ns)
{
    int64_t late_ms = (boot_ns() - due_ns) / 1000000 + link->beat_ms;

    if (late_ms >= (int64_t)LOST_LOOKS * link->look_ms) {
        link->slept_ms = late_ms;
        link->woke_ns = cddpi_now_ns();
    }
}

int64_t cddpi_node_link_slept_ms(const struct cddpi_node_link *link)
{
    bool is_recent = cddpi_now_ns() - link->woke_ns < (int64_t)RECENT_MS * 1000000;

    return is_recent ? link->slept_ms : 0;
}

static void *run_teller(void *argument)
{
    struct cddpi_node_link *link = argument;
    int64_t beat_ns = cddpi_now_ns();
    int64_t due_ns = boot_ns();
    int64_t number = 0;
    int64_t beats = 0;
    cddp_status status = CDDP_OK;
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%s/beat/%d", link->job, link->self);
    while (status == CDDP_OK) {
        bool is_over;
        struct item *item = next_item(link, beat_ns, &is_over);

        notice_sleep(link, due_ns);
        if (item != NULL && !is_over) {
            status = tell(link, item, &number);
        }
        if (item != NULL) {
            release(item);
        }
        if (is_over) {
            return NULL;
        }
        if (status == CDDP_OK && link->self >= 0 && cddpi_now_ns() >= beat_ns) {
            char beat[24];

            snprintf(beat, sizeof beat, "%lld", (long long)++beats);
            status = cddp_store_set(link->teller, key, beat, strlen(beat));
        }
        if (cddpi_now_ns() >= beat_ns) {
            beat_ns = cddpi_deadline_ns(link->beat_ms);
        }
        due_ns = boot_ns() + beat_ns - cddpi_now_ns();
    }
    cut(link, cddp_last_error());
    return NULL;
}

/* What follows when there is no sign of @p node. */
static void lose(struct cddpi_node_link *link, int node)
{
    struct cddpi_node_event event = {
        .kind = CDDPI_EVENT_LOST, .node = node, .rank = -1, .exit_status = 1};

    link->peers[node].is_gone = true;
    snprintf(event.text, sizeof event.text,
             "no sign of life for %g s: its cddp-run was killed, or "
             "the machine or the network is gone",
             link->limit_ms / 1000.0);
    if (node == 0 && link->self > 0) {
        deliver(link, &event);
    } else {
        cddpi_node_link_publish(link, &event);
    }
}

static cddp_status look_after(struct cddpi_node_link *link, int node)
{
    struct peer *peer = &link->peers[node];
    char key[KEY_BYTES];
    void *beat = NULL;
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
        return CDDP_OK; /* the nodes have not met yet, for which there is another deadline */
    }
    if (status == CDDP_OK && strcmp(beat, peer->beat) != 0) {
        snprintf(peer->beat, sizeof peer->beat, "%s", (char *)beat);
        peer->looks = 0;
    } else if (++peer->looks == LOST_LOOKS) {
        lose(link, node);
    }
    cddp_free(beat);
    return CDDP_OK;
}

/* Node 0 looks after the others, and they after node 0; who started them, after all. */
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

/* Hand on event @p number if it comes within @p wait_ms; *out_came says whether. */
static cddp_status hear(struct cddpi_node_link *link, int64_t number, uint32_t wait_ms,
                        bool *out_came)
{
    struct cddpi_node_event event;
    char key[KEY_BYTES];
    void *value = NULL;
    size_t bytes;
    cddp_status status;

    event_key(link, number, key);
    status = cddp_store_get(link->hearer, key, wait_ms, &value, &bytes);
    *out_came = status == CDDP_OK;
    if (status == CDDP_OK && cddpi_node_event_take(value, bytes, link->count, &event)) {
        link->has_begun = link->has_begun || event.kind == CDDPI_EVENT_START;
        for (int node = 0; node < link->count; node++) { /* after the job's end all leave */
            link->peers[node].is_gone = link->peers[node].is_gone ||
                                        event.kind == CDDPI_EVENT_END ||
                                        (event.kind == CDDPI_EVENT_BYE && event.node == node);
        }
        deliver(link, &event);
    } else if (status == CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "%s in the store is not an event of this version", key);
    }
    cddp_free(value);
    return status == CDDP_ERR_TIMEOUT ? CDDP_OK : status;
}

static void *run_hearer(void *argument)
{
    struct cddpi_node_link *link = argument;
    int64_t look_ns = cddpi_deadline_ns(link->look_ms);
    int64_t number = 0;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && !is_over(link)) {
        int left_ms = cddpi_left_ms(look_ns);
        int wait_ms = left_ms < 1 ? 1 : left_ms > MOST_BEAT_MS ? MOST_BEAT_MS : left_ms;
        bool has_come = false;

        status = hear(link, number, (uint32_t)wait_ms, &has_come);
        number += has_come ? 1 : 0;
        if (status == CDDP_OK && cddpi_now_ns() >= look_ns) {
            status = look_after_peers(link);
            look_ns = cddpi_deadline_ns(link->look_ms);
        }
    }
    if (status != CDDP_OK) {
        cut(link, cddp_last_error());
    }
    return NULL;
}

/* The threads take no signals: they are for who supervises. */
static cddp_status start_threads(struct cddpi_node_link *link)
{
    void *(*const bodies[])(void *) = {run_teller, run_hearer};
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

static cddp_status open_stores(struct cddpi_node_link *link,
                               const struct cddpi_node_link_options *options)
{
    cddp_store_options store = CDDP_STORE_OPTIONS_INIT;
    cddp_status status;

    store.url = options->store;
    store.token = options->token;
    store.timeout_ms = FILE_ANSWER_MS;
    if (link->self < 0) {
        store.timeout_ms = OWN_ANSWER_MS; /* its server is in this very process */
    } else if (link->limit_ms > FILE_ANSWER_MS || strncmp(options->store, "tcp://", 6) == 0) {
        store.timeout_ms = link->limit_ms; /* a server that takes longer for anything is gone */
    }
    status = cddp_store_open(&store, &link->teller);
    return status == CDDP_OK ? cddp_store_open(&store, &link->hearer) : status;
}

static void init_limits(struct cddpi_node_link *link)
{
    int64_t limit_ms = cddpi_env_integer(CDDPI_ENV_HEARTBEAT_MS, LEAST_ENV_MS, MOST_LIMIT_MS,
                                         LIMIT_MS);

    link->limit_ms = (uint32_t)(limit_ms > LEAST_LIMIT_MS ? limit_ms : LEAST_LIMIT_MS);
    link->look_ms = link->limit_ms / LOOKS;
    link->beat_ms = link->look_ms < MOST_BEAT_MS ? link->look_ms : MOST_BEAT_MS;
}

static void init_lock(struct cddpi_node_link *link)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes); /* neither can fail with these */
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

    if (link == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the connection of nodes");
    }
    link->self = options->self;
    link->count = options->count;
    link->pipe[0] = link->pipe[1] = -1;
    snprintf(link->job, sizeof link->job, "%s", options->job);
    init_limits(link);
    init_lock(link);
    link->peers = cddpi_zalloc_array((size_t)options->count, sizeof *link->peers);
    if (link->peers == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d nodes", options->count);
    } else if (pipe2(link->pipe, O_CLOEXEC) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "making a pipe");
    } else {
        (void)fcntl(link->pipe[0], F_SETFL, O_NONBLOCK);
        status = open_stores(link, options);
    }
    if (status == CDDP_OK) {
        status = start_threads(link);
    }
    if (status != CDDP_OK) {
        cddpi_node_link_close(link);
        return status;
    }
    *out = link;
    return CDDP_OK;
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
        struct item *item = link->first;

        link->first = item->next;
        release(item);
    }
    while (link->pipe[0] >= 0 && cddpi_node_link_next(link, &event)) {
    }
    if (link->pipe[0] >= 0) {
        close(link->pipe[0]);
        close(link->pipe[1]);
    }
    cddp_store_close(link->teller);
    cddp_store_close(link->hearer);
    pthread_cond_destroy(&link->wake);
    pthread_mutex_destroy(&link->lock);
    cddpi_free(link->peers);
    cddpi_free(link);
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

static void queue(struct cddpi_node_link *link, struct item *item)
{
    if (item->value.is_cut) {
        cddpi_log(CDDPI_LOG_ERROR, "no memory for what is to be told to other nodes");
        release(item);
        return;
    }
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

void cddpi_node_link_publish(struct cddpi_node_link *link, const struct cddpi_node_event *event)
{
    struct item *item = cddpi_zalloc(sizeof *item);

    if (item != NULL) {
        cddpi_node_event_put(&item->value, event);
        queue(link, item);
    }
}

void cddpi_node_link_set(struct cddpi_node_link *link, const char *key, const char *text)
{
    struct item *item = cddpi_zalloc(sizeof *item);

    if (item == NULL) {
        return;
    }
    snprintf(item->key, sizeof item->key, "%s", key);
    if (!cddpi_buffer_reserve(&item->value.buffer, strlen(text))) {
        item->value.is_cut = true;
    } else {
        cddpi_buffer_append(&item->value.buffer, text, strlen(text));
    }
    queue(link, item);
}
