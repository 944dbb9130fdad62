/* device.h - where tensors live: the processor's memory, or one CUDA device, which a module drives
 * that is opened at run time.
 *
 * Work on a device is ordered by streams: what is put into one stream is done in that order, and
 * nothing is ordered between streams but by events. On the processor every call is done when it
 * returns. A device belongs to the thread that drives compute, except where "any thread" is said.
 * Errors name the rank (as set by cddpi_device_open()), the call and the source line. */
#ifndef CDDPI_DEVICE_H
#define CDDPI_DEVICE_H

#include <cddp/types.h>

#include <stdbool.h>

enum cddpi_stream {
    CDDPI_STREAM_COMPUTE,
    CDDPI_STREAM_COMM, /* collectives */
    CDDPI_STREAM_COPY, /* batches on their way to the device */
    CDDPI_STREAM_COUNT
};

/* For tables that have a row for each kind: [CDDPI_DEVICE_CPU] = ... */
enum cddpi_device_kind { CDDPI_DEVICE_CPU, CDDPI_DEVICE_CUDA, CDDPI_DEVICE_KINDS };

struct cddpi_device;
struct cddpi_captured_graph; /* work of the compute stream that was captured, to be launched as one
                              */
struct cddpi_cuda_kernels;
struct cddpi_transport;

/* A point in a stream. Each device has events of its own, whose first member this is. */
struct cddpi_event {
    bool timed; /* elapsed can tell when the stream came to it */
};

struct cddpi_device_memory {
    size_t free_bytes, total_bytes;
};

/* Every device has all of these. On the processor some have nothing to do, and what it cannot do
 * fails. All return CDDP_OK, CDDP_ERR_NO_MEMORY or CDDP_ERR_DEVICE, unless they say more. */
struct cddpi_device_ops {
    const char *name; /* "cpu", "cuda" */
    enum cddpi_device_kind kind;
    /* Waits for the device's work, for a limited time. */
    void (*close)(struct cddpi_device *device);

    /* Memory of the device, 64-byte aligned (CUDA: 256), not cleared, usable by work that is put
     * into the compute stream from now on. @p what names it in the error, which also says how much
     * was free. */
    cddp_status (*alloc)(struct cddpi_device *device, size_t bytes, const char *what, void **out);
    /* Release @p memory once the work in the compute stream is done. NULL is accepted. */
    void (*release)(struct cddpi_device *device, void *memory);
    /* Host memory that the device reads and writes at full speed, beside compute. Any thread. */
    cddp_status (*pin)(struct cddpi_device *device, size_t bytes, void **out);
    void (*unpin)(struct cddpi_device *device, void *memory);
    /* Whether @p memory is this device's (then the processor must not touch it). Any thread. */
    bool (*owns)(const struct cddpi_device *device, const void *memory);
    cddp_status (*memory)(struct cddpi_device *device, struct cddpi_device_memory *out);

    /* In stream order; either may be host memory (pinned, if the call is not to wait). */
    cddp_status (*copy)(struct cddpi_device *device, enum cddpi_stream stream, void *to,
                        const void *from, size_t bytes);
    cddp_status (*clear)(struct cddpi_device *device, enum cddpi_stream stream, void *memory,
                         size_t bytes);

    /* @p timed: for elapsed. Events are recorded again and again. */
    cddp_status (*event_create)(struct cddpi_device *device, bool timed, struct cddpi_event **out);
    void (*event_destroy)(struct cddpi_device *device, struct cddpi_event *event); /* or NULL */
    cddp_status (*record)(struct cddpi_device *device, struct cddpi_event *event,
                          enum cddpi_stream stream);
    /* What is put into @p stream later begins after @p event as it was last recorded. The call does
     * not wait. */
    cddp_status (*order)(struct cddpi_device *device, enum cddpi_stream stream,
                         struct cddpi_event *event);
    /* Any thread. An event that was never recorded is done. */
    cddp_status (*query)(struct cddpi_device *device, struct cddpi_event *event, bool *out_done);
    /* The calling thread waits, asleep for most of it; CDDP_ERR_TIMEOUT. Any thread. */
    cddp_status (*wait)(struct cddpi_device *device, struct cddpi_event *event,
                        uint32_t timeout_ms);
    /* Between two timed events that are done. */
    cddp_status (*elapsed)(struct cddpi_device *device, struct cddpi_event *from,
                           struct cddpi_event *to, float *out_ms);
    /* Wait for all streams; CDDP_ERR_TIMEOUT. */
    cddp_status (*finish)(struct cddpi_device *device, uint32_t timeout_ms);

