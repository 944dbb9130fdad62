/* watch.cpp - owns the race detector: which thread of a launch has accessed which memory, and
 * whether CUDA orders that access before those of other threads.
 *
 * A test runs a launch in only one of many orders of blocks and threads. So kernels are also
 * compiled with -fsanitize=thread, which calls a function at each load and store. These functions
 * are not the sanitizer's but those below. They know CUDA's rules: threads of a block are ordered
 * by __syncthreads(); lanes of a warp also by __syncwarp() of all lanes (not by shuffles and votes,
 * which guarantee nothing about memory); blocks of a launch by nothing. An access that breaks these
 * rules ends the program with a message, whatever the values were, and so does
 *   - a read of shared memory before a thread of the block has written it,
 *   - an address beyond the device's memory,
 *   - an address that is not aligned to the access's size (vectors of 16 bytes arrive here as their
 *     words: the undefined behaviour sanitizer checks those).
 * Atomics are not watched. Memory is watched in units of two bytes; accesses of single bytes are
 * not watched. */
#include "fake_cuda/cuda_on_cpu.h"

#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

/* The image of the module that this is linked into, and the start of its static variables. */
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char __bss_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
/* From the fake runtime, if it is linked: the block of device memory that contains @p at. */
bool fake_memory_range(const void *at, const char **out_begin, const char **out_end)
    __attribute__((weak));
}

namespace
{
using cuda_on_cpu::now;

/* The last accesses to a place: which thread wrote or read it, and whether other threads have also
 * read it since the threads last met. */
struct mark {
    uint32_t launch, block;
    uint16_t thread, barriers, syncs;
    bool threads, warps, blocks;
};

struct place {
    mark written, read;
};

enum { PAGE = 2048 }; /* places, of two bytes each */

struct page {
    place places[PAGE];
};

enum class space { own, image, shared, global };

/* A block of device memory; caches the last one found. */
struct range {
    const char *begin, *end;
};

std::unordered_map<uintptr_t, page *> pages;
uintptr_t last_number = ~(uintptr_t)0;
page *last_page;
range last_range;
uint32_t last_range_launch;

place &place_of(const char *at)
{
    uintptr_t number = (uintptr_t)at / 2 / PAGE;

    if (number != last_number) {
        page *&found = pages[number];

        if (found == nullptr) {
            found = static_cast<page *>(calloc(1, sizeof *found));
        }
        last_page = found;
        last_number = number;
    }
    return last_page->places[(uintptr_t)at / 2 % PAGE];
}

bool is_within(const char *at, const char *begin, const char *end)
{
    return at >= begin && at < end;
}

/* Whether the address is in device memory; always true without a fake runtime. */
bool is_there(const char *at, size_t bytes)
{
    if (fake_memory_range == nullptr) {
        return true;
    }
    if (last_range_launch != now.launch || !is_within(at, last_range.begin, last_range.end)) {
        last_range_launch = now.launch;
        if (!fake_memory_range(at, &last_range.begin, &last_range.end)) {
            last_range = {nullptr, nullptr};
            return false;
        }
    }
    return bytes <= (size_t)(last_range.end - at);
}

template <class T> bool is_of(const char *at, const T &variable)
{
    const char *begin = reinterpret_cast<const char *>(&variable);

    return is_within(at, begin, begin + sizeof variable);
}

/* Whether @p at is threadIdx or similar, which are static variables here but not shared memory. */
bool is_index(const char *at)
{
    return is_of(at, cuda_on_cpu::thread_index) || is_of(at, cuda_on_cpu::block_index) ||
           is_of(at, cuda_on_cpu::block_size) || is_of(at, cuda_on_cpu::grid_size);
}

space space_of(const char *at, size_t bytes, const char *what)
{
    if (is_within(at, now.stack_begin, now.stack_end) ||
        is_within(at, now.call_begin, now.call_end)) {
        return space::own;
    }
    if (is_within(at, now.shared_begin, now.shared_end)) {
        if (bytes > (size_t)(now.shared_end - at)) {
            cuda_on_cpu::refuse("%s %zu bytes beyond the end of shared memory", what, bytes);
        }
        return space::shared;
    }
    if (is_within(at, __ehdr_start, _end)) {
        return is_within(at, __bss_start, _end) && !is_index(at) ? space::shared : space::image;
    }
    if (!is_there(at, bytes)) {
        cuda_on_cpu::refuse("%s %zu bytes at %p, which is not the device's memory", what, bytes,
                            (const void *)at);
    }
    return space::global;
}

/* Whether CUDA orders @p mark's access before this thread's. */
bool is_ordered(const mark &mark, bool shared)
{
    bool same_warp = mark.thread / 32 == now.thread / 32 && !mark.warps;

    if (mark.launch != now.launch || (shared && mark.block != now.block)) {
        return true; /* another launch, or shared memory of another block */
    }
    if (mark.block != now.block || mark.blocks) {
        return false;
    }
    return mark.barriers != now.barriers || (mark.thread == now.thread && !mark.threads) ||
           (same_warp && mark.syncs != *now.syncs);
}

[[noreturn]] void refuse_race(const mark &mark, const char *what, const char *before, size_t bytes,
                              const char *at, bool shared)
{
    if (!shared && (mark.block != now.block || mark.blocks)) {
        cuda_on_cpu::refuse("%s %zu bytes at %p, which block %u%s %s in the same launch", what,
                            bytes, (const void *)at, mark.block, mark.blocks ? " and others" : "",
                            before);
    }
    cuda_on_cpu::refuse("%s %zu bytes of %s memory at %p, which thread %u%s %s, and nothing orders "
                        "the two",
                        what, bytes, shared ? "shared" : "global", (const void *)at, mark.thread,
                        mark.threads ? " and others" : "", before);
}

void write_place(place &place, const char *at, size_t bytes, bool shared)
{
    if (!is_ordered(place.written, shared)) {
        refuse_race(place.written, "writes", "wrote", bytes, at, shared);
    }
    if (!is_ordered(place.read, shared)) {
        refuse_race(place.read, "writes", "read", bytes, at, shared);
    }
    place.written = {now.launch, now.block, now.thread, now.barriers,
                     *now.syncs, false,     false,      false};
}

void read_place(place &place, const char *at, size_t bytes, bool shared)
{
    mark &read = place.read;
    mark mine = {now.launch, now.block, now.thread, now.barriers, *now.syncs, false, false, false};

    if (!is_ordered(place.written, shared)) {
        refuse_race(place.written, "reads", "wrote", bytes, at, shared);
    }
    if (shared && (place.written.launch != now.launch || place.written.block != now.block)) {
        cuda_on_cpu::refuse("reads %zu bytes of shared memory at %p, which nobody wrote", bytes,
                            (const void *)at);
    }
    if (read.launch == now.launch) {
        bool same_block = read.block == now.block;
        bool since = same_block && read.barriers == now.barriers;

        mine.blocks = !shared && (read.blocks || !same_block);
        mine.threads = since && (read.threads || read.thread != now.thread);
        mine.warps = since && (read.warps || read.thread / 32 != now.thread / 32);
    }
    read = mine;
}

void touch(const void *address, size_t bytes, bool writes)
{
    const char *at = static_cast<const char *>(address);
    space where;

    if (!cuda_on_cpu::running_here) {
        return; /* host code in a file of kernels */
    }
    where = space_of(at, bytes, writes ? "writes" : "reads");
    if (where == space::own || where == space::image || bytes == 1) {
        return;
    }
    for (size_t i = 0; i < bytes; i += 2) {
        if (writes) {
            write_place(place_of(at + i), at, bytes, where == space::shared);
        } else {
            read_place(place_of(at + i), at, bytes, where == space::shared);
        }
    }
}

void touch_aligned(const void *address, size_t bytes, bool writes)
{
    if (cuda_on_cpu::running_here && (uintptr_t)address % bytes != 0) {
        cuda_on_cpu::refuse("%zu bytes at %p: not aligned", bytes, address);
    }
    touch(address, bytes, writes);
}
} // namespace

