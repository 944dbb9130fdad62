/* engine.c - owns MPI as a whole: starts it unless it is started already, lets one thread at a time
 * call it, and at exit ends it if this file started it.
 *
 * One thread calls MPI_Init_thread() and MPI_Finalize() and does nothing else. Both wait for other
 * processes, and MPI_Init_thread() may wait forever if another process lacks this module. */
#include "group/net/mpi/mpi_internal.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct cddpi_mpi_host *cddpi_mpi_host;

enum engine_phase { UNTOUCHED, STARTING, UP, FAILED, ENDING, ENDED };

static struct {
    pthread_mutex_t calls; /* held during calls of MPI */
    bool is_over;          /* guarded by `calls`: this file is ending MPI */
    pthread_mutex_t lock;  /* guards the fields below */
    pthread_cond_t changed;
    enum engine_phase
        phase;    /* progress of this file's work; UNTOUCHED if the program has started MPI */
    int provided; /* thread level from MPI_Init_thread(); in phase FAILED its error code */
    pid_t pid;
    atomic_bool is_given_up;
} engine = {.calls = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_condition(void)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine.changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static bool has_begun(void)
{
    int flag = 0;

    (void)MPI_Initialized(&flag);
    return flag != 0;
}

static bool has_ended(void)
{
    int flag = 0;

    (void)MPI_Finalized(&flag);
    return flag != 0;
}

/* Whether this process was started by an mpirun that this MPI understands, or by Slurm with PMIx.
 * Otherwise MPI would start as a world of size 1. */
static bool is_launched(void)
{
#ifdef OPEN_MPI
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"};
#else
    static const char *const names[] = {"PMI_SIZE", "PMIX_NAMESPACE"};
#endif

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && value[0] != '\0') {
            return true;
        }
    }
    return false;
}

/* Check that the program is not linked with another MPI, whose functions would take precedence over
 * this module's MPI. */
static cddp_status check_library(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    bool is_same;

    (void)MPI_Get_library_version(version, &length);
#ifdef OPEN_MPI
    is_same = strstr(version, "Open MPI") != NULL;
#else
    is_same = strstr(version, "Open MPI") == NULL;
#endif
    return is_same ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                "the MPI module was built for another MPI than this program's, "
                                "which is %.*s",
                                (int)strcspn(version, "\n"), version);
}

static int provided_to_program(void)
{
    int provided = MPI_THREAD_SINGLE;

    (void)MPI_Query_thread(&provided);
    return provided;
}

/* Check the thread level of an MPI that the program started. It must allow calls from other threads
 * at any time. If only one thread at a time may call MPI, the program, which calls it, too, must
 * know when cddp does: only inside the program's own calls of cddp. */
static cddp_status check_threads(void)
{
    int provided = provided_to_program();
    const char *thread = getenv("CDDP_COMM_THREAD");
    bool has_thread = thread == NULL || strcmp(thread, "0") != 0; /* a group of its own */

    return provided == MPI_THREAD_MULTIPLE || (provided == MPI_THREAD_SERIALIZED && !has_thread)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "the program has started MPI for fewer threads than "
                            "MPI_THREAD_MULTIPLE, but a group calls MPI in a thread of its own: "
                            "ask for that by MPI_Init_thread(), or for MPI_THREAD_SERIALIZED with "
                            "CDDP_COMM_THREAD=0");
}

/* Whether the program started MPI, if it is started, and not this file. */
static bool is_programs(void)
{
    bool is_untouched;

    pthread_mutex_lock(&engine.lock);
    is_untouched = engine.phase == UNTOUCHED;
    pthread_mutex_unlock(&engine.lock);
    return is_untouched;
}

cddp_status cddpi_mpi_probe(void)
{
    CDDPI_TRY(check_library());
    if (has_ended()) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "MPI has been ended (MPI_Finalize)");
    }
    if (has_begun()) {
        return is_programs() ? check_threads() : CDDP_OK;
    }
    if (!is_launched()) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "neither has this process called MPI_Init(), nor has an mpirun of the "
                          "module's MPI, or Slurm by PMIx, started it");
    }
    return CDDP_OK;
}

static void set_phase(enum engine_phase phase)
{
    engine.phase = phase;
    pthread_cond_broadcast(&engine.changed);
}

