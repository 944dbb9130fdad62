/* cuda_on_cpu.cpp - runs a launch: blocks, threads, barriers, warps. */
#include "fake_cuda/cuda_on_cpu.h"

#include "fake_cuda/fiber.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

/* From the fake runtime, if it is linked (fake_cuda.h); otherwise launches run at once. */
extern "C" {
void fake_cuda_launch(cudaStream_t stream, void (*run)(void *closure), void *closure,
                      void (*drop)(void *closure)) __attribute__((weak));
/* In the module: whether this thread's device has loaded @p kernel. */
bool fake_cuda_has_loaded(const void *kernel) __attribute__((weak));
}
#pragma weak cudaGetLastError

namespace cuda_on_cpu
{
uint3 thread_index, block_index;
dim3 block_size, grid_size;

enum { WARP = 32, MAX_THREADS = 1024 };
static const size_t MAX_SHARED_BYTES = 48 * 1024;

enum class waiting { no, block, warp };

struct thread {
    uint3 index;
    struct fiber *fiber; /* set while the thread has begun and not ended */
    waiting waits;
    bool begun, ended;
    uint64_t word; /* what the thread brings to a meeting of its warp, and then the result */
    int source;
};

struct warp {
    unsigned ready; /* lanes that can continue */
    /* The meeting of lanes in progress; mask 0: none. */
    meeting kind;
    unsigned mask, present;
    uint16_t syncs; /* __syncwarp() of all lanes so far */
};

/* Fibers that are not in use. */
struct fiber_pool {
    std::vector<struct fiber *> free;

    ~fiber_pool()
    {
        for (struct fiber *fiber : free) {
            fiber_destroy(fiber);
        }
    }
    struct fiber *take()
    {
        if (free.empty()) {
            return fiber_create();
        }
        struct fiber *fiber = free.back();

