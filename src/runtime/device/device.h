/* device.h - where tensors live: host memory (the CPU), or one CUDA device, which a module opened
 * at run time drives.
 *
 * Streams order the work on a device: work in one stream runs in the order in which it was
 * enqueued; only events order work between streams. On the CPU every call has finished its work
 * when it returns. A device belongs to the thread that drives compute, except where "any thread" is
 * stated. Errors name the rank (as given to cddpi_device_open()), the call and the source line. */
#ifndef CDDPI_DEVICE_H
#define CDDPI_DEVICE_H

#include "base/shared.h"

#include <cddp/types.h>

#include <stdbool.h>

enum cddpi_stream {
    CDDPI_STREAM_COMPUTE,
    CDDPI_STREAM_COMM, /* collectives */
    CDDPI_STREAM_COPY, /* batches copied to the device */
    CDDPI_STREAM_COUNT
};

/* Also the index of tables with one row per kind: [CDDPI_DEVICE_CPU] = ... */
enum cddpi_device_kind { CDDPI_DEVICE_CPU, CDDPI_DEVICE_CUDA, CDDPI_DEVICE_KINDS };

struct cddpi_device;
struct cddpi_captured_graph; /* captured work of the compute stream, launched as one graph */
struct cddpi_cuda_kernels;
struct cddpi_transport;

/* A point in a stream. Each kind of device defines its own event struct, whose first member is
 * this. */
struct cddpi_event {
    bool timed; /* `elapsed` can use it: it records when the stream reached it */
};

struct cddpi_device_memory {
    size_t free_bytes, total_bytes;
};

/* Why a device computes more slowly than it can, as bits. */
enum {
    CDDPI_THROTTLE_POWER = 1, /* it has reached its power limit, as under any full load */
    CDDPI_THROTTLE_HEAT = 2,
    CDDPI_THROTTLE_BRAKE = 4, /* the machine's power supply tells it to */
    CDDPI_THROTTLE_HARDWARE = 8
};

/* What a device's driver measures. NaN: unknown. */
struct cddpi_device_meters {
    double memory_mib, memory_total_mib; /* in use by all processes; of the card */
    double clock_mhz, memory_clock_mhz;
    double power_w, power_limit_w;
    double temperature_c;
    double corrected, uncorrected; /* memory errors since the card's last reset */
    unsigned throttle;
};

/* The operations of a device; none of the pointers is NULL. On the CPU some do nothing, and those
 * that the CPU cannot do fail. All return CDDP_OK, CDDP_ERR_NO_MEMORY or CDDP_ERR_DEVICE, and where
 * stated other statuses. */
struct cddpi_device_ops {
    const char *name; /* "cpu", "cuda" */
    enum cddpi_device_kind kind;
    /* Close the device. Waits for its work, for a limited time. */
    void (*close)(struct cddpi_device *device);

    /* Allocate device memory: 64-byte aligned (CUDA: 256), not cleared, usable by work that is
     * enqueued in the compute stream from now on. @p what names the memory in the error, which also
     * says how much was free. */
    cddp_status (*alloc)(struct cddpi_device *device, size_t bytes, const char *what, void **out);
    /* Free @p memory once the work in the compute stream is done. Accepts NULL. */
    void (*release)(struct cddpi_device *device, void *memory);
    /* Allocate pinned host memory, which the device reads and writes at full speed while it
     * computes. Any thread. */
    cddp_status (*pin)(struct cddpi_device *device, size_t bytes, void **out);
    void (*unpin)(struct cddpi_device *device, void *memory);
    /* Whether @p memory is this device's; then the CPU must not touch it. Any thread. */
    bool (*owns)(const struct cddpi_device *device, const void *memory);
    /* free_bytes: what can be allocated, without what is kept for others. */
    cddp_status (*memory)(struct cddpi_device *device, struct cddpi_device_memory *out);

