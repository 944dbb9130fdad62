/* profile.c - owns the kernel profile that $CDDP_PROFILE turns on: it replaces the table of kernels
 * by one that times each call with events.
 *
 * A step runs from one parameter update to the next. The first step is left out, because kernels
 * choose their algorithms in it; work after the last update is left out, too. When the device
 * closes, the file gets one JSON line for each operation and shape. A profiler that waits for
 * cudaProfilerStart() records the second step. */
#include "device/cuda/profile.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROWS = 1024,
    MOST_CALLS = 8192, /* per step */
    KEPT_TIMES = 256,  /* times kept per row, for the median */
    MOST_TABLES = 16,
    STEP_MS = 300000
};

/* Declared here because some toolkit wheels lack their header, cuda_profiler_api.h. */
extern cudaError_t cudaProfilerStart(void);
extern cudaError_t cudaProfilerStop(void);

struct profile_row {
    struct cuda_work work;
    long calls;
    double total_ms;
    float times[KEPT_TIMES];
};

struct profile_call {
    int row;
    cudaEvent_t from, to;
};

struct cuda_profile {
    struct cddpi_cuda_kernels plain;
    char *path;
    struct profile_row rows[MOST_ROWS];
    int row_count;
    struct profile_call calls[MOST_CALLS]; /* of this step */
    int call_count, event_count;
    /* nesting depth: kernel functions call others, whose time belongs to the outermost one */
    int depth;
    bool timed;           /* whether the outermost call is timed */
    long missed;          /* calls that were not timed, for lack of room */
    cudaEvent_t marks[2]; /* the start and the end of this step */
    long steps;           /* number of finished steps */
    double steps_ms;      /* total time of all but the first */
    struct {
        const void *table;
        double count;
    } tables[MOST_TABLES];
};

const struct cddpi_cuda_kernels *cuda_profile_plain(struct cddpi_device *device)
{
    return &cuda_device_of(device)->profile->plain;
}

void cuda_profile_remember(struct cddpi_device *device, const void *table, double count)
{
    struct cuda_profile *profile = cuda_device_of(device)->profile;

    for (int i = 0; i < MOST_TABLES; i++) {
        if (profile->tables[i].table == NULL || profile->tables[i].table == table) {
            profile->tables[i].table = table;
            profile->tables[i].count = count;
            return;
        }
    }
}

double cuda_profile_remembered(struct cddpi_device *device, const void *table)
{
    const struct cuda_profile *profile = cuda_device_of(device)->profile;

    for (int i = 0; i < MOST_TABLES; i++) {
        if (profile->tables[i].table == table) {
            return profile->tables[i].count;
        }
    }
    return 0;
}

/* The row for @p work, a new one if necessary; -1: the table is full. */
static int row_of(struct cuda_profile *profile, const struct cuda_work *work)
{
    for (int i = 0; i < profile->row_count; i++) {
        const struct cuda_work *other = &profile->rows[i].work;

        if (strcmp(other->op, work->op) == 0 && strcmp(other->shape, work->shape) == 0 &&
            other->bytes == work->bytes && other->pass_bytes == work->pass_bytes) {
            return i;
        }
    }
    if (profile->row_count == MOST_ROWS) {
        return -1;
    }
    profile->rows[profile->row_count].work = *work;
    return profile->row_count++;
}

/* Create the next call's events if they do not exist yet; every step uses them again. */
static bool has_events(struct cuda_profile *profile)
{
    struct profile_call *call = &profile->calls[profile->call_count];

    if (profile->call_count < profile->event_count) {
        return true;
    }
    if (cudaEventCreateWithFlags(&call->from, cudaEventDefault) != cudaSuccess) {
        return false;
    }
    if (cudaEventCreateWithFlags(&call->to, cudaEventDefault) != cudaSuccess) {
        (void)cudaEventDestroy(call->from);
        return false;
    }
    profile->event_count++;
    return true;
}

void cuda_profile_begin(struct cddpi_device *device, struct cuda_work work)
{
    struct cuda_device *self = cuda_device_of(device);
    struct cuda_profile *profile = self->profile;
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
    int row;

    cuda_range_push(device, work.op);
    if (profile->depth++ > 0) {
        return;
    }
    profile->timed = false;
    if (self->capture != 0) {
        return;
    }
    row = profile->call_count < MOST_CALLS ? row_of(profile, &work) : -1;
    if (row < 0 || !has_events(profile)) {
        profile->missed++;
        return;
    }
    profile->calls[profile->call_count].row = row;
    profile->timed = cudaEventRecord(profile->calls[profile->call_count].from, stream) ==
                     cudaSuccess;
}

cddp_status cuda_profile_end(struct cddpi_device *device, cddp_status status)
{
    struct cuda_profile *profile = cuda_device_of(device)->profile;
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);

    if (--profile->depth == 0 && profile->timed && status == CDDP_OK &&
        cudaEventRecord(profile->calls[profile->call_count].to, stream) == cudaSuccess) {
        profile->call_count++;
    }
    cuda_range_pop(device);
    return status;
}