        free.pop_back();
        return fiber;
    }
};

struct block {
    const call *what;
    std::vector<struct thread> threads;
    std::vector<struct warp> warps;
    std::vector<unsigned> order; /* of warps */
    struct thread *now;
    size_t ended, at_barrier;
    std::vector<uint64_t> shared; /* 16-byte aligned by operator new */
    struct fiber_pool fibers;
};

struct standing now;
thread_local bool running_here;

static std::mutex one_at_a_time;
static struct block block;
static uint64_t seed_now;
static bool seeded;
static uint64_t launch_count;
static size_t most_blocks; /* of a launch, since somebody asked */

/* SplitMix64 */
static uint64_t random_word()
{
    uint64_t z = seed_now += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void shuffle_order(std::vector<unsigned> &order)
{
    for (size_t i = order.size(); i > 1; i--) {
        std::swap(order[i - 1], order[random_word() % i]);
    }
}

void refuse(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "cuda_on_cpu: %s, block (%u, %u, %u)", block.what->shape.name, block_index.x,
            block_index.y, block_index.z);
    if (block.now != nullptr) {
        fprintf(stderr, ", thread (%u, %u, %u)", thread_index.x, thread_index.y, thread_index.z);
    }
    fputs(": ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

static size_t number_of(const struct thread *thread)
{
    return (size_t)(thread - block.threads.data());
}

int lane()
{
    return (int)(number_of(block.now) % WARP);
}

static struct warp &warp_of(const struct thread *thread)
{
    return block.warps[number_of(thread) / WARP];
}

static void rest(waiting reason)
{
    struct thread *self = block.now;

    self->waits = reason;
    warp_of(self).ready -= reason != waiting::no;
    fiber_rest(self->fiber);
}

void sync_block()
{
    if (block.ended > 0) {
        refuse("__syncthreads() when %zu threads of the block have left", block.ended);
    }
    if (++block.at_barrier < block.threads.size()) {
        rest(waiting::block);
        return;
    }
    block.at_barrier = 0;
    now.barriers++;
    for (struct thread &thread : block.threads) {
        warp_of(&thread).ready += thread.waits != waiting::no;
        thread.waits = waiting::no;
    }
    rest(waiting::no); /* the thread that arrives last need not continue first */
}

static const char *name_of(meeting kind)
{
    switch (kind) {
    case meeting::shuffle:
        return "a shuffle";
    case meeting::ballot:
        return "a ballot";
    default:
        return "__syncwarp()";
    }
}

/* All lanes have arrived: give each its result. */
static void conclude(struct warp &warp, struct thread *lanes, unsigned everyone)
{
    uint64_t words[WARP] = {0};
    uint64_t votes = 0;

    for (int i = 0; i < WARP; i++) {
        if ((warp.mask >> i & 1) != 0) {
            words[i] = lanes[i].word;
            votes |= (uint64_t)(lanes[i].word != 0) << i;
        }
    }
    for (int i = 0; i < WARP; i++) {
        if ((warp.mask >> i & 1) == 0) {
            continue;
        }
        if (warp.kind == meeting::shuffle) {
            if (lanes[i].source < 0 || lanes[i].source >= WARP ||
                (warp.mask >> lanes[i].source & 1) == 0) {
                refuse("lane %d reads lane %d, which takes no part in the shuffle (mask %08x)", i,
                       lanes[i].source, warp.mask);
            }
            lanes[i].word = words[lanes[i].source];
        } else {
            lanes[i].word = votes;
        }
        warp.ready += lanes[i].waits != waiting::no;
        lanes[i].waits = waiting::no;
    }
    warp.syncs += warp.kind == meeting::sync && warp.mask == everyone;
    warp.mask = warp.present = 0;
}

uint64_t meet(meeting kind, unsigned mask, uint64_t word, int source)
{
    struct thread *self = block.now;
    size_t first = number_of(self) / WARP * WARP;
    size_t there = std::min<size_t>(WARP, block.threads.size() - first);
    struct warp &warp = block.warps[first / WARP];
    unsigned existing = there == WARP ? 0xffffffffu : (1u << there) - 1;

    if ((mask >> lane() & 1) == 0 || (mask & ~existing) != 0) {
        refuse("%s with mask %08x in lane %d of a warp of %zu", name_of(kind), mask, lane(), there);
    }
    if (warp.mask != 0 && (warp.mask != mask || warp.kind != kind)) {
        refuse("%s with mask %08x, while other lanes of the warp are at %s with mask %08x",
               name_of(kind), mask, name_of(warp.kind), warp.mask);
    }
    warp.kind = kind;
    warp.mask = mask;
    warp.present |= 1u << lane();
    self->word = word;
    self->source = source;
    if (warp.present == mask) {
        conclude(warp, &block.threads[first], existing);
        return self->word;
    }
    rest(waiting::warp);
    return self->word;
}

void *dynamic_shared()
{
    return block.shared.data();
}

static void thread_body(void *argument)
{
    static_cast<const call *>(argument)->run();
}

static void run_thread(struct thread &thread)
{
    block.now = &thread;
    thread_index = thread.index;
    if (!thread.begun) {
        thread.fiber = block.fibers.take();
    }
    now.thread = (uint16_t)number_of(&thread);
    now.syncs = &warp_of(&thread).syncs;
    fiber_stack(thread.fiber, &now.stack_begin, &now.stack_end);
    running_here = true;
    if (!thread.begun) {
        thread.begun = true;
        fiber_start(thread.fiber, thread_body, const_cast<call *>(block.what));
    } else {
        fiber_resume(thread.fiber);
    }
    running_here = false;
    block.now = nullptr;
    if (fiber_ended(thread.fiber)) {
        thread.ended = true;
        warp_of(&thread).ready--;
        block.fibers.free.push_back(thread.fiber);
        block.ended++;
        if (block.at_barrier > 0) {
            refuse("a thread leaves while %zu others wait at __syncthreads()", block.at_barrier);
        }
    }
}

static void refuse_deadlock()
{
    size_t in_block = 0;
    size_t in_warp = 0;

    for (const struct thread &thread : block.threads) {
        in_block += !thread.ended && thread.waits == waiting::block;
        in_warp += !thread.ended && thread.waits == waiting::warp;
    }
    refuse(
        "no thread can go on: %zu wait at __syncthreads(), %zu for lanes of their warp, %zu have "
        "left",
        in_block, in_warp, block.ended);
}

static void prepare_block(uint3 index)
{
    size_t i = 0;

    block_index = index;
    now.block = index.x + grid_size.x * (index.y + grid_size.y * index.z);
    now.barriers = 0;
    block.ended = block.at_barrier = 0;
    for (unsigned z = 0; z < block_size.z; z++) {
        for (unsigned y = 0; y < block_size.y; y++) {
            for (unsigned x = 0; x < block_size.x; x++) {
                block.threads[i++] = {{x, y, z}, nullptr, waiting::no, false, false, 0, 0};
            }
        }
    }
    for (size_t w = 0; w < block.warps.size(); w++) {
        size_t lanes = std::min<size_t>(WARP, block.threads.size() - w * WARP);

        block.warps[w] = {(unsigned)lanes, meeting::sync, 0, 0, 0};
    }
    /* uninitialised shared memory: NaN */
    std::fill(block.shared.begin(), block.shared.end(), ~(uint64_t)0);
}

/* Run each lane of a warp that can continue once, in a random order. Returns whether there was
 * one. */
static bool sweep_warp(size_t first)
{
    if (block.warps[first / WARP].ready == 0) {
        return false;
    }

    size_t count = std::min<size_t>(WARP, block.threads.size() - first);
    size_t start = random_word() % count;
    size_t step = (random_word() & 1) != 0 ? 1 : count - 1;

    for (size_t i = 0; i < count; i++) {
        struct thread &thread = block.threads[first + (start + i * step) % count];

        if (!thread.ended && thread.waits == waiting::no) {
            run_thread(thread);
        }
    }
    return true;
}

/* Run the warps in a random order. Half of them run until none of their lanes can continue; the
 * others stop where their lanes first wait. */
static void run_block(uint3 index)
{
    prepare_block(index);
    while (block.ended < block.threads.size()) {
        bool progress = false;

        shuffle_order(block.order);
        for (unsigned warp : block.order) {
            bool ahead = (random_word() & 1) != 0;

            while (sweep_warp((size_t)warp * WARP)) {
                progress = true;
                if (!ahead) {
                    break;
                }
            }
        }
        if (!progress) {
            refuse_deadlock();
        }
    }
}

/* Counts how often each kernel has run, and writes the counts at exit if requested. */
static struct tally {
    const char *path = getenv("CDDP_FAKE_CUDA_KERNELS");
    std::map<std::string, uint64_t> runs;

    ~tally()
    {
        const char *rank = getenv("CDDP_RANK");
        std::string name = std::string(path != nullptr ? path : "") + "." +
                           (rank != nullptr ? rank : "0");
        FILE *file = path != nullptr ? fopen(name.c_str(), "we") : nullptr;

        if (file == nullptr) {
            return;
        }
        for (const auto &one : runs) {
            fprintf(file, "%s %llu\n", one.first.c_str(), (unsigned long long)one.second);
        }
        fclose(file);
    }
} tally;

static void run_launch(const call &what)
{
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const config &shape = what.shape;
    size_t threads = (size_t)shape.block.x * shape.block.y * shape.block.z;
    size_t blocks = (size_t)shape.grid.x * shape.grid.y * shape.grid.z;
    std::vector<unsigned> order(blocks);

    if (!seeded) {
        const char *text = getenv("CDDP_FAKE_CUDA_SEED");

        seed_now = text != nullptr ? strtoull(text, nullptr, 10) : 1;
        seeded = true;
    }
    launch_count++;
    most_blocks = blocks > most_blocks ? blocks : most_blocks;
    if (tally.path != nullptr) {
        tally.runs[shape.name]++;
    }
    block.what = &what;
    block.threads.resize(threads);
    block.warps.resize((threads + WARP - 1) / WARP);
    block.order.resize(block.warps.size());
    std::iota(block.order.begin(), block.order.end(), 0u);
    std::vector<uint64_t>((shape.shared_bytes + 7) / 8).swap(block.shared);
    now.launch = (uint32_t)launch_count;
    now.call_begin = reinterpret_cast<const char *>(&what);
    now.call_end = now.call_begin + what.bytes;
    now.shared_begin = reinterpret_cast<const char *>(block.shared.data());
    now.shared_end = now.shared_begin + shape.shared_bytes;
    block_size = shape.block;
    grid_size = shape.grid;
    std::iota(order.begin(), order.end(), 0u);
    shuffle_order(order);
    for (unsigned i : order) {
        run_block({i % grid_size.x, i / grid_size.x % grid_size.y, i / grid_size.x / grid_size.y});
    }
}

static void run_closure(void *closure)
{
    run_launch(*static_cast<call *>(closure));
}

static void drop_closure(void *closure)
{
    delete static_cast<call *>(closure);
}

static cudaError_t check(const config &shape)
{
    size_t threads = (size_t)shape.block.x * shape.block.y * shape.block.z;
    size_t blocks = (size_t)shape.grid.x * shape.grid.y * shape.grid.z;

    if (threads == 0 || threads > MAX_THREADS || shape.block.z > 64 || blocks == 0 ||
        shape.grid.x > 0x7fffffff || shape.grid.y > 65535 || shape.grid.z > 65535) {
        return cudaErrorInvalidConfiguration;
    }
    return shape.shared_bytes > MAX_SHARED_BYTES ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t queue(call *what, cudaStream_t stream)
{
    cudaError_t error = check(what->shape);

    if (error != cudaSuccess) {
        drop_closure(what);
        return error;
    }
    if (fake_cuda_has_loaded != nullptr && !fake_cuda_has_loaded(what->shape.kernel)) {
        fprintf(stderr, "cuda_on_cpu: %s was not loaded when the device was opened: its first launch "
                        "may wait for all that is under way\n", what->shape.name);
        abort();
    }
    if (fake_cuda_launch != nullptr) {
        fake_cuda_launch(stream, run_closure, what, drop_closure);
        return cudaGetLastError != nullptr ? cudaGetLastError() : cudaSuccess;
    }
    run_closure(what);
    drop_closure(what);
    return cudaSuccess;
}
} // namespace cuda_on_cpu

extern "C" void cuda_on_cpu_seed(uint64_t seed)
{
    const std::lock_guard<std::mutex> lock(cuda_on_cpu::one_at_a_time);

    cuda_on_cpu::seed_now = seed;
    cuda_on_cpu::seeded = true;
}

extern "C" __attribute__((visibility("default"))) size_t fake_cuda_most_blocks(void)
{
    const std::lock_guard<std::mutex> lock(cuda_on_cpu::one_at_a_time);
    size_t most = cuda_on_cpu::most_blocks;

    cuda_on_cpu::most_blocks = 0;
    return most;
}

extern "C" uint64_t cuda_on_cpu_launches(void)
{
    const std::lock_guard<std::mutex> lock(cuda_on_cpu::one_at_a_time);

    return cuda_on_cpu::launch_count;
}
