/* cuda_internal.h - what the files of src/runtime/device/cuda share with each other. */
#ifndef CDDPI_CUDA_INTERNAL_H
#define CDDPI_CUDA_INTERNAL_H

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda/cuda_device.h"

/* A point in a stream. In a captured graph, `event` orders the captured work, and each replay
 * records the time in `clock`. */
struct cuda_event {
    struct cddpi_event base; /* first: see cuda_event_of() */
    cudaEvent_t event;
    cudaEvent_t clock; /* NULL: not timed */
    /* any thread may read these while the compute thread records */
    _Atomic bool recorded;
    _Atomic uint64_t capture; /* the capture in which it was last recorded; 0: none */
};

static inline struct cuda_event *cuda_event_of(struct cddpi_event *base)
{
    return (struct cuda_event *)(void *)base;
}

struct cddpi_captured_graph {
    cudaGraphExec_t exec;
};

/** Make the device current for the calling thread. */
cddp_status cuda_enter(struct cddpi_device *device);

/** Call @p ready at growing intervals until it no longer returns cudaErrorNotReady. Returns the
 *  last result: cudaErrorNotReady if @p timeout_ms have passed. */
cudaError_t cuda_poll(cudaError_t (*ready)(void *what), void *what, uint32_t timeout_ms);
/** cudaStreamQuery() in the form that cuda_poll() needs. */
cudaError_t cuda_stream_ready(void *stream);

/* cuda_check.c: what kernels/cuda/services.c calls */
cddp_status cuda_word_failure(const struct cddpi_device *device, cddp_status status,
                              const char *text);
cddp_status cuda_failed_call(const struct cddpi_device *device, cudaError_t error, const char *call,
                             const char *file, int line);

/** What NVML says is wrong with the card: "NVML reports Xid 79 ..."; "": nothing. Any thread. */
void cuda_faults(const struct cddpi_device *device, char *out, size_t bytes);
/** What NVML measures: see struct cddpi_device_ops. */
bool cuda_meters(struct cddpi_device *device, struct cddpi_device_meters *out);

/* kernels.c */
/** Enable the kernels to use this module's devices. Call it before any kernel starts. */
void cuda_kernels_serve(void);

/* cuda_alloc.c */
cddp_status cuda_alloc(struct cddpi_device *device, size_t bytes, const char *what, void **out);
void cuda_release(struct cddpi_device *device, void *memory);
cddp_status cuda_pin(struct cddpi_device *device, size_t bytes, void **out);
void cuda_unpin(struct cddpi_device *device, void *memory);
bool cuda_owns(const struct cddpi_device *device, const void *memory);
cddp_status cuda_memory(struct cddpi_device *device, struct cddpi_device_memory *out);
cddp_status cuda_pool_open(struct cuda_device *device);

/* cuda_capture.c */
/** Whether work enqueued in @p in now becomes part of a capture. Streams that no event has ordered
 *  after the compute stream run as usual. */
bool cuda_is_capturing(const struct cuda_device *device, cudaStream_t in);

/* cuda_stream.c */
cddp_status cuda_streams_open(struct cuda_device *device);
void cuda_streams_close(struct cuda_device *device);
cddp_status cuda_adopt(struct cddpi_device *device, void *stream);
void *cuda_compute_stream(struct cddpi_device *device);
cddp_status cuda_copy(struct cddpi_device *device, enum cddpi_stream stream, void *to,
                      const void *from, size_t bytes);
cddp_status cuda_clear(struct cddpi_device *device, enum cddpi_stream stream, void *memory,
                       size_t bytes);
cddp_status cuda_finish(struct cddpi_device *device, uint32_t timeout_ms);
void cuda_range_push(struct cddpi_device *device, const char *name);
void cuda_range_pop(struct cddpi_device *device);

/* event.c */
cddp_status cuda_event_create(struct cddpi_device *device, bool timed, struct cddpi_event **out);
void cuda_event_destroy(struct cddpi_device *device, struct cddpi_event *event);
cddp_status cuda_event_record(struct cddpi_device *device, struct cddpi_event *event,
                              enum cddpi_stream stream);
cddp_status cuda_event_order(struct cddpi_device *device, enum cddpi_stream stream,
                             struct cddpi_event *event);
cddp_status cuda_event_query(struct cddpi_device *device, struct cddpi_event *event,
                             bool *out_done);
cddp_status cuda_event_wait(struct cddpi_device *device, struct cddpi_event *event,
                            uint32_t timeout_ms);
cddp_status cuda_event_elapsed(struct cddpi_device *device, struct cddpi_event *from,
                               struct cddpi_event *to, float *out_ms);

/* cuda_capture.c */
cddp_status cuda_capture_begin(struct cddpi_device *device);
cddp_status cuda_capture_end(struct cddpi_device *device, struct cddpi_captured_graph **out);
cddp_status cuda_replay(struct cddpi_device *device, struct cddpi_captured_graph *captured);
void cuda_graph_destroy(struct cddpi_device *device, struct cddpi_captured_graph *captured);

/* connections.c */
/** If @p has_peers, request the maximum number of hardware queues from CUDA, unless the environment
 *  sets the number. Call it before the first runtime call; if CUDA is already in use, it is too
 *  late, and a warning says so. */
void cuda_connections_prepare(bool has_peers);
/** Write one sentence: the current or future number of hardware queues, and what decides it. */
void cuda_connections_describe(char *out, size_t bytes);

/* profile.c */
/** If $CDDP_PROFILE names a file: time the kernels of @p device, and write the file at close. The
 *  streams must exist. */
cddp_status cuda_profile_open(struct cuda_device *device);
void cuda_profile_close(struct cuda_device *device);

/* cuda_open.c, cuda_describe.c */
cddp_status cuda_count(const struct cddpi_module_host *host, bool has_peers, int *out);
cddp_status cuda_open(const struct cddpi_module_host *host, int index, int rank,
                      struct cddpi_device **out);
void cuda_unique_name(const struct cudaDeviceProp *properties, char *out, size_t bytes);
void cuda_list(char *out, size_t bytes);
cddp_status cuda_describe(const struct cddpi_module_host *host, char *out, size_t bytes);

#endif
