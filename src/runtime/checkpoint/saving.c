/* saving.c - owns snapshots that are written in a thread of their own: the thread, and that one
 * snapshot is written at a time. */
#include "checkpoint/saving.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/handle.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct cddp_saving {
    struct cddpi_handle handle;
    struct cddpi_snapshot_copy own;   /* empty, if the caller has the copy */
    cddp_snapshot snapshot;           /* what is written, from the copy's memory */
    struct cddpi_shared_copy *shared; /* with its data; NULL: in the copy's memory */
    char *dir;
    int folder;   /* of that name; -1: the thread opens it */
    bool is_made; /* and its entry in the folder above was not flushed yet */
    struct cddpi_saving_options options;
    atomic_ullong progress;
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

enum { LOWEST_PRIORITY = 19 };

/* Open the folder, wherever it is moved later. A flush may take seconds, so the thread does it. If
 * this fails, so does the thread, which knows why. */
static void open_folder(struct cddp_saving *saving)
{
    saving->folder = cddpi_folder_open_fd(AT_FDCWD, saving->dir, true);
    if (saving->folder < 0 && errno == ENOENT && cddpi_file_mkdirat(AT_FDCWD, saving->dir) == 0) {
        saving->folder = cddpi_folder_open_fd(AT_FDCWD, saving->dir, true);
        saving->is_made = saving->folder >= 0;
    }
}

static cddp_status flush_above(const struct cddp_saving *saving)
{
    int above = cddpi_folder_open_fd(saving->folder, "..", true);
    int result = above >= 0 ? cddpi_file_fsync(above) : -1;
    int error = errno;

    cddpi_fd_close(&above);
    return result == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, error, "flush the folder above %s", saving->dir);
}

static cddp_status write_copy(struct cddp_saving *saving)
{
    const struct cddpi_saving_options *options = &saving->options;
    struct cddpi_snapshot_source source = {.progress = &saving->progress, .shared = saving->shared};
    struct cddpi_snapshot_room room;

    if (options->check != NULL) {
        CDDPI_TRY(options->check(&saving->snapshot));
    }
    if (saving->is_made) {
        CDDPI_TRY(flush_above(saving));
    }
    return cddpi_snapshot_write_into(saving->folder, saving->dir, &saving->snapshot, &source,
                                     options->keep, options->spare, &room);
}

static void *run_thread(void *argument)
{
    cddp_saving *saving = argument;
    cddp_status status;

    status = write_copy(saving);
    if (saving->shared != NULL) {
        cddpi_shared_copy_end(saving->shared);
    }
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

/* What a thread runs, and how. */
struct thread_start {
    const char *name;
    void *(*body)(void *);
    void *argument;
};

static void *begin_thread(void *argument)
{
    const struct thread_start start = *(const struct thread_start *)argument;

    cddpi_free(argument);
    (void)pthread_setname_np(pthread_self(), start.name);
    /* On Linux, threads have priorities of their own. If others leave this one little time, the
     * snapshot is complete later. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOWEST_PRIORITY);
    return start.body(start.argument);
}

cddp_status cddpi_saving_thread(const char *name, void *(*body)(void *), void *argument,
                                pthread_t *out)
{
    struct thread_start *start = cddpi_zalloc(sizeof *start);
    sigset_t all, before;
    int error;

    CDDPI_TRY_MEMORY(start != NULL, "snapshot_write: no memory for %zu bytes", sizeof *start);
    *start = (struct thread_start){name, body, argument};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(out, NULL, begin_thread, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        cddpi_free(start);
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error, "snapshot_write: starting a thread");
    }
    return CDDP_OK;
}

static void release(struct cddp_saving *saving)
{
    if (saving->has_thread) {
        pthread_join(saving->thread, NULL);
    }
    pthread_cond_destroy(&saving->change);
    pthread_mutex_destroy(&saving->mutex);
    cddpi_snapshot_copy_release(&saving->own);
    cddpi_fd_close(&saving->folder);
    cddpi_free(saving->dir);
    cddpi_handle_release(&saving->handle, sizeof *saving);
}

/* Waiting has a limit, which a change of the clock must not move. */
static void init_change(pthread_cond_t *change)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes); /* these cannot fail with glibc or musl */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(change, &attributes);
    pthread_condattr_destroy(&attributes);
}

