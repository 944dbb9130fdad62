/* saving.c - owns snapshots that are written in a thread of their own: the copy of all that the
 * caller passed, the thread, and that one snapshot is written at a time. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/types.h"
#include "checkpoint/snapshot.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct cddp_saving {
    struct cddpi_handle handle;
    cddp_snapshot snapshot; /* of copies, which `memory` holds */
    char *dir;
    unsigned keep;
    unsigned char *memory;
    pthread_t thread;
    bool has_thread;
    bool is_told; /* a call has returned the result */

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t change;
    bool is_done;
    cddp_status status;
    struct cddpi_failure failure;
};

/* Whether a snapshot is being written in this process. Temporary names contain the process id, and
 * each writer removes those of crashed ones, so two writers in one process would disturb each
 * other. */
static struct {
    pthread_once_t once;
    pthread_mutex_t mutex;
    pthread_cond_t end;
    bool is_taken;
} turn = {PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void lock_turn(void)
{
    (void)pthread_mutex_lock(&turn.mutex);
}

static void unlock_turn(void)
{
    (void)pthread_mutex_unlock(&turn.mutex);
}

/* A forked child does not have the thread that writes. */
static void reset_turn(void)
{
    turn.is_taken = false;
    (void)pthread_cond_init(&turn.end, NULL);
    unlock_turn();
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_turn, unlock_turn, reset_turn);
}

void cddpi_snapshot_take_turn(void)
{
    (void)pthread_once(&turn.once, watch_forks);
    lock_turn();
    while (turn.is_taken) {
        (void)pthread_cond_wait(&turn.end, &turn.mutex);
    }
    turn.is_taken = true;
    unlock_turn();
}

void cddpi_snapshot_end_turn(void)
{
    lock_turn();
    turn.is_taken = false;
    (void)pthread_cond_signal(&turn.end);
    unlock_turn();
}

static cddp_status write_now(const char *dir, const cddp_snapshot *snapshot, unsigned keep)
{
    struct cddpi_snapshot_room room;

    return cddpi_snapshot_write(dir, snapshot, NULL, keep, keep > 1 ? keep - 1 : 1, &room);
}

/* Add the bytes that copies of the data, and of the names, of @p tensors take. */
static void add_bytes(const cddp_tensor *tensors, size_t count, size_t *data, size_t *names)
{
    for (size_t i = 0; i < count; i++) {
        *data += cddpi_align(cddpi_tensor_size(&tensors[i]));
        *names += strlen(tensors[i].name) + 1;
    }
}

/* Copy @p count tensors to @p to, their data to *data and their names to *names. */
static void copy_tensors(cddp_tensor *to, const cddp_tensor *from, size_t count,
                         unsigned char **data, char **names)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes = cddpi_tensor_size(&from[i]);
        size_t length = strlen(from[i].name) + 1;

        to[i] = from[i];
        to[i].name = memcpy(*names, from[i].name, length);
        *names += length;
        if (bytes > 0) {
            to[i].data = memcpy(*data, from[i].data, bytes);
        }
        *data += cddpi_align(bytes);
    }
}

/* Copy the snapshot, whose tensors have been checked, into one block: the data of all tensors, the
 * tensors, and their names. */
static cddp_status copy_snapshot(struct cddp_saving *saving, const cddp_snapshot *from)
{
    size_t count = from->model_count + from->optimizer_count;
    size_t data_bytes = 0;
    size_t name_bytes = 0;
    unsigned char *data;
    cddp_tensor *tensors;
    char *names;

    add_bytes(from->model, from->model_count, &data_bytes, &name_bytes);
    add_bytes(from->optimizer, from->optimizer_count, &data_bytes, &name_bytes);
    saving->memory = cddpi_alloc_aligned(data_bytes + (count + 1) * sizeof *tensors + name_bytes);
    saving->snapshot = *from;
    saving->snapshot.state_json = from->state_json != NULL ? cddpi_strdup(from->state_json) : NULL;
    if (saving->memory == NULL ||
        (from->state_json != NULL && saving->snapshot.state_json == NULL)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "snapshot_write: no memory for a copy of %zu tensors with %zu bytes",
                          count, data_bytes);
    }
    data = saving->memory;
    tensors = (cddp_tensor *)(void *)(data + data_bytes);
    names = (char *)(tensors + count);
    saving->snapshot.model = tensors;
    saving->snapshot.optimizer = tensors + from->model_count;
    copy_tensors(tensors, from->model, from->model_count, &data, &names);
    copy_tensors(tensors + from->model_count, from->optimizer, from->optimizer_count, &data,
                 &names);
    return CDDP_OK;
}

static void *run_thread(void *argument)
{
    cddp_saving *saving = argument;
    cddp_status status;

    (void)pthread_setname_np(pthread_self(), "cddp-save");
    status = write_now(saving->dir, &saving->snapshot, saving->keep);
    cddpi_snapshot_end_turn();
    pthread_mutex_lock(&saving->mutex);
    saving->status = status;
    if (status != CDDP_OK) {
        saving->failure = *cddpi_last_failure();
    }
    saving->is_done = true;
    pthread_cond_broadcast(&saving->change);
    pthread_mutex_unlock(&saving->mutex);
    return NULL;
}