    /* In stream order. @p to or @p from may be host memory; it must be pinned if the call must not
     * wait. */
    cddp_status (*copy)(struct cddpi_device *device, enum cddpi_stream stream, void *to,
                        const void *from, size_t bytes);
    cddp_status (*clear)(struct cddpi_device *device, enum cddpi_stream stream, void *memory,
                         size_t bytes);

    /* @p timed: for `elapsed`. An event can be recorded any number of times. */
    cddp_status (*event_create)(struct cddpi_device *device, bool timed, struct cddpi_event **out);
    void (*event_destroy)(struct cddpi_device *device, struct cddpi_event *event); /* or NULL */
    cddp_status (*record)(struct cddpi_device *device, struct cddpi_event *event,
                          enum cddpi_stream stream);
    /* Work that is enqueued in @p stream later starts after the latest record of @p event. The call
     * does not wait. */
    cddp_status (*order)(struct cddpi_device *device, enum cddpi_stream stream,
                         struct cddpi_event *event);
    /* Whether @p event is done. An event that was never recorded is done. Any thread. */
    cddp_status (*query)(struct cddpi_device *device, struct cddpi_event *event, bool *out_done);
    /* Let the calling thread wait, asleep most of the time. Also CDDP_ERR_TIMEOUT. Any thread. */
    cddp_status (*wait)(struct cddpi_device *device, struct cddpi_event *event,
                        uint32_t timeout_ms);
    /* The time in ms between two timed events that are done. */
    cddp_status (*elapsed)(struct cddpi_device *device, struct cddpi_event *from,
                           struct cddpi_event *to, float *out_ms);
    /* Wait for all streams. Also CDDP_ERR_TIMEOUT. */
    cddp_status (*finish)(struct cddpi_device *device, uint32_t timeout_ms);
    /* Write what is known to be wrong with the device itself, such as failed memory; "" if nothing
     * is. Waits for some seconds at most. Any thread. */
    void (*faults)(const struct cddpi_device *device, char *out, size_t bytes);

    /* The newest measurements; false: there are none (no driver that measures, or not yet). Never
     * waits: a thread of its own asks the driver, at most once a second. `throttle` has all that
     * was so since the last call. Any thread. */
    bool (*meters)(struct cddpi_device *device, struct cddpi_device_meters *out);

    /* Capture the work enqueued in the compute stream instead of running it. Other streams join the
     * capture if an event orders them after the compute stream; an event must order them before its
     * end again. Streams that do not join run as usual. CDDP_ERR_UNAVAILABLE: the work cannot be
     * captured, and it has not run. Copies from or to memory that is not pinned can never be
     * captured.
     *
     * During a capture nothing can be allocated, and no thread can wait for the device. A replay
     * waits again for events that were recorded before the capture. Events recorded in the capture
     * order the work in it; the CPU can query or wait for them only if they are timed. The CPU
     * device cannot capture: CDDP_ERR_UNAVAILABLE. */
    cddp_status (*capture_begin)(struct cddpi_device *device);
    cddp_status (*capture_end)(struct cddpi_device *device, struct cddpi_captured_graph **out);
    cddp_status (*replay)(struct cddpi_device *device, struct cddpi_captured_graph *captured);
    void (*graph_destroy)(struct cddpi_device *device, struct cddpi_captured_graph *captured);

    /* Nested ranges for profilers (NVTX); cheap without a profiler. No effect on the CPU. */
    void (*range_push)(struct cddpi_device *device, const char *name);
    void (*range_pop)(struct cddpi_device *device);

    /* Use @p stream as the compute stream: a cudaStream_t of this device. The caller keeps owning
     * it; it must outlive the device, or exist until the next adopt. Its work starts after what the
     * previous compute stream held. CDDP_ERR_ARGUMENT: the stream belongs to another device;
     * CDDP_ERR_STATE: the stream is being captured, or this device is capturing. The CPU has no
     * streams: CDDP_ERR_ARGUMENT. */
    cddp_status (*adopt)(struct cddpi_device *device, void *stream);
    /* The compute stream, a cudaStream_t. NULL for the CPU. */
    void *(*compute_stream)(struct cddpi_device *device);
};

