/* ctl_folder.c - owns the thread in which cddp-run touches the run folder. */
#include "launcher/ctl/ctl_folder.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum { MOST_MS = 5000 };

/* What the thread does. Who ends later, the thread or its owner's patience, releases it. */
struct errand {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool has_ended, is_abandoned;
    char *dir; /* where to listen; NULL: only close */
    bool is_locked;
    struct cddpi_ctl_socket socket;
    cddp_status status;
    char error[CDDPI_FAILURE_TEXT_BYTES];
};

static void release(struct errand *errand)
{
    pthread_cond_destroy(&errand->wake);
    pthread_mutex_destroy(&errand->lock);
    cddpi_free(errand->dir);
    cddpi_free(errand);
}

/* Without a thread, the file system is not touched: the socket's file may stay. */
static void let_go(struct cddpi_ctl_socket *socket)
{
    cddpi_fd_close(&socket->fd);
    cddpi_fd_close(&socket->folder);
}

static bool is_abandoned(struct errand *errand)
{
    bool is_so;

    pthread_mutex_lock(&errand->lock);
    is_so = errand->is_abandoned;
    pthread_mutex_unlock(&errand->lock);
    return is_so;
}

static void *run_errand(void *argument)
{
    struct errand *errand = argument;
    bool was_abandoned;

    if (errand->dir == NULL || !cddpi_ctl_socket_is_in(&errand->socket, errand->dir)) {
        cddpi_ctl_socket_close(&errand->socket);
    }
    if (errand->dir != NULL && errand->socket.fd < 0 && !is_abandoned(errand)) {
        errand->status = cddpi_ctl_socket_listen(errand->dir, errand->is_locked, &errand->socket);
        snprintf(errand->error, sizeof errand->error, "%s",
                 errand->status != CDDP_OK ? cddp_last_error() : "");
    }
    pthread_mutex_lock(&errand->lock);
    errand->has_ended = true;
    was_abandoned = errand->is_abandoned;
    pthread_cond_signal(&errand->wake);
    pthread_mutex_unlock(&errand->lock);
    if (was_abandoned) {
        cddpi_ctl_socket_close(&errand->socket);
        release(errand);
    }
    return NULL;
}

/* Signals are blocked in the thread, since the supervising thread handles them. */
static int start_thread(struct errand *errand, pthread_t *out)
{
    sigset_t all;
    sigset_t before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(out, NULL, run_errand, errand);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Wait for the thread's end. Returns false if that takes too long. */
static bool await_errand(struct errand *errand)
{
    int64_t until_ns = cddpi_deadline_ns(MOST_MS);
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    bool has_ended;
    int error = 0;

    pthread_mutex_lock(&errand->lock);
    while (!errand->has_ended && error == 0) {
        error = pthread_cond_timedwait(&errand->wake, &errand->lock, &until);
    }
    has_ended = errand->has_ended;
    errand->is_abandoned = !has_ended;
    pthread_mutex_unlock(&errand->lock);
    return has_ended;
}

static void init_lock(struct errand *errand)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&errand->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&errand->lock, NULL);
}

/* Let a thread listen in @p dir, or (NULL) close @p socket, which is the thread's from now on. */
static cddp_status send_errand(const char *dir, bool is_locked, struct cddpi_ctl_socket *socket)
{
    struct errand *errand = cddpi_zalloc(sizeof *errand);
    pthread_t thread;
    int error;
    cddp_status status;

    if (errand == NULL) {
        let_go(socket);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a thread");
    }
    init_lock(errand);
    errand->dir = dir != NULL ? cddpi_strdup(dir) : NULL;
    errand->is_locked = is_locked;
    errand->socket = *socket;
    error = dir != NULL && errand->dir == NULL ? ENOMEM : start_thread(errand, &thread);
    if (error != 0) {
        release(errand);
        let_go(socket);
        return cddpi_fail_errno(CDDP_ERR_IO, error, "starting a thread for the run folder");
    }
    *socket = (struct cddpi_ctl_socket){.fd = -1, .folder = -1};
    if (!await_errand(errand)) {
        (void)pthread_detach(thread);
        return cddpi_fail(CDDP_ERR_TIMEOUT, "the file system of %s does not answer",
                          dir != NULL ? dir : "the run folder");
    }
    (void)pthread_join(thread, NULL);
    *socket = errand->socket;
    status = errand->status != CDDP_OK ? cddpi_fail(errand->status, "%s", errand->error) : CDDP_OK;
    release(errand);
    return status;
}

cddp_status cddpi_ctl_folder_listen(const char *dir, bool is_locked,
                                    struct cddpi_ctl_socket *socket)
{
    return send_errand(dir, is_locked, socket);
}

void cddpi_ctl_folder_close(struct cddpi_ctl_socket *socket)
{
    if (socket->folder >= 0) {
        (void)send_errand(NULL, false, socket);
    }
}
