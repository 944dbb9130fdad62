/* dump.c - owns the dump of a group's most recent operations, and the thread that writes it when a
 * signal requests it. */
#include "group/watch/dump.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/replace.h"
#include "group/engine/group_call.h"
#include "group/transports.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cddpi_dump {
    cddp_group *group;
    char *folder; /* NULL: no folder; guarded by `mutex` */
    unsigned part;
    atomic_bool failed; /* the group's failure was written */
    unsigned served;    /* value of `asked` at the last write; guarded by `mutex` */
    struct cddpi_dump *next;
};

/* The groups of this process, and the thread that waits for requests. They are global, since a
 * signal goes to the process, not to one group. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cddpi_dump *dumps;
static unsigned parts;
static bool expects_requests;
static bool is_watching;
static sem_t requests;
static _Atomic unsigned asked; /* number of requests so far */

static int rank_in_job(const cddp_group *group)
{
    return group->ranks_of_job != NULL ? group->ranks_of_job[group->rank] : group->rank;
}

json_t *cddpi_dump_head(const cddp_group *group, const char *kind)
{
    char machine[CDDPI_MACHINE_BYTES];
    char host[256] = "";
    struct timespec now;
    json_t *head;

    cddpi_machine(machine);
    (void)gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    head = json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:s, s:s*, s:s, s:s, s:i, s:I, s:f}", "kind",
                     kind, "version", cddp_version(), "rank", group->rank, "world_size",
                     group->world_size, "local_rank", group->local_rank, "generation",
                     (json_int_t)group->generation, "backend", group->transport->name, "job",
                     cddpi_env(CDDPI_ENV_JOB), "host", host, "machine", machine, "pid",
                     (int)getpid(), "now_ns", (json_int_t)cddpi_now_ns(), "unix_s",
                     (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    if (head != NULL && group->ranks_of_job != NULL) {
        json_t *ranks = json_array();

        for (int r = 0; r < group->world_size; r++) {
            (void)json_array_append_new(ranks, json_integer(group->ranks_of_job[r]));
        }
        (void)json_object_set_new(head, "ranks_of_job", ranks);
    }
    return head;
}

static void put_time(json_t *json, const char *name, int64_t ns)
{
    (void)json_object_set_new(json, name, ns != 0 ? json_integer(ns) : json_null());
}

json_t *cddpi_dump_call(const struct cddpi_recorded_call *call)
{
    enum cddpi_kind kind = (enum cddpi_kind)call->kind;
    bool message = kind == CDDPI_SEND || kind == CDDPI_RECV;
    bool reduces = kind == CDDPI_ALL_REDUCE || kind == CDDPI_REDUCE || kind == CDDPI_REDUCE_SCATTER;
    bool rooted = kind == CDDPI_REDUCE || kind == CDDPI_BROADCAST || kind == CDDPI_GATHER ||
                  kind == CDDPI_SCATTER;
    /* for a replay, `count` identifies the capture */
    size_t count = kind != CDDPI_REPLAY ? (size_t)call->count : 0;
    size_t bytes = count * cddp_type_bytes((cddp_type)call->type);
    json_t *json = json_pack(
        "{s:I, s:s, s:I, s:s, s:I, s:I, s:s}", "serial", (json_int_t)call->serial, "operation",
        cddpi_kind_name(kind), "number", (json_int_t)call->number, "type",
        cddp_type_name((cddp_type)call->type), "count", (json_int_t)count, "bytes",
        (json_int_t)bytes, "state", cddpi_call_state_name((enum cddpi_call_state)call->state));

    if (json == NULL) {
        return NULL;
    }
    if (call->call != 0) {
        (void)json_object_set_new(json, "call", json_integer((json_int_t)call->call));
    }
    if (reduces) {
        (void)json_object_set_new(
            json, "reduction",
            json_string(call->weighted ? "weighted mean" : cddp_op_name((cddp_op)call->op)));
    }
    if (message || rooted) {
        (void)json_object_set_new(json, message ? "peer" : "root", json_integer(call->root));
    }
    if (call->bucket >= 0) {
        (void)json_object_set_new(json, "bucket", json_integer(call->bucket));
    }
    if (call->on_device) { /* device operations have their own numbers */
        (void)json_object_set_new(json, "on_device", json_true());
    }
    put_time(json, "enqueued_ns", call->enqueued_ns);
    put_time(json, "started_ns", call->started_ns);
    put_time(json, "finished_ns", call->finished_ns);
    return json;
}

