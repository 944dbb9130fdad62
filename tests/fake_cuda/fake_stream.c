/* fake_stream.c - owns the streams: queued work, waits, and the thread that runs the work in the
 * most awkward order that CUDA allows. */
#include "fake_cuda/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct fake_point *fake_point_new(cudaStream_t stream)
{
    struct fake_point *point = fake_zalloc(sizeof *point);

    point->refs = 1;
    point->stream = stream;
    return point;
}

void fake_point_drop(struct fake_point *point)
{
    if (point != NULL && --point->refs == 0) {
        free(point);
    }
}

void fake_work_drop(struct fake_work *work)
{
    if (work->drop != NULL) {
        work->drop(work->closure);
    }
    fake_point_drop(work->point);
}

cudaStream_t fake_stream_of(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy ? &fake.null_streams[fake_device] : stream;
}

cudaError_t fake_put_item(cudaStream_t stream, struct fake_item *item)
{
    if (stream->last != NULL) {
        stream->last->next = item;
    } else {
        stream->first = item;
    }
    stream->last = item;
    fake.queued++;
    fake.last_put_ns = fake_now_ns();
    fake_start_runner();
    while (fake.queued > FAKE_MAX_QUEUED) { /* real queues are limited, too */
        fake.pressure += 64;
        fake.full++;
        pthread_cond_signal(&fake.work);
        pthread_cond_wait(&fake.changed, &fake.lock);
        if (--fake.full == 0) {
            pthread_cond_broadcast(&fake.changed);
        }
    }
    return fake.sticky;
}

cudaError_t fake_put(cudaStream_t stream, const struct fake_work *work)
{
    struct fake_item *item;

    if (stream->capture != NULL) {
        return fake_capture_put(stream, work);
    }
    item = fake_zalloc(sizeof *item);
    item->work = *work;
    return fake_put_item(stream, item);
}

cudaError_t fake_put_closure(cudaStream_t stream, void (*run)(void *), void *closure,
                             void (*drop)(void *))
{
    struct fake_work work = {.kind = FAKE_RUN, .run = run, .closure = closure, .drop = drop};

    return fake_put(stream, &work);
}

bool fake_work_ready(const struct fake_work *work, const struct fake_point *point)
{
    uint32_t now;

    if (work->kind == FAKE_WAIT) {
        return point == NULL || point->done;
    }
    if (work->kind != FAKE_WAIT_VALUE) {
        return true;
    }
    if (work->wide != NULL) {
        uint64_t base = work->base != NULL ? *work->base : 0;

        return (int64_t)(__atomic_load_n(work->wide, __ATOMIC_ACQUIRE) - base - work->wide_value) >=
               0;
    }
    now = __atomic_load_n(work->word, __ATOMIC_ACQUIRE);
    switch (work->flags & 3) { /* cuda.h's CU_STREAM_WAIT_VALUE_* */
    case 0:
        return (int32_t)(now - work->value) >= 0;
    case 1:
        return now == work->value;
    case 2:
        return (now & work->value) != 0;
    default:
        return (~(now | work->value)) != 0;
    }
}

static bool stream_ready(const struct CUstream_st *stream)
{
    size_t node;

    if (stream->first == NULL || stream->running) {
        return false;
    }
    if (stream->first->work.kind == FAKE_GRAPH) {
        return fake.sticky != cudaSuccess || fake_graph_pick(stream->first, &node);
    }
    return fake.sticky != cudaSuccess ||
           fake_work_ready(&stream->first->work, stream->first->work.point);
}

static void reach(struct fake_point *point)
{
    if (point != NULL) {
        point->done = true;
        point->at_ns = fake_now_ns();
    }
}