static cddp_status create(const char *dir, const struct cddpi_saving_options *options,
                          struct cddp_saving **out)
{
    struct cddp_saving *saving = cddpi_zalloc(sizeof *saving);

    CDDPI_TRY_MEMORY(saving != NULL, "snapshot_write: no memory for %zu bytes", sizeof *saving);
    cddpi_handle_init(&saving->handle, CDDPI_HANDLE_SAVING);
    pthread_mutex_init(&saving->mutex, NULL); /* nor can this */
    init_change(&saving->change);
    saving->options = *options;
    saving->folder = -1;
    saving->dir = cddpi_strdup(dir);
    if (saving->dir == NULL) {
        release(saving);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "snapshot_write: no memory");
    }
    *out = saving;
    return CDDP_OK;
}

/* Begin to write @p copy. */
static cddp_status start(struct cddp_saving *saving, const struct cddpi_snapshot_copy *copy)
{
    cddp_status status;

    saving->snapshot = copy->snapshot;
    saving->shared = copy->shared;
    cddpi_snapshot_take_turn();
    status = cddpi_saving_thread("cddp-save", run_thread, saving, &saving->thread);
    saving->has_thread = status == CDDP_OK;
    if (status != CDDP_OK) {
        cddpi_snapshot_end_turn();
    }
    return status;
}

cddp_status cddpi_saving_begin(const char *dir, struct cddpi_snapshot_copy *copy,
                               const struct cddpi_saving_options *options, cddp_saving **out)
{
    struct cddp_saving *saving = NULL;
    cddp_status status;

    CDDPI_TRY(create(dir, options, &saving));
    open_folder(saving);
    status = start(saving, copy);
    if (status != CDDP_OK) {
        release(saving);
        return status;
    }
    *out = saving;
    return CDDP_OK;
}

static cddp_status write_behind(const char *dir, const cddp_snapshot *snapshot,
                                const struct cddpi_saving_options *options, cddp_saving **out)
{
    struct cddp_saving *saving = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_safetensors_check(dir, snapshot->model, snapshot->model_count));
    CDDPI_TRY(cddpi_safetensors_check(dir, snapshot->optimizer, snapshot->optimizer_count));
    CDDPI_TRY(create(dir, options, &saving));
    status = cddpi_snapshot_copy_take(&saving->own, snapshot, NULL);
    if (status == CDDP_OK) {
        status = start(saving, &saving->own);
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
    struct cddpi_saving_options how = {.check = NULL};
    struct cddpi_snapshot_room room;
    cddp_snapshot known;
    cddp_status status;

    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("snapshot options", "CDDP_SNAPSHOT_OPTIONS_INIT", options,
                                    sizeof read, &read));
        CDDPI_TRY(cddpi_flags_check(read.flags, 0));
    }
    CDDPI_TRY(cddpi_snapshot_read(dir, snapshot, &known));
    how.keep = read.keep;
    how.spare = read.keep > 1 ? read.keep - 1 : 1;
    if (out != NULL) {
        return write_behind(dir, &known, &how, out);
    }
    cddpi_snapshot_take_turn();
    status = cddpi_snapshot_write(dir, &known, NULL, how.keep, how.spare, &room);
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

cddp_status cddpi_saving_wait_for(cddp_saving *saving, uint32_t timeout_ms, bool *out_done)
{
    struct timespec end;
    int result = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&saving->mutex);
    while (!saving->is_done && result == 0) {
        result = pthread_cond_timedwait(&saving->change, &saving->mutex, &end);
    }
    pthread_mutex_unlock(&saving->mutex);
    return cddp_saving_test(saving, out_done);
}

uint64_t cddpi_saving_progress(const cddp_saving *saving)
{
    return atomic_load(&saving->progress);
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
