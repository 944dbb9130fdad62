/* threads.c - runs loops of ours on OpenMP's threads, if oneDNN brought OpenMP into the process.
 * Threads of our own would compete with those for the same cores, because OpenMP's threads spin for
 * a while after each primitive. */
#include "nn/cpu/threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

/* gcc and clang compile parallel regions to this call; both runtimes have it. */
typedef void (*parallel_fn)(void (*fn)(void *), void *context, unsigned threads, unsigned flags);

static parallel_fn parallel; /* NULL: no OpenMP in the process */
static int (*max_threads)(void);
static void (*set_threads)(int);

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_openmp(void)
{
    *(void **)&parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    *(void **)&max_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

struct loop {
    size_t count;
    void (*fn)(void *context, size_t item);
    void *context;
    /* These also order memory: thread sanitizers do not see what OpenMP's threads wait for. */
    atomic_size_t next;
    atomic_size_t ended; /* threads */
};

static void run_items(void *argument)
{
    struct loop *loop = argument;
    size_t item = atomic_fetch_add_explicit(&loop->next, 1, memory_order_acquire);

    while (item < loop->count) {
        loop->fn(loop->context, item);
        item = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&loop->ended, 1, memory_order_release);
}

size_t cddpi_team_size(void)
{
    pthread_once(&once, find_openmp);
    return parallel != NULL && max_threads != NULL ? (size_t)max_threads() : 1;
}

void cddpi_for_each(size_t count, void (*fn)(void *context, size_t item), void *context)
{
    struct loop loop = {.count = count, .fn = fn, .context = context};
    size_t threads = cddpi_team_size();

    threads = threads > count ? count : threads;
    if (threads > 1) {
        atomic_store_explicit(&loop.next, 0, memory_order_release);
        parallel(run_items, &loop, (unsigned)threads, 0);
        (void)atomic_load_explicit(&loop.ended, memory_order_acquire);
    } else {
        run_items(&loop);
    }
}

void cddpi_team_resize(size_t threads)
{
    pthread_once(&once, find_openmp);
    if (set_threads != NULL) {
        set_threads((int)threads);
    }
}

/* A team of several threads does not start a nested one. If this thread runs the only item itself,
 * its team must be set to one thread. */
void cddpi_for_each_alone(size_t count, void (*fn)(void *context, size_t item), void *context)
{
    size_t threads = cddpi_team_size();

    if (count > 1 || threads == 1) {
        cddpi_for_each(count, fn, context);
        return;
    }
    cddpi_team_resize(1);
    cddpi_for_each(count, fn, context);
    cddpi_team_resize(threads);
}