/* The functions that -fsanitize=thread calls. */
#define EXPORT extern "C" __attribute__((visibility("default")))
#define ACCESS(bytes)                                                                              \
    EXPORT void __tsan_read##bytes(void *at);                                                      \
    EXPORT void __tsan_read##bytes(void *at)                                                       \
    {                                                                                              \
        touch_aligned(at, bytes, false);                                                           \
    }                                                                                              \
    EXPORT void __tsan_write##bytes(void *at);                                                     \
    EXPORT void __tsan_write##bytes(void *at)                                                      \
    {                                                                                              \
        touch_aligned(at, bytes, true);                                                            \
    }                                                                                              \
    EXPORT void __tsan_unaligned_read##bytes(void *at);                                            \
    EXPORT void __tsan_unaligned_read##bytes(void *at)                                             \
    {                                                                                              \
        touch(at, bytes, false);                                                                   \
    }                                                                                              \
    EXPORT void __tsan_unaligned_write##bytes(void *at);                                           \
    EXPORT void __tsan_unaligned_write##bytes(void *at)                                            \
    {                                                                                              \
        touch(at, bytes, true);                                                                    \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
EXPORT void __tsan_read_range(void *at, unsigned long bytes);
EXPORT void __tsan_read_range(void *at, unsigned long bytes)
{
    touch(at, bytes, false);
}
EXPORT void __tsan_write_range(void *at, unsigned long bytes);
EXPORT void __tsan_write_range(void *at, unsigned long bytes)
{
    touch(at, bytes, true);
}
EXPORT void __tsan_vptr_update(void **at, void *value);
EXPORT void __tsan_vptr_update(void **, void *)
{
}
EXPORT void __tsan_vptr_read(void **at);
EXPORT void __tsan_vptr_read(void **)
{
}
/* Newer compilers call this to copy small structures. */
EXPORT void *__tsan_memcpy(void *to, const void *from, unsigned long bytes);
EXPORT void *__tsan_memcpy(void *to, const void *from, unsigned long bytes)
{
    touch(from, bytes, false);
    touch(to, bytes, true);
    return std::memcpy(to, from, bytes);
}
EXPORT void *__tsan_memset(void *at, int value, unsigned long bytes);
EXPORT void *__tsan_memset(void *at, int value, unsigned long bytes)
{
    touch(at, bytes, true);
    return std::memset(at, value, bytes);
}
EXPORT void __tsan_func_entry(void *caller);
EXPORT void __tsan_func_entry(void *)
{
}
EXPORT void __tsan_func_exit(void);
EXPORT void __tsan_func_exit(void)
{
}
EXPORT void __tsan_init(void);
EXPORT void __tsan_init(void)
{
}
