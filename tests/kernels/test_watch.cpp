/* test_watch.cpp - the race detector (fake_cuda/watch.cpp) ends kernels that break CUDA's rules
 * with a message, whatever they computed, and lets others run. */
#include "fake_cuda/cuda_on_cpu.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

enum { THREADS = 64, BLOCKS = 3 };

/* All the memory of a device that these kernels have; not a static array, which shared memory is.
 */
enum { ELEMENTS = 1024, FIRST = 256 };
static float *const memory = static_cast<float *>(calloc(ELEMENTS, sizeof(float)));

extern "C" bool fake_memory_range(const void *at, const char **out_begin, const char **out_end);
extern "C" __attribute__((no_sanitize("thread"))) bool
fake_memory_range(const void *at, const char **out_begin, const char **out_end)
{
    *out_begin = reinterpret_cast<const char *>(memory);
    *out_end = *out_begin + ELEMENTS * sizeof(float);
    return at >= *out_begin && at < *out_end;
}

typedef void (*kernel_fn)(float *out);

/* What the kernel says at its end on stderr; "": nothing, it ended well. */
static const char *said_by(kernel_fn kernel)
{
    static char text[1000];
    size_t used = 0;
    ssize_t got;
    int ends[2];
    int status;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    fflush(nullptr);
    child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        _exit(CDDPI_START(kernel, BLOCKS, THREADS, THREADS * sizeof(float), nullptr,
                           memory + FIRST) != cudaSuccess);
    }
    close(ends[1]);
    while ((got = read(ends[0], text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WIFEXITED(status) && WEXITSTATUS(status) == 0, used == 0);
    return text;
}

static void assert_says(kernel_fn kernel, const char *words)
{
    const char *said = said_by(kernel);

    if (std::strstr(said, words) == nullptr) {
        fail_msg("said \"%s\", not \"%s\"", said, words);
    }
}

static unsigned place()
{
    return blockIdx.x * THREADS + threadIdx.x;
}

/* --- against the rules --- */

static void reads_before_the_threads_met(float *out)
{
    __shared__ float numbers[THREADS];

    numbers[threadIdx.x] = 1;
    out[place()] = numbers[(threadIdx.x + 1) % THREADS];
}

static void writes_again_before_all_have_read(float *out)
{
    CDDPI_DYNAMIC_SHARED(float, numbers);

    for (int i = 0; i < 2; i++) {
        numbers[threadIdx.x] = (float)i;
        __syncthreads();
        out[place()] = numbers[THREADS - 1 - threadIdx.x];
    }
}

static void takes_a_shuffle_for_a_barrier(float *out)
{
    __shared__ float numbers[THREADS];

    numbers[threadIdx.x] = 1;
    out[place()] = __shfl_sync(0xffffffffu, 1.0f, 0);
    out[place()] = numbers[threadIdx.x ^ 1];
}

static void takes_a_warp_for_the_block(float *out)
{
    __shared__ float numbers[THREADS];

    numbers[threadIdx.x] = 1;
    __syncwarp();
    out[place()] = numbers[(threadIdx.x + 32) % THREADS];
}

static void every_block_writes_one_place(float *out)
{
    if (threadIdx.x == 0) {
        out[0] = 1;
    }
}

static void reads_what_another_block_writes(float *out)
{
    out[place()] = out[(place() + THREADS) % (BLOCKS * THREADS)];
}

static void reads_shared_memory_of_nobody(float *out)
{
    CDDPI_DYNAMIC_SHARED(float, numbers);

    if (threadIdx.x < THREADS / 2) {
        numbers[threadIdx.x] = 0;
    }
    __syncthreads();
    out[place()] = numbers[threadIdx.x];
}

static void writes_beyond_the_end(float *out)
{
    out[place() + ELEMENTS - FIRST - BLOCKS * THREADS + 1] = 0;
}

static void loads_eight_bytes_from_an_odd_place(float *out)
{
    out[place()] = (float)*reinterpret_cast<const double *>(out + BLOCKS * THREADS + 1);
}

static void what_is_against_the_rules_is_said(void **state)
{
    (void)state;
    assert_says(reads_before_the_threads_met, "of shared memory");
    assert_says(writes_again_before_all_have_read, "nothing orders the two");
    assert_says(takes_a_shuffle_for_a_barrier, "nothing orders the two");
    assert_says(takes_a_warp_for_the_block, "of shared memory");
    assert_says(every_block_writes_one_place, "wrote in the same launch");
    assert_says(reads_what_another_block_writes, "in the same launch");
    assert_says(reads_shared_memory_of_nobody, "which nobody wrote");
    assert_says(writes_beyond_the_end, "which is not the device's memory");
    assert_says(loads_eight_bytes_from_an_odd_place, "not aligned");
}

/* --- by the rules --- */

static void sums_with_barriers(float *out)
{
    CDDPI_DYNAMIC_SHARED(float, numbers);

    for (int i = 0; i < 3; i++) {
        numbers[threadIdx.x] = (float)i;
        for (unsigned half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) {
                numbers[threadIdx.x] += numbers[threadIdx.x + half];
            }
        }
        out[place()] = threadIdx.x == 0 ? numbers[0] : 0;
        __syncthreads();
    }
}

static void exchanges_within_warps(float *out)
{
    __shared__ float numbers[THREADS];

    numbers[threadIdx.x] = 1;
    __syncwarp();
    out[place()] = numbers[threadIdx.x ^ 1];
    __syncwarp();
    numbers[threadIdx.x ^ 1] = 2;
    out[place()] += numbers[threadIdx.x ^ 1];
}

static void works_in_place_and_counts(float *out)
{
    out[place()] = out[place()] + 1;
    atomicAdd(reinterpret_cast<unsigned *>(out + BLOCKS * THREADS), 1u);
}

static void reads_what_all_read(float *out)
{
    out[place()] = out[BLOCKS * THREADS];
}

static void what_keeps_to_the_rules_goes_on(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        cuda_on_cpu_seed(seed);
        assert_string_equal(said_by(sums_with_barriers), "");
        assert_string_equal(said_by(exchanges_within_warps), "");
        assert_string_equal(said_by(works_in_place_and_counts), "");
        assert_string_equal(said_by(reads_what_all_read), "");
    }
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_against_the_rules_is_said),
        cmocka_unit_test(what_keeps_to_the_rules_goes_on),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