/* Run a piece of work, without the lock. After a failed kernel the context is lost. */
static void run_work(const struct fake_work *work, struct fake_point *point, int device)
{
    if (fake.sticky == cudaSuccess && work->is_kernel) {
        bool may_fail = fake.config.fail_card < 0 ||
                        fake.config.fail_card == fake.config.visible[device];

        fake.runs++;
        if (may_fail && fake.runs == fake.config.fail_launch) {
            __atomic_store_n(&fake.sticky, (cudaError_t)fake.config.launch_error, __ATOMIC_RELAXED);
        }
    }
    if (work->kind == FAKE_RECORD) {
        reach(point);
    } else if (work->kind == FAKE_RUN && fake.sticky == cudaSuccess) {
        pthread_mutex_unlock(&fake.lock);
        work->run(work->closure);
        pthread_mutex_lock(&fake.lock);
    }
}

static void item_drop(struct fake_item *item)
{
    if (item->graph != NULL) {
        for (size_t i = 0; i < item->graph->count; i++) {
            fake_point_drop(item->points[i]);
        }
        fake_graph_drop(item->graph);
        free(item->done);
        free(item->points);
    }
    fake_work_drop(&item->work);
    free(item);
}

static void run_graph_node(struct fake_item *item, int device)
{
    size_t node;

    if (!fake_graph_pick(item, &node)) { /* the context is lost, so nothing waits any more */
        for (size_t i = 0; i < item->graph->count; i++) {
            reach(item->points[i]);
        }
        item->left = 0;
        return;
    }
    run_work(&item->graph->nodes[node].work, item->points[node], device);
    item->done[node] = true;
    item->left--;
}

void fake_stream_bury(cudaStream_t stream)
{
    for (struct CUstream_st **at = &fake.streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            fake_tips_clear(&stream->tips);
            free(stream);
            return;
        }
    }
}

static void run_one(struct CUstream_st *stream)
{
    struct fake_item *item = stream->first;

    stream->running = true;
    if (item->work.kind == FAKE_GRAPH) {
        run_graph_node(item, stream->device);
    } else {
        run_work(&item->work, item->work.point, stream->device);
    }
    stream->running = false;
    if (item->work.kind != FAKE_GRAPH || item->left == 0) {
        stream->first = item->next;
        stream->last = item->next == NULL ? NULL : stream->last;
        fake.queued--;
        item_drop(item);
    }
    if (stream->destroyed && stream->first == NULL) {
        fake_stream_bury(stream);
    }
    pthread_cond_broadcast(&fake.changed);
}

/* The stream that must advance for @p point; NULL: it waits for something outside this process. */
static struct CUstream_st *needed_for(const struct fake_point *point)
{
    for (int depth = 0; depth < 1000 && point != NULL && !point->done; depth++) {
        struct CUstream_st *stream = point->stream;

        if (stream_ready(stream)) {
            return stream;
        }
        if (stream->first == NULL || stream->first->work.kind != FAKE_WAIT) {
            return NULL;
        }
        point = stream->first->work.point;
    }
    return NULL;
}

static struct CUstream_st *any_ready(void)
{
    struct CUstream_st *best = NULL;
    uint64_t count = 0;

    for (struct CUstream_st *stream = fake.streams; stream != NULL; stream = stream->next) {
        if (stream_ready(stream) && fake_random() % ++count == 0) {
            best = stream;
        }
    }
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) {
        if (stream_ready(&fake.null_streams[i]) && fake_random() % ++count == 0) {
            best = &fake.null_streams[i];
        }
    }
    return best;
}

/* Choose a stream that can advance now, if any. */
static struct CUstream_st *choose(void)
{
    static struct CUstream_st *favourite;
    struct CUstream_st *stream = NULL;

    if (fake.demands != NULL && fake.demands->strict) {
        stream = needed_for(fake.demands->point);
        if (stream != NULL) {
            return stream;
        }
    }
    if (fake.demands == NULL && fake.pressure == 0 &&
        fake_now_ns() - fake.last_put_ns < fake.config.idle_ns) {
        return NULL;
    }
    /* usually the same stream again, so that it gets far ahead of the others */
    stream = any_ready();
    if (stream != NULL && fake_random() % 4 != 0) {
        for (struct CUstream_st *known = fake.streams; known != NULL; known = known->next) {
            stream = known == favourite && stream_ready(known) ? known : stream;
        }
    }
    favourite = stream;
    fake.pressure -= stream != NULL && fake.pressure > 0;
    return stream;
}

