/* fake_graph.c - owns captures and graphs: their nodes, the dependencies of nodes, and launches. */
#include "fake_cuda/fake.h"

#include <stdlib.h>
#include <string.h>

void fake_tips_clear(struct fake_tips *tips)
{
    free(tips->nodes);
    tips->nodes = NULL;
    tips->count = 0;
}

void fake_tips_add(struct fake_tips *to, const struct fake_tips *from)
{
    size_t *nodes = fake_zalloc((to->count + from->count) * sizeof *nodes);

    if (to->count > 0) {
        memcpy(nodes, to->nodes, to->count * sizeof *nodes);
    }
    if (from->count > 0) {
        memcpy(nodes + to->count, from->nodes, from->count * sizeof *nodes);
    }
    free(to->nodes);
    to->nodes = nodes;
    to->count += from->count;
}

void fake_tips_copy(struct fake_tips *to, const struct fake_tips *from)
{
    fake_tips_clear(to);
    fake_tips_add(to, from);
}

cudaError_t fake_capture_put(cudaStream_t stream, const struct fake_work *work)
{
    struct fake_capture *capture = stream->capture;
    struct CUgraph_st *graph = capture->graph;
    struct fake_work copy = *work;
    struct fake_node *node;

    if (++fake.captured == fake.config.refuse_capture) {
        fake_work_drop(&copy);
        return fake_capture_refuse(stream);
    }
    if (capture->broken != cudaSuccess) {
        fake_work_drop(&copy);
        return cudaErrorStreamCaptureInvalidated;
    }
    if (graph->count == graph->room) {
        graph->room = 2 * graph->room + 64;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
        if (graph->nodes == NULL) {
            abort();
        }
    }
    node = &graph->nodes[graph->count];
    *node = (struct fake_node){copy, stream->tips.nodes, stream->tips.count};
    stream->tips.nodes = fake_zalloc(sizeof(size_t));
    stream->tips.nodes[0] = graph->count++;
    stream->tips.count = 1;
    return cudaSuccess;
}

cudaError_t fake_capture_refuse(cudaStream_t stream)
{
    if (stream->capture->broken == cudaSuccess) {
        stream->capture->broken = cudaErrorStreamCaptureUnsupported;
        return cudaErrorStreamCaptureUnsupported;
    }
    return cudaErrorStreamCaptureInvalidated;
}

static _Thread_local uint64_t captured_here;

bool fake_capturing_here(void)
{
    return fake.capture != NULL && fake.capture->id == captured_here;
}

cudaError_t fake_capture_forbids(void)
{
    return fake_capturing_here() ? fake_capture_refuse(fake.capture->origin) : cudaSuccess;
}

void fake_graph_drop(struct CUgraph_st *graph)
{
    if (graph == NULL || --graph->refs > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        fake_work_drop(&graph->nodes[i].work);
        free(graph->nodes[i].after);
    }
    free(graph->nodes);
    free(graph);
}

/* Choose at random a node that may run now. */
bool fake_graph_pick(const struct fake_item *item, size_t *out)
{
    uint64_t count = 0;

    for (size_t i = 0; i < item->graph->count; i++) {
        const struct fake_node *node = &item->graph->nodes[i];
        bool ready = !item->done[i] && fake_work_ready(&node->work, item->points[i]);

        for (size_t k = 0; k < node->after_count && ready; k++) {
            ready = item->done[node->after[k]];
        }
        if (ready && fake_random() % ++count == 0) {
            *out = i;
        }
    }
    return count > 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = fake_enter_context();
    struct fake_capture *capture;

    (void)mode;
    if (error != cudaSuccess) {
        return error;
    }
    if (stream == NULL || stream->capture != NULL || fake.capture != NULL) {
        return fake_leave(cudaErrorIllegalState);
    }
    capture = fake_zalloc(sizeof *capture);
    capture->id = ++fake.captures;
    capture->origin = stream;
    capture->graph = fake_zalloc(sizeof *capture->graph);
    capture->graph->refs = 1;
    stream->capture = capture;
    fake_tips_clear(&stream->tips);
    fake.capture = capture;
    captured_here = capture->id;
    return fake_leave(cudaSuccess);
}