    /* Capture what is put into the compute stream (and into streams that events order after it, and
     * before its end again) instead of doing it; other streams go on.
     * CDDP_ERR_UNAVAILABLE: what was put there cannot be captured; the work has then not been done.
     * Copies from or to memory that is not pinned never can.
     *
     * In a capture nothing can be allocated, and no thread can wait for the device. Events that
     * were recorded before are waited for anew at each replay; those that are recorded in it order
     * what is in it, and the processor can query them or wait for them only if they are timed. The
     * processor as a device cannot capture: CDDP_ERR_UNAVAILABLE. */
    cddp_status (*capture_begin)(struct cddpi_device *device);
    cddp_status (*capture_end)(struct cddpi_device *device, struct cddpi_captured_graph **out);
    cddp_status (*replay)(struct cddpi_device *device, struct cddpi_captured_graph *captured);
    void (*graph_destroy)(struct cddpi_device *device, struct cddpi_captured_graph *captured);

    /* Ranges for profilers (NVTX), nested; cheap without a profiler. Nothing on the processor. */
    void (*range_push)(struct cddpi_device *device, const char *name);
    void (*range_pop)(struct cddpi_device *device);

    /* Let the compute stream be @p stream, a cudaStream_t of this device that outlives it (or the
     * next call) and stays the caller's. It goes on behind what the compute stream held.
     * CDDP_ERR_ARGUMENT: it is another device's; CDDP_ERR_STATE: it is being captured, or this
     * device captures. The processor has no streams: CDDP_ERR_ARGUMENT. */
    cddp_status (*adopt)(struct cddpi_device *device, void *stream);
    /* The compute stream, a cudaStream_t; NULL: the processor has none. */
    void *(*compute_stream)(struct cddpi_device *device);
};

/* The start of every device; the members behind it are the implementation's. */
struct cddpi_device {
    const struct cddpi_device_ops *ops;
    const struct cddpi_cuda_kernels *kernels; /* NULL on the processor */
    /* What carries its memory between ranks, best first, ended by NULL; NULL: nothing. Rows of
     * group/transports.h, which the module brings: nothing here reads them. */
    const struct cddpi_transport *const *transports;
    int index;       /* among those that this process sees; cpu: 0 */
    char title[96];  /* "NVIDIA H200", for people */
    char unique[48]; /* "GPU-0a1b...": tells cards apart on all machines; cpu: "" */
    int rank;        /* for texts; -1: none */
};

/** The processor; there is one, it is never closed, and any thread may use it. */
struct cddpi_device *cddpi_device_cpu(void);

/** For options in which NULL stands for the processor: beyond them no device is NULL. */
static inline struct cddpi_device *cddpi_device_or_cpu(struct cddpi_device *device)
{
    return device != NULL ? device : cddpi_device_cpu();
}

/** Whether calls only put work into the device's streams, in memory that the processor does not
 *  touch. On the processor the work is done when the call returns. */
static inline bool cddpi_device_is_async(const struct cddpi_device *device)
{
    return device->ops->kind != CDDPI_DEVICE_CPU;
}

/** Open @p name: "cpu"; "cuda", on the device that @p local_rank stands for among those that
 *  CUDA_VISIBLE_DEVICES leaves; or "cuda:2". @p shared: several ranks may use one device, in turns
 *  of local_rank modulo their number; otherwise more ranks than devices are an error that says so.
 *  @param rank        For texts.
 *  @param world_size  Of the job: above 1 the device's streams may wait for other ranks.
 *  @param out         Release with cddpi_device_close(), which accepts NULL and the processor.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (no such name or index); CDDP_ERR_UNAVAILABLE: why there is
 *          no CUDA here (module, driver, device), in one sentence that says what to do;
 *          CDDP_ERR_DEVICE. */
cddp_status cddpi_device_open(const char *name, int rank, int world_size, int local_rank,
                              int local_world_size, bool shared, struct cddpi_device **out);
void cddpi_device_close(struct cddpi_device *device);

/** How many CUDA devices this process sees, asked in this process, for a job of @p world_size.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why there is no CUDA here. */
cddp_status cddpi_device_visible(int world_size, int *out);

/** What `cddp-run --check` prints about GPUs: one or more lines, each ended by a newline. Never
 *  fails: it says what is missing, and why. Release with cddpi_free(); NULL: no memory. */
char *cddpi_device_describe(void);

/** How many CUDA devices this process sees; 0 with the reason in cddp_last_error(). A child process
 *  asks, so this one makes no context, and may fork later: its driver is not initialised. */
int cddpi_device_count(void);

#endif
