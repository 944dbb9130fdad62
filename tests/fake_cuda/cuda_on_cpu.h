/* cuda_on_cpu.h - runs CUDA kernels on the CPU, for tests: the parts of CUDA C++ that kernels/cuda
 * uses, for a plain C++17 compiler. Include it before anything else (-include) in a file of
 * kernels.
 *
 * A launch runs its blocks one after the other in a random order, and the threads of a block as
 * fibers in an order that is also random and changes at every barrier. Both orders come from
 * $CDDP_FAKE_CUDA_SEED or cuda_on_cpu_seed(). So code that depends on an order that CUDA does not
 * guarantee gives other results with other seeds. Shared memory is ordinary memory, so that a
 * sanitizer detects accesses beyond it. Behaviour that CUDA leaves undefined ends the program with
 * a message: threads of a block or warp that wait at different barriers or have exited, shuffles
 * from lanes that do not take part, and, in kernels that are compiled for it, races (watch.cpp).
 *
 * Only one launch runs at a time in a process. */
#ifndef CDDP_TESTS_CUDA_ON_CPU_H
#define CDDP_TESTS_CUDA_ON_CPU_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>

/* gcc 12 misses the stores into arrays of vectors by an unrolled loop of one step. */
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define CDDPI_CUDA_ON_CPU 1
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#define CDDPI_UNROLL

#define CDDPI_START(kernel, grid, block, shared_bytes, stream, ...)                                \
    cuda_on_cpu::launch(#kernel, kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
#define CDDPI_DYNAMIC_SHARED(type, name)                                                           \
    type *name = static_cast<type *>(cuda_on_cpu::dynamic_shared())

/** Derive the orders of all following launches from @p seed. */
extern "C" void cuda_on_cpu_seed(uint64_t seed);
/** The number of launches so far, for tests. */
extern "C" uint64_t cuda_on_cpu_launches(void);

namespace cuda_on_cpu
{
/* Of the thread that is running. */
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;

struct config {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
};

/* A kernel with its arguments. */
struct call {
    config shape;
    size_t bytes; /* size of the whole object */
    virtual void run() const = 0;
    virtual ~call() = default;
};

/* Queue @p what, and take ownership. An invalid shape is an error here, as with CUDA. */
cudaError_t queue(call *what, cudaStream_t stream);
/* Report behaviour that CUDA leaves undefined: print a message and end the program. */
[[noreturn]] void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The thread that is running, for code that watches its accesses. */
struct standing {
    uint32_t launch, block; /* numbers; launches count from 1 */
    uint16_t thread;        /* index in its block */
    uint16_t barriers;      /* barriers that the block's threads have passed */
    const uint16_t *syncs;  /* number of __syncwarp() of all lanes that its warp has passed */
    const char *stack_begin, *stack_end;
    const char *call_begin, *call_end;     /* the call object with its arguments */
    const char *shared_begin, *shared_end; /* the launch's dynamic shared memory */
};
extern struct standing now;
/* Whether this host thread runs the launch; other host threads may queue launches meanwhile. */
extern thread_local bool running_here;
void *dynamic_shared();

template <class... P> struct call_of final : call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    template <class... A>
    call_of(void (*function)(P...), A &&...values) : kernel(function), arguments(values...)
    {
    }
    void run() const override
    {
        std::apply(kernel, arguments);
    }
};

template <class... P, class... A>
cudaError_t launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, A &&...arguments)
{
    auto *what = new call_of<P...>(kernel, arguments...);

    what->shape = {name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes};
    what->bytes = sizeof *what;
    return queue(what, stream);
}

/* Operations that the lanes of a warp do together. */
enum class meeting { shuffle, ballot, sync };
void sync_block();
/* Wait for the lanes in @p mask. Returns, for a shuffle, the word of lane @p source; for a ballot,
 * the lanes whose word is not 0. */
uint64_t meet(meeting kind, unsigned mask, uint64_t word, int source);
int lane();

template <class T> T shuffle(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of words");
    uint64_t word = 0;

    std::memcpy(&word, &value, sizeof value);
    word = meet(meeting::shuffle, mask, word, source);
    std::memcpy(&value, &word, sizeof value);
    return value;
}

template <class To, class From> To bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bits of the same number");
    To to;

    std::memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::thread_index)
#define blockIdx (cuda_on_cpu::block_index)
#define blockDim (cuda_on_cpu::block_size)
#define gridDim (cuda_on_cpu::grid_size)
static constexpr int warpSize = 32;

static inline void __syncthreads()
{
    cuda_on_cpu::sync_block();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cuda_on_cpu::meet(cuda_on_cpu::meeting::sync, mask, 0, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)cuda_on_cpu::meet(cuda_on_cpu::meeting::ballot, mask, predicate != 0, 0);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}
/* The source lane of a shuffle is within a group of @p width lanes. */
template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    int lane = cuda_on_cpu::lane();

    return cuda_on_cpu::shuffle(mask, value, lane / width * width + from % width);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    int lane = cuda_on_cpu::lane();
    int from = lane ^ lane_mask;

    return cuda_on_cpu::shuffle(mask, value, from / width > lane / width ? lane : from);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = cuda_on_cpu::lane();
    int from = lane + (int)delta;

    return cuda_on_cpu::shuffle(mask, value, from / width != lane / width ? lane : from);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = cuda_on_cpu::lane();
    int from = lane - (int)delta;

    return cuda_on_cpu::shuffle(mask, value, from < lane / width * width ? lane : from);
}

/* Atomics are plain accesses, since one thread runs at a time, and are not watched (watch.cpp).
 * They return the old value. */
#define CUDA_ON_CPU_ATOMIC __attribute__((noinline, no_sanitize("thread")))
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicAdd(T *at, V value)
{
    static_assert(!std::is_floating_point<T>::value, "sums of numbers must not depend on timing");
    T before = *at;

    *at = (T)(before + (T)value);
    return before;
}
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicMax(T *at, V value)
{
    T before = *at;

    *at = before < (T)value ? (T)value : before;
    return before;
}
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicMin(T *at, V value)
{
    T before = *at;

    *at = (T)value < before ? (T)value : before;
    return before;
}
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicOr(T *at, V value)
{
    T before = *at;

    *at = before | (T)value;
    return before;
}
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicExch(T *at, V value)
{
    T before = *at;

    *at = (T)value;
    return before;
}
template <class T, class V> CUDA_ON_CPU_ATOMIC static T atomicCAS(T *at, V expected, V value)
{
    T before = *at;

    *at = before == (T)expected ? (T)value : before;
    return before;
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

template <class T> static inline T __ldg(const T *at)
{
    return *at;
}
template <class T> static inline T __ldcs(const T *at)
{
    return *at;
}
template <class T> static inline void __stcs(T *at, T value)
{
    *at = value;
}

static inline float rsqrtf(float x)
{
    return 1 / std::sqrt(x);
}
static inline double rsqrt(double x)
{
    return 1 / std::sqrt(x);
}
/* macros, because the C library has private functions of these names */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float x, float y)
{
    return x / y;
}
/* Never contracted into a fused multiply-add, like all code here (-ffp-contract=off). */
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fsqrt_rn(float x)
{
    return std::sqrt(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __float_as_uint(float x)
{
    return cuda_on_cpu::bits<unsigned>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return cuda_on_cpu::bits<float>(x);
}
static inline int __float_as_int(float x)
{
    return cuda_on_cpu::bits<int>(x);
}
static inline float __int_as_float(int x)
{
    return cuda_on_cpu::bits<float>(x);
}

#endif