/* Whether all captured work of @p stream precedes the end of @p origin. */
static bool is_joined(const struct CUgraph_st *graph, const struct CUstream_st *origin,
                      const struct CUstream_st *stream)
{
    bool *before = fake_zalloc(graph->count + 1);
    bool joined = true;

    for (size_t i = 0; i < origin->tips.count; i++) {
        before[origin->tips.nodes[i]] = true;
    }
    for (size_t i = graph->count; i-- > 0;) {
        for (size_t k = 0; before[i] && k < graph->nodes[i].after_count; k++) {
            before[graph->nodes[i].after[k]] = true;
        }
    }
    for (size_t i = 0; i < stream->tips.count; i++) {
        joined = joined && before[stream->tips.nodes[i]];
    }
    free(before);
    return joined;
}

cudaError_t cudaStreamEndCapture(cudaStream_t origin, cudaGraph_t *out)
{
    cudaError_t error = fake_enter_context();
    struct fake_capture *capture;

    *out = NULL;
    if (error != cudaSuccess) {
        return error;
    }
    capture = origin->capture;
    if (capture == NULL || capture->origin != origin) {
        return fake_leave(cudaErrorIllegalState);
    }
    if (capture->broken != cudaSuccess) {
        error = cudaErrorStreamCaptureInvalidated;
    }
    for (struct CUstream_st *stream = fake.streams; stream != NULL; stream = stream->next) {
        if (stream->capture == capture && stream != origin) {
            if (error == cudaSuccess && !is_joined(capture->graph, origin, stream)) {
                error = cudaErrorStreamCaptureUnjoined;
            }
            stream->capture = NULL;
            fake_tips_clear(&stream->tips);
        }
    }
    origin->capture = NULL;
    fake_tips_clear(&origin->tips);
    fake.capture = NULL;
    if (error == cudaSuccess) {
        *out = capture->graph;
    } else {
        fake_graph_drop(capture->graph);
    }
    free(capture);
    return fake_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    *out = stream->capture == NULL                  ? cudaStreamCaptureStatusNone
           : stream->capture->broken != cudaSuccess ? cudaStreamCaptureStatusInvalidated
                                                    : cudaStreamCaptureStatusActive;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t error = fake_enter_context();

    (void)flags;
    if (error != cudaSuccess) {
        return error;
    }
    if (++fake.graphs == fake.config.fail_graph) {
        return fake_leave(cudaErrorMemoryAllocation);
    }
    graph->refs++;
    *out = (cudaGraphExec_t)graph; /* both are the same here */
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    fake_graph_drop(graph);
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy((cudaGraph_t)exec);
}

/* Take references to points outside the graph that the launch uses: the events' points. */
static void take_points(struct fake_item *item, cudaStream_t stream)
{
    for (size_t i = 0; i < item->graph->count; i++) {
        const struct fake_work *work = &item->graph->nodes[i].work;

        if (work->event != NULL && work->kind == FAKE_RECORD) {
            fake_point_drop(work->event->point);
            work->event->point = fake_point_new(stream);
        }
        if (work->event != NULL && work->event->point != NULL) {
            item->points[i] = work->event->point;
            item->points[i]->refs++;
        }
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();
    struct fake_item *item;

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    if (stream->capture != NULL) {
        return fake_leave(fake_capture_refuse(stream));
    }
    item = fake_zalloc(sizeof *item);
    item->work.kind = FAKE_GRAPH;
    item->graph = (struct CUgraph_st *)exec;
    item->graph->refs++;
    item->done = fake_zalloc(item->graph->count * sizeof *item->done);
    item->points = fake_zalloc(item->graph->count * sizeof(struct fake_point *));
    item->left = item->graph->count;
    take_points(item, stream);
    if (item->left == 0) {
        item->work.kind = FAKE_RECORD; /* an empty graph has no work */
    }
    return fake_leave(fake_put_item(stream, item));
}