/* The first member of every device; the members after it belong to the implementation. */
struct cddpi_device {
    const struct cddpi_device_ops *ops;
    const struct cddpi_cuda_kernels *kernels; /* NULL on the CPU */
    /* The transports that carry the device's memory between ranks, best first, ended by NULL. NULL:
     * none. They are rows of group/transports.h that the module brings; the code here does not read
     * them. */
    const struct cddpi_transport *const *transports;
    int index;       /* its index among the devices that this process sees; CPU: 0 */
    char title[96];  /* "NVIDIA H200", for people */
    char unique[48]; /* "GPU-0a1b...": unique among the cards of all machines; CPU: "" */
    int rank;        /* for texts; -1: no rank */
};

/** The CPU as a device. There is only one; it is never closed, and any thread may use it. */
CDDPI_SHARED struct cddpi_device *cddpi_device_cpu(void);

/** For options in which NULL means the CPU. Below the options no device pointer is NULL. */
static inline struct cddpi_device *cddpi_device_or_cpu(struct cddpi_device *device)
{
    return device != NULL ? device : cddpi_device_cpu();
}

/** Whether calls only enqueue work in the device's streams, on memory that the CPU does not touch.
 *  On the CPU the work is done when the call returns. */
static inline bool cddpi_device_is_async(const struct cddpi_device *device)
{
    return device->ops->kind != CDDPI_DEVICE_CPU;
}

/** Open the device @p name: "cpu"; "cuda", which picks the device for @p local_rank among those
 *  that CUDA_VISIBLE_DEVICES leaves; or "cuda:2". @p shared: ranks may share devices; a rank then
 *  gets device local_rank modulo the number of devices. Without it, more ranks than devices are an
 *  error that says so.
 *  @param rank        For texts.
 *  @param world_size  Of the job. Above 1, the device's streams may wait for other ranks.
 *  @param out         Release with cddpi_device_close(), which accepts NULL and the CPU.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (no such name or index); CDDP_ERR_UNAVAILABLE: why CUDA
 *          cannot be used (module, driver, device), in one sentence that says what to do;
 *          CDDP_ERR_DEVICE. */
CDDPI_SHARED cddp_status cddpi_device_open(const char *name, int rank, int world_size,
                                           int local_rank, int local_world_size, bool shared,
                                           struct cddpi_device **out);
CDDPI_SHARED void cddpi_device_close(struct cddpi_device *device);

/** The number of CUDA devices that this process sees. Initialises CUDA in this process, for a job
 *  of @p world_size ranks.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: why CUDA cannot be used. */
cddp_status cddpi_device_visible(int world_size, int *out);

/** What `cddp-run --check` prints about GPUs: one or more lines, each ended by a newline. Never
 *  fails: the text says what is missing, and why. Release with cddpi_free(). NULL: no memory. */
char *cddpi_device_describe(void);

/** Write the unique names (struct cddpi_device) of the CUDA devices that this process sees to @p
 * fd, each with a newline, or "-" and why there are none. Initialises CUDA. */
void cddpi_device_write_list(int fd);

/* A program whose standard output is what cddpi_device_write_list() writes. */
struct cddpi_device_lister {
    const char *path;
    char *const *argv;
    char *const *environment;
};

/** The names that a program writes, which has @p limit_ms for it: the driver may hang, and a
 * process with threads cannot ask it in a fork. Release with cddpi_free(). NULL: cddp_last_error()
 * says why. */
char *cddpi_device_list(const struct cddpi_device_lister *lister, uint32_t limit_ms);

/** The number of CUDA devices that this process sees. 0: cddp_last_error() says why. A child
 *  process asks the driver, so this process creates no CUDA context and may fork later. */
int cddpi_device_count(void);

#endif