/* Wait briefly: another process may write a word at any time. */
static void rest(void)
{
    struct timespec until;

    if (fake.queued == 0) {
        fake.pressure = 0;
        pthread_cond_wait(&fake.work, &fake.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&fake.work, &fake.lock, &until);
}

static void *runner(void *unused)
{
    pthread_mutex_lock(&fake.lock);
    while (!fake.stop) {
        struct CUstream_st *stream = choose();

        if (stream != NULL) {
            run_one(stream);
        } else {
            rest();
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return unused;
}

/* Stop the runner at exit: kernels must not run while static objects are destroyed. */
static void stop_runner(void)
{
    if (fake.owner == getpid() && fake.has_runner) {
        pthread_mutex_lock(&fake.lock);
        fake.stop = true;
        pthread_cond_signal(&fake.work);
        pthread_mutex_unlock(&fake.lock);
        pthread_join(fake.runner, NULL);
    }
}

void fake_start_runner(void)
{
    if (!fake.has_runner) {
        fake.has_runner = pthread_create(&fake.runner, NULL, runner, NULL) == 0;
        if (!fake.has_runner) {
            abort();
        }
        atexit(stop_runner);
    }
    pthread_cond_signal(&fake.work);
}

cudaError_t fake_await(struct fake_point *point)
{
    struct fake_demand demand = {fake.demands, point, fake_random() % 2 == 0};

    point->refs++;
    fake.demands = &demand;
    fake_start_runner();
    while (!point->done && fake.sticky == cudaSuccess) {
        pthread_cond_wait(&fake.changed, &fake.lock);
    }
    for (struct fake_demand **at = &fake.demands; *at != NULL; at = &(*at)->next) {
        if (*at == &demand) {
            *at = demand.next;
            break;
        }
    }
    fake_point_drop(point);
    return fake.sticky;
}

cudaError_t fake_sync_stream(cudaStream_t stream)
{
    struct fake_work work = {.kind = FAKE_RECORD};
    struct fake_point *point;
    cudaError_t error;

    if (stream->first == NULL) {
        return fake.sticky;
    }
    point = fake_point_new(stream);
    point->refs++;
    work.point = point;
    error = fake_put(stream, &work);
    error = error == cudaSuccess ? fake_await(point) : error;
    fake_point_drop(point);
    return error;
}

cudaError_t fake_sync_all(void)
{
    cudaError_t error = cudaSuccess;

    for (struct CUstream_st *stream = fake.streams; stream != NULL && error == cudaSuccess;
         stream = stream->next) {
        if (stream->device == fake_device && stream->capture == NULL && !stream->destroyed) {
            error = fake_sync_stream(stream);
        }
    }
    return error == cudaSuccess ? fake_sync_stream(&fake.null_streams[fake_device]) : error;
}

void fake_cuda_launch(cudaStream_t stream, void (*run)(void *closure), void *closure,
                      void (*drop)(void *closure))
{
    struct fake_work work = {
        .kind = FAKE_RUN, .is_kernel = true, .run = run, .closure = closure, .drop = drop};

    if (fake_enter_context() != cudaSuccess) {
        fake_work_drop(&work);
        return;
    }
    if (fake_stream_of(stream)->device != fake_device) {
        fake_leave(cudaErrorInvalidResourceHandle);
        fake_work_drop(&work);
        return;
    }
    fake.launches++;
    if (fake.launches == fake.config.refuse_launch) {
        fake_leave(cudaErrorLaunchOutOfResources);
        fake_work_drop(&work);
        return;
    }
    fake_leave(fake_put(fake_stream_of(stream), &work));
}
