/* fiber.cpp - switches between stacks: a few instructions on x86-64, ucontext elsewhere. */
#include "fake_cuda/fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifdef __x86_64__
/* Save the callee-saved registers on this stack, and continue where @p to was left. */
extern "C" void cddp_fiber_switch(void **from, void *to);
asm(".text\n"
    ".hidden cddp_fiber_switch\n"
    ".globl cddp_fiber_switch\n"
    ".type cddp_fiber_switch, @function\n"
    "cddp_fiber_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size cddp_fiber_switch, .-cddp_fiber_switch\n");
typedef void *context;
#else
#include <ucontext.h>
typedef ucontext_t context;
#endif

static const size_t STACK_BYTES = 128 * 1024;

struct fiber {
    char *stack; /* above a guard page */
    context here, caller;
    void (*function)(void *argument);
    void *argument;
    bool ended;
#ifdef FIBER_ASAN
    void *frames, *caller_frames;
    const void *caller_stack;
    size_t caller_bytes;
#endif
#ifdef FIBER_TSAN
    void *thread, *caller_thread;
#endif
};

static thread_local struct fiber *starting;

static size_t guard_bytes()
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

struct fiber *fiber_create(void)
{
    struct fiber *fiber = new struct fiber();
    void *memory = mmap(nullptr, guard_bytes() + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED || mprotect(memory, guard_bytes(), PROT_NONE) != 0) {
        perror("fiber: no stack");
        abort();
    }
    fiber->stack = static_cast<char *>(memory) + guard_bytes();
    fiber->ended = true;
#ifdef FIBER_TSAN
    fiber->thread = __tsan_create_fiber(0);
#endif
    return fiber;
}

void fiber_destroy(struct fiber *fiber)
{
#ifdef FIBER_TSAN
    __tsan_destroy_fiber(fiber->thread);
#endif
    munmap(fiber->stack - guard_bytes(), guard_bytes() + STACK_BYTES);
    delete fiber;
}

bool fiber_ended(const struct fiber *fiber)
{
    return fiber->ended;
}

void fiber_stack(const struct fiber *fiber, const char **out_begin, const char **out_end)
{
    *out_begin = fiber->stack;
    *out_end = fiber->stack + STACK_BYTES;
}

static void switch_stacks(context *from, context *to)
{
#ifdef __x86_64__
    cddp_fiber_switch(from, *to);
#else
    swapcontext(from, to);
#endif
}

static void enter_fiber(struct fiber *fiber)
{
#ifdef FIBER_TSAN
    fiber->caller_thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->thread, 0);
#endif
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&fiber->caller_frames, fiber->stack, STACK_BYTES);
#endif
    switch_stacks(&fiber->caller, &fiber->here);
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fiber->caller_frames, nullptr, nullptr);
#endif
}

static void leave_fiber(struct fiber *fiber)
{
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(fiber->caller_thread, 0);
#endif
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(fiber->ended ? nullptr : &fiber->frames, fiber->caller_stack,
                                   fiber->caller_bytes);
#endif
    switch_stacks(&fiber->here, &fiber->caller);
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(fiber->frames, &fiber->caller_stack, &fiber->caller_bytes);
#endif
}

static void run_fiber(struct fiber *fiber)
{
    fiber->function(fiber->argument);
    fiber->ended = true;
    leave_fiber(fiber);
}

/* The first function on a fiber's stack. It has no variables, since they would stay poisoned. */
[[noreturn]] __attribute__((no_sanitize("address"))) static void first_frame()
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &starting->caller_stack, &starting->caller_bytes);
#endif
    run_fiber(starting);
    abort(); /* not reached */
}

static void prepare(struct fiber *fiber)
{
#ifdef __x86_64__
    void **top = reinterpret_cast<void **>(fiber->stack + STACK_BYTES);

    top[-1] = nullptr; /* a return address of 0, as if first_frame() had no caller */
    top[-2] = reinterpret_cast<void *>(first_frame);
    for (int i = 3; i <= 8; i++) {
        top[-i] = nullptr; /* registers */
    }
    fiber->here = top - 8;
#else
    getcontext(&fiber->here);
    fiber->here.uc_stack.ss_sp = fiber->stack;
    fiber->here.uc_stack.ss_size = STACK_BYTES;
    fiber->here.uc_link = nullptr;
    makecontext(&fiber->here, first_frame, 0);
#endif
}

void fiber_start(struct fiber *fiber, void (*function)(void *argument), void *argument)
{
    fiber->function = function;
    fiber->argument = argument;
    fiber->ended = false;
    starting = fiber;
    prepare(fiber);
    enter_fiber(fiber);
}

void fiber_resume(struct fiber *fiber)
{
    enter_fiber(fiber);
}

void fiber_rest(struct fiber *fiber)
{
    leave_fiber(fiber);
}