static void *run_engine(void *unused)
{
    int provided = MPI_THREAD_SINGLE;
    Dl_info library;
    int code;

    (void)unused;
    /* make libmpi's symbols global: its own plugins look them up in the whole process, where
     * symbols of a module's libraries are not visible */
    if (dladdr((const void *)(uintptr_t)MPI_Init_thread, &library) != 0) {
        (void)dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    pthread_mutex_lock(&engine.lock);
    engine.provided = code == MPI_SUCCESS ? provided : code;
    set_phase(code == MPI_SUCCESS ? UP : FAILED);
    while (engine.phase == UP) {
        pthread_cond_wait(&engine.changed, &engine.lock);
    }
    if (engine.phase == ENDING) {
        pthread_mutex_unlock(&engine.lock);
        pthread_mutex_lock(&engine.calls);
        engine.is_over = true;
        pthread_mutex_unlock(&engine.calls);
        (void)MPI_Finalize();
        pthread_mutex_lock(&engine.lock);
        set_phase(ENDED);
    }
    pthread_mutex_unlock(&engine.lock);
    return NULL;
}

/* End MPI if this file started it and nothing has failed. MPI_Finalize() waits for the other
 * processes without a deadline, as in every MPI program: another process may still have much to do,
 * and if one fails, mpirun ends this process. A process that fails does not end MPI, so that mpirun
 * ends the others. */
static void end_engine(int exit_status)
{
    if (engine.pid != getpid() || exit_status != 0 || atomic_load(&engine.is_given_up)) {
        return;
    }
    pthread_mutex_lock(&engine.lock);
    if (engine.phase == UP) {
        set_phase(ENDING);
        while (engine.phase == ENDING) {
            pthread_cond_wait(&engine.changed, &engine.lock);
        }
    }
    pthread_mutex_unlock(&engine.lock);
}

#ifdef __GLIBC__
static void end_at_exit(int exit_status, void *unused)
{
    (void)unused;
    end_engine(exit_status);
}

static int register_end(void)
{
    return on_exit(end_at_exit, NULL);
}
#else
static void end_at_exit(void)
{
    end_engine(0);
}

static int register_end(void)
{
    return atexit(end_at_exit);
}
#endif

/* Start a thread that blocks the program's signals. Call it with the lock held. */
static cddp_status start_thread(void)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int code;

    if (register_end() != 0) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory to register what ends it");
    }
    engine.pid = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&thread, NULL, run_engine, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, code, "MPI: start a thread");
    }
    pthread_detach(thread);
    engine.phase = STARTING;
    return CDDP_OK;
}

/* Call it with the lock held, in any phase after UNTOUCHED. */
static cddp_status await_start(uint32_t timeout_ms)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};

    while (engine.phase == STARTING) {
        if (pthread_cond_timedwait(&engine.changed, &engine.lock, &until) != 0) {
            cddpi_mpi_give_up();
            return cddpi_fail(
                CDDP_ERR_TIMEOUT,
                "MPI_Init_thread() did not return within %u ms: has every process "
                "that mpirun started come here, and do all hosts have libcddp-mpi.so?",
                timeout_ms);
        }
    }
    if (engine.phase == FAILED) {
        return cddpi_mpi_fail(CDDP_ERR_UNAVAILABLE, engine.provided, "MPI_Init_thread");
    }
    if (engine.phase != UP) {
        return cddpi_fail(CDDP_ERR_CLOSED, "MPI has been ended: the program exits");
    }
    return engine.provided >= MPI_THREAD_SERIALIZED
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "this MPI was built without threads (no MPI_THREAD_SERIALIZED)");
}

cddp_status cddpi_mpi_start(uint32_t timeout_ms)
{
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_mpi_probe());
    pthread_once(&once, init_condition);
    pthread_mutex_lock(&engine.lock);
    if (engine.phase == UNTOUCHED && has_begun()) { /* the program has started MPI */
        pthread_mutex_unlock(&engine.lock);
        return CDDP_OK;
    }
    if (engine.phase == UNTOUCHED) {
        status = start_thread();
    }
    if (status == CDDP_OK) {
        status = await_start(timeout_ms);
    }
    pthread_mutex_unlock(&engine.lock);
    return status;
}

cddp_status cddpi_mpi_enter(void)
{
    pthread_mutex_lock(&engine.calls);
    if (engine.is_over || has_ended()) {
        pthread_mutex_unlock(&engine.calls);
        return cddpi_fail(CDDP_ERR_CLOSED, "MPI has been ended (MPI_Finalize)");
    }
    return CDDP_OK;
}

bool cddpi_mpi_try_enter(void)
{
    /* a thread of the program may be inside MPI, at a thread level that allows no other thread */
    if ((is_programs() && provided_to_program() != MPI_THREAD_MULTIPLE) ||
        pthread_mutex_trylock(&engine.calls) != 0) {
        return false;
    }
    if (engine.is_over || has_ended()) {
        pthread_mutex_unlock(&engine.calls);
        return false;
    }
    return true;
}

void cddpi_mpi_leave(void)
{
    pthread_mutex_unlock(&engine.calls);
}

cddp_status cddpi_mpi_fail(cddp_status status, int code, const char *format, ...)
{
    char what[512];
    char why[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (MPI_Error_string(code, why, &length) != MPI_SUCCESS) {
        snprintf(why, sizeof why, "error %d of MPI", code);
    }
    for (char *c = why; *c != '\0'; c++) {
        *c = *c == '\n' ? ' ' : *c; /* MPICH's texts contain line breaks */
    }
    return cddpi_fail(status, "%s: %s", what, why);
}

void cddpi_mpi_give_up(void)
{
    atomic_store(&engine.is_given_up, true);
}