/* Start the thread. It blocks all signals, which are for the program's own threads. */
static cddp_status start_thread(struct cddp_saving *saving)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&saving->thread, NULL, run_thread, saving);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error, "snapshot_write: starting a thread");
    }
    saving->has_thread = true;
    return CDDP_OK;
}

static void release(struct cddp_saving *saving)
{
    if (saving->has_thread) {
        pthread_join(saving->thread, NULL);
    }
    pthread_cond_destroy(&saving->change);
    pthread_mutex_destroy(&saving->mutex);
    cddpi_free((void *)(uintptr_t)saving->snapshot.state_json);
    cddpi_free(saving->memory);
    cddpi_free(saving->dir);
    cddpi_handle_release(&saving->handle, sizeof *saving);
}

static cddp_status start(const char *dir, const cddp_snapshot *snapshot, unsigned keep,
                         cddp_saving **out)
{
    cddp_saving *saving;
    cddp_status status;

    CDDPI_TRY(cddpi_safetensors_check(dir, snapshot->model, snapshot->model_count));
    CDDPI_TRY(cddpi_safetensors_check(dir, snapshot->optimizer, snapshot->optimizer_count));
    saving = cddpi_zalloc(sizeof *saving);
    CDDPI_TRY_MEMORY(saving != NULL, "snapshot_write: no memory for %zu bytes", sizeof *saving);
    cddpi_handle_init(&saving->handle, CDDPI_HANDLE_SAVING);
    pthread_mutex_init(&saving->mutex, NULL); /* these cannot fail with glibc or musl */
    pthread_cond_init(&saving->change, NULL);
    saving->keep = keep;
    saving->dir = cddpi_strdup(dir);
    status = saving->dir != NULL ? copy_snapshot(saving, snapshot)
                                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "snapshot_write: no memory");
    if (status == CDDP_OK) {
        cddpi_snapshot_take_turn();
        status = start_thread(saving);
        if (status != CDDP_OK) {
            cddpi_snapshot_end_turn();
        }
    }
    if (status != CDDP_OK) {
        release(saving);
        return status;
    }
    *out = saving;
    return CDDP_OK;
}

cddp_status cddp_snapshot_write(const char *dir, const cddp_snapshot *snapshot,
                                const cddp_snapshot_options *options, cddp_saving **out)
{
    cddp_snapshot_options read = CDDP_SNAPSHOT_OPTIONS_INIT;
    cddp_snapshot known;
    cddp_status status;

    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("snapshot options", "CDDP_SNAPSHOT_OPTIONS_INIT", options,
                                    sizeof read, &read));
        CDDPI_TRY(cddpi_flags_check(read.flags, 0));
    }
    CDDPI_TRY(cddpi_snapshot_read(dir, snapshot, &known));
    if (out != NULL) {
        return start(dir, &known, read.keep, out);
    }
    cddpi_snapshot_take_turn();
    status = write_now(dir, &known, read.keep);
    cddpi_snapshot_end_turn();
    return status;
}

cddp_status cddp_saving_test(cddp_saving *saving, bool *out_done)
{
    cddp_status status;

    CDDPI_TRY(cddpi_handle_check((const struct cddpi_handle *)saving, CDDPI_HANDLE_SAVING,
                                 "saving_test"));
    if (out_done == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "saving_test: out_done is NULL");
    }
    pthread_mutex_lock(&saving->mutex);
    *out_done = saving->is_done;
    status = saving->is_done ? saving->status : CDDP_OK;
    saving->is_told = saving->is_told || saving->is_done;
    pthread_mutex_unlock(&saving->mutex);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_again(status, &saving->failure);
}

cddp_status cddp_saving_wait(cddp_saving *saving)
{
    CDDPI_TRY(cddpi_handle_check((const struct cddpi_handle *)saving, CDDPI_HANDLE_SAVING,
                                 "saving_wait"));
    pthread_mutex_lock(&saving->mutex);
    while (!saving->is_done) {
        pthread_cond_wait(&saving->change, &saving->mutex);
    }
    saving->is_told = true;
    pthread_mutex_unlock(&saving->mutex);
    return saving->status == CDDP_OK ? CDDP_OK : cddpi_fail_again(saving->status, &saving->failure);
}

void cddp_saving_destroy(cddp_saving *saving)
{
    bool is_told;

    if (saving == NULL ||
        !cddpi_handle_enter_last(&saving->handle, CDDPI_HANDLE_SAVING, "saving_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&saving->handle)) {
        cddpi_handle_end(&saving->handle); /* a forked process does not have the thread */
        return;
    }
    is_told = saving->is_told;
    if (cddp_saving_wait(saving) != CDDP_OK && !is_told) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: a snapshot was not written: %s", cddp_last_error());
    }
    release(saving);
}
