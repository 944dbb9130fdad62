/* bench_allreduce.c - latency and bandwidth of blocking f32 all_reduce sums in place; one JSON
 * line.
 *
 *     bench_allreduce [ranks [min bytes [max bytes [memory [rounds]]]]]
 *
 * memory: "registered" (cddp_group_alloc), "malloc", or "huge": that of malloc in huge pages, if
 * the kernel has some. "fresh_us" is the median when every rank writes its whole buffer before each
 * call, as a backward pass does. (With small buffers, repeated calls on registered memory find each
 * rank's part in that rank's own cache.) Rank r is pinned to core r modulo the cores of this
 * process. With two ranks, a memory-bound reference is measured, too: each rank sums half of both
 * buffers into its own and copies the other half, with spinning barriers. */
#include "support/group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MAX_RANKS = 64, MAX_SIZES = 32, MAX_SAMPLES = 20000, SAMPLES_PER_ROUND = 500 };

struct row {
    size_t bytes;
    double med, min, max;
    double fresh;     /* median, us */
    double reference; /* median, us; 0: none */
};

struct shared {
    _Atomic int count;
    _Atomic int generation;
    struct row rows[MAX_SIZES];
    int row_count;
};

enum memory { REGISTERED, MALLOC, HUGE_PAGES, MEMORIES };

static const char *const memories[MEMORIES] = {"registered", "malloc", "huge"};

struct options {
    int ranks;
    size_t low, high;
    enum memory memory;
    int rounds;
};

static struct shared *shared;

static void spin_barrier(int ranks)
{
    int generation = atomic_load(&shared->generation);
    long spins = 0;

    if (atomic_fetch_add(&shared->count, 1) + 1 == ranks) {
        atomic_store(&shared->count, 0);
        atomic_store(&shared->generation, generation + 1);
        return;
    }
    while (atomic_load(&shared->generation) == generation) {
        if (++spins > 20000) {
            sched_yield();
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void pin(int rank)
{
    cpu_set_t all;
    cpu_set_t one;
    int wanted;

    sched_getaffinity(0, sizeof all, &all);
    wanted = rank % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &all) && wanted-- == 0) {
            CPU_SET(core, &one);
        }
    }
    sched_setaffinity(0, sizeof one, &one);
}

static void fill(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = 1;
    }
}

static int measure(cddp_group *group, float *data, size_t bytes, const struct options *options,
                   bool fresh, double *samples, int *out_count)
{
    int repeats = (int)((16u << 20) / bytes);
    int used = 0;

    repeats = repeats < 3 ? 3 : repeats > SAMPLES_PER_ROUND ? SAMPLES_PER_ROUND : repeats;
    for (int round = 0; round <= options->rounds; round++) {
        fill(data, bytes / 4);
        if (cddp_barrier(group, NULL) != CDDP_OK) {
            return 1;
        }
        for (int i = 0; i < repeats; i++) {
            int64_t start;
            int64_t taken;

            if (fresh) {
                fill(data, bytes / 4);
                if (cddp_barrier(group, NULL) != CDDP_OK) {
                    return 1;
                }
            }
            start = cddpi_now_ns();
            if (cddp_all_reduce(group, data, data, bytes / 4, CDDP_F32, CDDP_OP_SUM, NULL) !=
                CDDP_OK) {
                return 1;
            }
            taken = cddpi_now_ns() - start;
            for (size_t k = 0; fresh && k < bytes / 4; k += 1 + i % 7) {
                if (data[k] != (float)options->ranks) {
                    fprintf(stderr, "element %zu of %zu is wrong\n", k, bytes / 4);
                    return 1;
                }
            }
            if (round > 0 && used < MAX_SAMPLES) {
                samples[used++] = (double)taken / 1e3;
            }
        }
    }
    *out_count = used;
    return 0;
}

/* The buffers of both ranks are mapped by both. */
static double reference(int rank, float *mine, const float *theirs, size_t count)
{
    double samples[9];
    size_t half = count / 2;
    int repeats = (int)(2000000 / count);

    repeats = repeats < 1 ? 1 : repeats > 500 ? 500 : repeats;
    for (int sample = 0; sample < 9; sample++) {
        int64_t start;

        spin_barrier(2);
        start = cddpi_now_ns();
        for (int i = 0; i < repeats; i++) {
            float *a = mine + (size_t)rank * half;
            const float *b = theirs + (size_t)rank * half;
            size_t other = (size_t)(1 - rank) * half;

            spin_barrier(2);
            for (size_t k = 0; k < half; k++) {
                a[k] = (a[k] + b[k]) * 0.5F;
            }
            spin_barrier(2);
            memcpy(mine + other, theirs + other, half * 4);
        }
        spin_barrier(2);
        samples[sample] = (double)(cddpi_now_ns() - start) / 1e3 / repeats;
    }
    qsort(samples, 9, sizeof *samples, by_value);
    return samples[4];
}