static json_t *calls_of(const struct cddpi_recorder *recorder)
{
    uint64_t newest = atomic_load_explicit(&recorder->serial, memory_order_acquire);
    uint64_t serial = newest > CDDPI_RECORDER_CALLS ? newest - CDDPI_RECORDER_CALLS + 1 : 1;
    json_t *calls = json_array();
    struct cddpi_recorded_call call;

    for (; serial <= newest; serial++) {
        if (cddpi_recorder_read(recorder, serial, &call)) {
            (void)json_array_append_new(calls, cddpi_dump_call(&call));
        }
    }
    return calls;
}

struct json_put {
    struct cddpi_writer *writer;
    cddp_status status;
};

static int put_piece(const char *text, size_t bytes, void *context)
{
    struct json_put *to = context;

    to->status = cddpi_writer_put(to->writer, text, bytes);
    return to->status == CDDP_OK ? 0 : -1;
}

static cddp_status put_json(void *json, struct cddpi_writer *writer)
{
    struct json_put to = {writer, CDDP_OK};

    return json_dump_callback(json, put_piece, &to, JSON_COMPACT) == 0 || to.status != CDDP_OK
               ? to.status
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", writer->shown);
}

/* Write @p json as FOLDER/BELOW/NAME, and release it. Does not flush, since the end of the job
 * should not wait for a disk. */
static cddp_status write_to(json_t *json, const char *folder, const char *below, const char *name)
{
    char *path = cddpi_format("%s/%s", folder, below);
    char *to = cddpi_format("%s/%s/%s", folder, below, name);
    cddp_status status = CDDP_OK;

    if (json == NULL || path == NULL || to == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to write %s", folder, name);
    } else {
        status = cddpi_folder_make(path);
    }
    if (status == CDDP_OK) {
        status = cddpi_file_replace_quickly(to, put_json, json);
    }
    json_decref(json);
    cddpi_free(path);
    cddpi_free(to);
    return status;
}

/* With the mutex. */
static cddp_status put(const struct cddpi_dump *dump, json_t *json, const char *below)
{
    const cddp_group *group = dump->group;
    char part[24] = "";
    char generation[32] = "";
    char name[100];

    if (dump->part > 0) {
        snprintf(part, sizeof part, ".part-%u", dump->part);
    }
    if (group->generation > 0) {
        snprintf(generation, sizeof generation, ".generation-%u", group->generation);
    }
    snprintf(name, sizeof name, "rank-%d%s%s.json", rank_in_job(group), part, generation);
    return write_to(json, dump->folder, below, name);
}

