/* bench_cuda.h - bench_cuda's memory, and how one operation is measured and reported. */
#ifndef CDDP_TESTS_BENCH_BENCH_CUDA_H
#define CDDP_TESTS_BENCH_BENCH_CUDA_H

#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, RUNS = 15, WAIT_MS = 600000 };

static struct cddpi_device *cuda;
static const struct cddpi_cuda_kernels *k;

/* What depends on the size of it all. */
static struct size {
    int sequences, length, embed, heads, vocab, images, side;
    size_t arena_bytes, parameters;
    size_t ceiling_bytes, ceiling_rows;
} size = {32, 1024, 768, 12, 50304, 256, 224, (size_t)7 << 30, 124475904, (size_t)2 << 30, 8192};
static const struct size small = {2, 16, 32, 2, 64, 2, 32, (size_t)16 << 20, 5000, 64 << 10, 64};

static double copy_rate, product_rate; /* bytes and operations a second */

static inline void need(cddp_status status)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "bench_cuda: %s\n", cddp_last_error());
        exit(1);
    }
}

/* --- memory: two rings of small random numbers, of which only one is written to --- */

static struct ring {
    char *memory;
    size_t at;
} rings[2];
static int32_t *numbers; /* tokens, or classes */
static float *floats;    /* parameters, statistics, gradients of parameters */
static void *scratch;
static double *sums;
static struct cddpi_loss_totals *totals;

static inline void *take(struct ring *ring, size_t bytes)
{
    char *memory;

    bytes = (bytes + 255) / 256 * 256;
    if (bytes > size.arena_bytes) {
        fprintf(stderr, "bench_cuda: %zu bytes do not fit\n", bytes);
        exit(1);
    }
    ring->at = ring->at + bytes > size.arena_bytes ? 0 : ring->at;
    memory = ring->memory + ring->at;
    ring->at += bytes;
    return memory;
}

static inline void *in(size_t elements)
{
    return take(&rings[0], 2 * elements);
}

static inline void *out(size_t elements)
{
    return take(&rings[1], 2 * elements);
}

static inline void *device_memory(size_t bytes)
{
    void *memory;

    need(cuda->ops->alloc(cuda, bytes, "a benchmark's array", &memory));
    return memory;
}

/* bf16 of +- 2^-7 to 2^-6; two of them are such a float32. Cards are faster with zeros. */
static inline void fill(char *memory, size_t bytes)
{
    size_t piece = bytes < ((size_t)64 << 20) ? bytes : (size_t)64 << 20;
    uint16_t *host = malloc(piece);
    uint32_t state = 1;

    for (size_t i = 0; host != NULL && i < piece / 2; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3c00 | (state >> 16 & 0x80ff));
    }
    for (size_t at = 0; at < bytes; at += piece) {
        size_t part = bytes - at < piece ? bytes - at : piece;

        need(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, memory + at, host, part));
    }
    need(cuda->ops->finish(cuda, WAIT_MS));
    free(host);
}

static inline void prepare_memory(void)
{
    size_t count = (size_t)(size.sequences * size.length + size.images);
    int32_t least = size.vocab < 1000 ? size.vocab : 1000;
    int32_t *host = malloc(count * sizeof *host);
    uint32_t state = 7;

    for (int i = 0; i < 2; i++) {
        rings[i].memory = device_memory(size.arena_bytes);
        fill(rings[i].memory, size.arena_bytes);
    }
    for (size_t i = 0; host != NULL && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (int32_t)(state >> 8) % least;
    }
    numbers = device_memory(count * sizeof *host);
    need(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, numbers, host, count * sizeof *host));
    need(cuda->ops->finish(cuda, WAIT_MS));
    free(host);
    floats = device_memory(8 * (size_t)size.vocab * (size_t)size.embed);
    fill((char *)floats, 8 * (size_t)size.vocab * (size_t)size.embed);
    sums = device_memory(128 * sizeof *sums);
    totals = device_memory(sizeof *totals);
}

/* --- one operation --- */

struct job {
    const char *op;
    cddp_status (*work)(const struct job *job);
    enum cddpi_stream stream; /* into which it puts its work */
    double bytes, flops;      /* the one that counts; the other is 0 */
    char shape[80];
    size_t rows, columns;
    union {
        struct cddpi_cuda_linear linear;
        struct cddpi_cuda_attention attention;
        struct cddpi_cuda_conv conv;
        struct cddpi_cuda_pool pool;
        struct cddpi_cuda_norm norm;
    } as;
    const struct cddpi_cuda_tensors *tensors;
};

static inline int by_size(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

static inline cddp_status measure(const struct job *job, double *out_seconds)
{
    struct cddpi_event *events[RUNS + 1];
    float ms[RUNS];
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < WARM; i++) {
        status = job->work(job);
    }
    if (status != CDDP_OK) {
        return status;
    }
    need(cuda->ops->finish(cuda, WAIT_MS));
    for (int i = 0; i <= RUNS; i++) {
        need(cuda->ops->event_create(cuda, true, &events[i]));
    }
    need(cuda->ops->record(cuda, events[0], job->stream));
    for (int i = 0; i < RUNS; i++) {
        need(job->work(job));
        need(cuda->ops->record(cuda, events[i + 1], job->stream));
    }
    need(cuda->ops->finish(cuda, WAIT_MS));
    for (int i = 0; i < RUNS; i++) {
        need(cuda->ops->elapsed(cuda, events[i], events[i + 1], &ms[i]));
    }
    for (int i = 0; i <= RUNS; i++) {
        cuda->ops->event_destroy(cuda, events[i]);
    }
    qsort(ms, RUNS, sizeof ms[0], by_size);
    *out_seconds = (double)fmaxf(ms[RUNS / 2], 1e-6f) / 1000;
    return CDDP_OK;
}

/* An operation that is not there, or fails, does not end the others. Returns its rate. */
static inline double run(const struct job *job)
{
    double seconds = 0;
    double rate;
    double ceiling = job->flops > 0 ? product_rate : copy_rate;

    printf("{\"op\":\"%s\",\"shape\":\"%s\",\"type\":\"bf16\",", job->op, job->shape);
    if (measure(job, &seconds) != CDDP_OK) {
        const char *text = cddp_last_error();

        printf("\"failed\":\"");
        for (; *text != '\0'; text++) {
            putchar(*text == '"' || *text == '\\' || *text < ' ' ? '\'' : *text);
        }
        printf("\"}\n");
        return 0;
    }
    rate = (job->flops > 0 ? job->flops : job->bytes) / seconds;
    printf("\"us\":%.2f,\"%s\":%.4g", 1e6 * seconds, job->flops > 0 ? "tflops" : "gbs",
           rate / (job->flops > 0 ? 1e12 : 1e9));
    if (ceiling > 0) {
        printf(",\"of_ceiling\":%.4f", rate / ceiling);
    }
    printf("}\n");
    fflush(stdout);
    return rate;
}

#endif