/* NULL: no memory. */
static void *take_memory(cddp_group *group, const struct options *options)
{
    enum { HUGE_BYTES = 2 << 20 };
    void *data = NULL;

    if (options->memory == REGISTERED) {
        return cddp_group_alloc(group, options->high, 0, &data) == CDDP_OK ? data : NULL;
    }
    if (posix_memalign(&data, options->memory == MALLOC ? 64 : HUGE_BYTES, options->high) != 0) {
        return NULL;
    }
    if (options->memory == HUGE_PAGES) {
        (void)madvise(data, options->high, MADV_HUGEPAGE);
    }
    return data;
}

static int run_rank(const struct group_seed *seed, int rank, const struct options *options,
                    float **areas)
{
    double *samples = malloc(MAX_SAMPLES * sizeof *samples);
    cddp_group *group;
    void *data;
    int rows = 0;

    pin(rank);
    if (samples == NULL || group_from_seed(seed, rank, options->ranks, 60000, &group) != CDDP_OK) {
        goto fail;
    }
    data = take_memory(group, options);
    if (data == NULL) {
        goto fail;
    }
    fill(data, options->high / 4);
    if (areas != NULL) {
        fill(areas[rank], options->high / 4);
    }
    for (size_t bytes = options->low; bytes <= options->high && rows < MAX_SIZES; bytes *= 4) {
        struct row row = {bytes, 0, 0, 0, 0, 0};
        int count;

        if (measure(group, data, bytes, options, true, samples, &count) != 0) {
            goto fail;
        }
        qsort(samples, (size_t)count, sizeof *samples, by_value);
        row.fresh = samples[count / 2];
        if (measure(group, data, bytes, options, false, samples, &count) != 0) {
            goto fail;
        }
        qsort(samples, (size_t)count, sizeof *samples, by_value);
        row.med = samples[count / 2];
        row.min = samples[0];
        row.max = samples[count - 1];
        if (areas != NULL) {
            row.reference = reference(rank, areas[rank], areas[1 - rank], bytes / 4);
        }
        if (rank == 0) {
            shared->rows[rows] = row;
            shared->row_count = rows + 1;
        }
        rows++;
    }
    if (options->memory != REGISTERED) {
        free(data);
    }
    cddp_group_destroy(group);
    free(samples);
    return 0;

fail:
    fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
    return 1;
}

static void print(const struct options *options)
{
    printf("{\"bench\": \"allreduce\", \"ranks\": %d, \"memory\": \"%s\", \"rows\": [",
           options->ranks, memories[options->memory]);
    for (int i = 0; i < shared->row_count; i++) {
        const struct row *row = &shared->rows[i];

        printf("%s{\"bytes\": %zu, \"us\": {\"med\": %.3f, \"min\": %.3f, \"max\": %.3f}, "
               "\"algbw_GBs\": %.4f, \"fresh_us\": %.3f",
               i > 0 ? ", " : "", row->bytes, row->med, row->min, row->max,
               (double)row->bytes / row->med / 1e3, row->fresh);
        if (row->reference > 0) {
            printf(", \"reference_us\": %.3f, \"ratio\": %.3f", row->reference,
                   row->med / row->reference);
        }
        printf("}");
    }
    printf("]}\n");
}

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    struct options options = {2, 4096, 64u << 20, REGISTERED, 5};
    struct group_seed seed;
    float *areas[2] = {NULL, NULL};
    int failed = 0;

    options.ranks = argc > 1 ? atoi(argv[1]) : options.ranks;
    options.low = argc > 2 ? strtoull(argv[2], NULL, 0) : options.low;
    options.high = argc > 3 ? strtoull(argv[3], NULL, 0) : options.high;
    while (argc > 4 && options.memory < MEMORIES &&
           strcmp(argv[4], memories[options.memory]) != 0) {
        options.memory++;
    }
    options.rounds = argc > 5 ? atoi(argv[5]) : options.rounds;
    if (options.ranks < 1 || options.ranks > MAX_RANKS || options.low < 8 ||
        options.high < options.low || options.memory == MEMORIES) {
        fprintf(stderr,
                "usage: %s [ranks [min bytes [max bytes [registered|malloc|huge [rounds]]]]]\n",
                argv[0]);
        return 2;
    }
    shared = map_shared(sizeof *shared);
    if (options.ranks == 2) {
        areas[0] = map_shared(options.high);
        areas[1] = map_shared(options.high);
    }
    if (shared == NULL || group_seed_create(options.ranks, &seed) != CDDP_OK) {
        fprintf(stderr, "no shared memory: %s\n", cddp_last_error());
        return 1;
    }
    for (int rank = 0; rank < options.ranks; rank++) {
        if (fork() == 0) {
            _exit(run_rank(&seed, rank, &options, areas[1] != NULL ? areas : NULL));
        }
    }
    for (int rank = 0; rank < options.ranks; rank++) {
        int status;

        wait(&status);
        failed |= status != 0;
    }
    if (!failed) {
        print(&options);
    }
    return failed;
}