cddp_status cddpi_dump_put(cddp_group *group, json_t *json, const char *below)
{
    cddp_status status;

    if (group->dump == NULL) {
        json_decref(json);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", below);
    }
    pthread_mutex_lock(&mutex);
    if (group->dump->folder != NULL) {
        status = put(group->dump, json, below);
    } else {
        json_decref(json);
        status = cddpi_fail(CDDP_ERR_ARGUMENT,
                            "%s: there is no folder for it: give cddp-run a --run-dir, or set "
                            "CDDP_DUMP_DIR",
                            below);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Call it with the mutex held. @p failure NULL: the dump was requested. Keeps the thread's last
 * failure. */
static void dump(const struct cddpi_dump *dump, const struct cddpi_failure *failure)
{
    const cddp_group *group = dump->group;
    struct cddpi_failure before;
    json_t *json;

    if (dump->folder == NULL) {
        return;
    }
    before = *cddpi_last_failure();
    json = cddpi_dump_head(group, "collectives");
    (void)json_object_set_new(json, "reason", json_string(failure != NULL ? "failure" : "request"));
    if (failure != NULL) {
        (void)json_object_set_new(json, "failure",
                                  json_pack("{s:s, s:i, s:s+, s:s+}", "status",
                                            cddp_status_text((cddp_status)failure->status),
                                            "culprit", failure->culprit, "operation",
                                            failure->operation, "", "text", failure->text, ""));
    }
    (void)json_object_set_new(json, "calls", calls_of(&group->recorder));
    if (put(dump, json, "collectives") != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "the last operations are not written: %s", cddp_last_error());
    }
    (void)cddpi_fail_again((cddp_status)before.status, &before);
}

void cddpi_dump_failure(cddp_group *group, const struct cddpi_failure *failure)
{
    if (group->dump != NULL && !atomic_exchange(&group->dump->failed, true)) {
        pthread_mutex_lock(&mutex);
        dump(group->dump, failure);
        pthread_mutex_unlock(&mutex);
    }
}

/* Write the dumps that were requested since the last time. Call it with the mutex held. */
static void serve(struct cddpi_dump *own)
{
    unsigned now = atomic_load(&asked);

    if (own->served != now) {
        own->served = now;
        dump(own, NULL);
    }
}

/* Runs until the process ends, since a signal may come at any time. */
static void *watch(void *argument)
{
    while (sem_wait(&requests) == 0 || errno == EINTR) {
        pthread_mutex_lock(&mutex);
        for (struct cddpi_dump *each = dumps; each != NULL; each = each->next) {
            serve(each);
        }
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

void cddpi_dump_request(void)
{
    int error_number = errno;

    atomic_fetch_add(&asked, 1);
    (void)sem_post(&requests);
    errno = error_number;
}

static void on_signal(int number)
{
    (void)number;
    cddpi_dump_request();
}

/* Make the signal that CDDP_DUMP_SIGNAL names request dumps, unless the program uses that signal.
 * Call it with the mutex held. */
static void install_handler(void)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    const char *wanted = cddpi_env(CDDPI_ENV_DUMP_SIGNAL);
    struct sigaction before;

    if (wanted == NULL || expects_requests) {
        return;
    }
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (strcmp(wanted, signals[i].name) != 0) {
            continue;
        }
        if (sigaction(signals[i].number, NULL, &before) == 0 && before.sa_handler != SIG_DFL &&
            before.sa_handler != on_signal) {
            cddpi_log(CDDPI_LOG_WARN,
                      "CDDP_DUMP_SIGNAL=%s: the program has a handler of its own for it, which "
                      "stays",
                      wanted);
            return;
        }
        sigemptyset(&action.sa_mask);
        expects_requests = sigaction(signals[i].number, &action, NULL) == 0;
        return;
    }
    cddpi_log(CDDPI_LOG_WARN, "CDDP_DUMP_SIGNAL=%s is not USR1 or USR2, so it is ignored", wanted);
}

/* Start the thread. It blocks all signals, which are for the program. Call it with the mutex
 * held. */
static void start_watching(void)
{
    static bool is_ready;
    pthread_t watcher;
    sigset_t all;
    sigset_t before;

    if (!is_ready) {
        (void)sem_init(&requests, 0, 0);
        is_ready = true;
    }
    install_handler();
    if (!expects_requests || is_watching) {
        return;
    }
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    is_watching = pthread_create(&watcher, NULL, watch, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_watching) {
        (void)pthread_detach(watcher);
    }
}

void cddpi_dump_expect_requests(void)
{
    pthread_mutex_lock(&mutex);
    expects_requests = true;
    start_watching();
    pthread_mutex_unlock(&mutex);
}

/* Whether @p group is a part of the job, or a further group of this rank. Call it with the mutex
 * held. */
static bool is_part(const cddp_group *group)
{
    bool found = group->ranks_of_job != NULL;

    for (const struct cddpi_dump *each = dumps; each != NULL; each = each->next) {
        found = found || rank_in_job(each->group) == rank_in_job(group);
    }
    return found;
}

void cddpi_dump_publish(cddp_group *group)
{
    struct cddpi_dump *made = cddpi_zalloc(sizeof *made);
    const char *folder = cddpi_env(CDDPI_ENV_DUMP_DIR);

    if (made == NULL) {
        return; /* the group then has no dumps */
    }
    folder = folder != NULL ? folder : cddpi_env(CDDPI_ENV_RUN_DIR);
    made->group = group;
    if (folder != NULL && cddpi_user_path(folder, &made->folder) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "the last operations will not be written: %s", cddp_last_error());
    }
    pthread_mutex_lock(&mutex);
    made->served = atomic_load(&asked);
    made->part = is_part(group) ? ++parts : 0;
    made->next = dumps;
    dumps = made;
    group->dump = made;
    start_watching();
    pthread_mutex_unlock(&mutex);
}

void cddpi_dump_withdraw(cddp_group *group)
{
    struct cddpi_dump *own = group->dump;
    struct cddpi_dump **place = &dumps;

    if (own == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    serve(own); /* the thread may not have handled this request yet */
    while (*place != own) {
        place = &(*place)->next;
    }
    *place = own->next;
    pthread_mutex_unlock(&mutex);
    group->dump = NULL;
    cddpi_free(own->folder);
    cddpi_free(own);
}

void cddpi_dump_set_folder(cddp_group *group, const char *folder)
{
    if (group->dump != NULL && cddpi_env(CDDPI_ENV_DUMP_DIR) == NULL) {
        char *copy = folder != NULL ? cddpi_format("%s", folder) : NULL;

        pthread_mutex_lock(&mutex);
        cddpi_free(group->dump->folder);
        group->dump->folder = copy;
        pthread_mutex_unlock(&mutex);
    }
}