/* Add the step's times to the rows. All of the step's work must be done. */
static void collect(struct cuda_profile *profile)
{
    float ms = 0;

    for (int i = 0; i < profile->call_count; i++) {
        struct profile_row *row = &profile->rows[profile->calls[i].row];

        if (cudaEventElapsedTime(&ms, profile->calls[i].from, profile->calls[i].to) ==
            cudaSuccess) {
            row->times[row->calls % KEPT_TIMES] = ms;
            row->total_ms += ms;
            row->calls++;
        }
    }
    if (cudaEventElapsedTime(&ms, profile->marks[0], profile->marks[1]) == cudaSuccess) {
        profile->steps_ms += ms;
    }
}

cddp_status cuda_profile_step(struct cddpi_device *device)
{
    struct cuda_device *self = cuda_device_of(device);
    struct cuda_profile *profile = self->profile;
    cudaEvent_t mark = profile->marks[0];
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
    cddp_status status;

    if (self->capture != 0) {
        return CDDP_OK;
    }
    status = CUDA_CHECK(device, cudaEventRecord(profile->marks[1], stream));
    if (status == CDDP_OK) {
        status = cuda_finish(device, STEP_MS);
    }
    if (status == CDDP_OK && profile->steps > 0) {
        collect(profile);
    }
    profile->call_count = 0;
    profile->steps++;
    if (profile->steps == 1) {
        (void)cudaProfilerStart();
    } else if (profile->steps == 2) {
        (void)cudaProfilerStop();
    }
    /* Record a new mark for the start of the next step, so that the wait above belongs to no
     * step. */
    profile->marks[0] = profile->marks[1];
    profile->marks[1] = mark;
    CDDPI_TRY(status);
    return CUDA_CHECK(device, cudaEventRecord(profile->marks[0], stream));
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

static void write_row(FILE *file, struct profile_row *row)
{
    size_t kept = row->calls < KEPT_TIMES ? (size_t)row->calls : KEPT_TIMES;

    if (kept == 0) {
        return;
    }
    qsort(row->times, kept, sizeof row->times[0], by_size);
    fprintf(file,
            "{\"op\":\"%s\",\"shape\":\"%s\",\"calls\":%ld,\"us\":%.3f,\"total_us\":%.3f,"
            "\"bytes\":%.0f,\"flops\":%.0f,\"pass_bytes\":%.0f}\n",
            row->work.op, row->work.shape, row->calls, 1000.0 * (double)row->times[kept / 2],
            1000.0 * row->total_ms, row->work.bytes, row->work.flops, row->work.pass_bytes);
}

static void write_profile(const struct cuda_device *device, struct cuda_profile *profile)
{
    char path[4096];
    FILE *file;
    bool written;

    if (device->base.rank > 0) {
        snprintf(path, sizeof path, "%s.%d", profile->path, device->base.rank);
    } else {
        snprintf(path, sizeof path, "%s", profile->path);
    }
    file = fopen(path, "we");
    written = file != NULL;
    if (file != NULL) {
        fprintf(file, "{\"steps\":%ld,\"step_us\":%.3f,\"missed\":%ld}\n",
                profile->steps > 1 ? profile->steps - 1 : 0,
                profile->steps > 1 ? 1000.0 * profile->steps_ms / (double)(profile->steps - 1) : 0,
                profile->missed);
        for (int i = 0; i < profile->row_count; i++) {
            write_row(file, &profile->rows[i]);
        }
        written = ferror(file) == 0;
        written = fclose(file) == 0 && written;
    }
    if (!written) {
        cddpi_log(CDDPI_LOG_WARN, "the profile could not be written to %s ($CDDP_PROFILE)", path);
    }
}

cddp_status cuda_profile_open(struct cuda_device *device)
{
    const char *path = getenv("CDDP_PROFILE");
    struct cddpi_device *base = &device->base;
    struct cuda_profile *profile;

    if (path == NULL || path[0] == '\0') {
        return CDDP_OK;
    }
    profile = cddpi_zalloc(sizeof *profile);
    if (profile == NULL) {
        return cuda_fail(base, CDDP_ERR_NO_MEMORY, "profile: no memory for %zu bytes",
                         sizeof *profile);
    }
    profile->path = cddpi_strdup(path);
    if (profile->path == NULL) {
        cddpi_free(profile);
        return cuda_fail(base, CDDP_ERR_NO_MEMORY, "profile: no memory for %zu bytes",
                         strlen(path) + 1);
    }
    profile->plain = device->kernels;
    device->profile = profile;
    CDDPI_TRY(CUDA_CHECK(base, cudaEventCreateWithFlags(&profile->marks[0], cudaEventDefault)));
    CDDPI_TRY(CUDA_CHECK(base, cudaEventCreateWithFlags(&profile->marks[1], cudaEventDefault)));
    cuda_profile_matmul(&device->kernels);
    cuda_profile_rows(&device->kernels);
    return CDDP_OK;
}

void cuda_profile_close(struct cuda_device *device)
{
    struct cuda_profile *profile = device->profile;

    if (profile == NULL) {
        return;
    }
    if (profile->marks[1] != NULL) {
        write_profile(device, profile);
    }
    for (int i = 0; i < profile->event_count; i++) {
        (void)cudaEventDestroy(profile->calls[i].from);
        (void)cudaEventDestroy(profile->calls[i].to);
    }
    for (int i = 0; i < 2; i++) {
        if (profile->marks[i] != NULL) {
            (void)cudaEventDestroy(profile->marks[i]);
        }
    }
    cddpi_free(profile->path);
    cddpi_free(profile);
    device->profile = NULL;
}
