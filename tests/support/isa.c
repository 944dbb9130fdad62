/* isa.c - what isa.h declares. A process uses one instruction set, so each has its own process and
 * an arena in memory that is shared with the test. */
#include "support/isa.h"

#include "support/test.h"

#include <sys/mman.h>

enum { ARENA_BYTES = 128 << 20, MOST_PARTS = 8192, GAP = 16 };

struct isa_arena {
    size_t used;
    int count;
    struct {
        const char *name;
        size_t begin, bytes;
    } parts[MOST_PARTS];
    _Alignas(64) unsigned char data[ARENA_BYTES];
};

struct isa_job {
    struct isa_arena *arena;
    const char *isa;
    void (*compute)(struct isa_arena *arena);
};

static uint64_t draw_state;

void *isa_take(struct isa_arena *arena, const char *name, size_t bytes)
{
    size_t begin = (arena->used + 63) / 64 * 64 + 8;

    if (begin + bytes + GAP > ARENA_BYTES || arena->count == MOST_PARTS) {
        fprintf(stderr, "%s: no room\n", name);
        exit(1);
    }
    arena->parts[arena->count].name = name;
    arena->parts[arena->count].begin = begin;
    arena->parts[arena->count++].bytes = bytes;
    arena->used = begin + bytes + GAP;
    return arena->data + begin;
}

float *isa_out(struct isa_arena *arena, const char *name, size_t count)
{
    return isa_take(arena, name, count * sizeof(float));
}

float *isa_copy(struct isa_arena *arena, const char *name, const float *from, size_t count)
{
    float *out = isa_out(arena, name, count);

    memcpy(out, from, count * sizeof *out);
    return out;
}

uint32_t isa_draw(void)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (uint32_t)(draw_state >> 20);
}

float isa_number(void)
{
    uint32_t bits = isa_draw();
    float value = (float)(int32_t)isa_draw() * 0x1p-31f;

    return bits % 11 == 0 ? (bits % 2 == 0 ? 0.0f : -0.0f) : value * (float)(1u << bits % 13);
}

float *isa_numbers(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);

    if (values == NULL) {
        fprintf(stderr, "no memory for %zu numbers\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = isa_number();
    }
    return values;
}

static int compute_rank(int rank, int world_size, void *argument)
{
    const struct isa_job *job = argument;

    (void)rank;
    (void)world_size;
    setenv("CDDP_MAX_ISA", job->isa, 1);
    draw_state = 88172645463325252u;
    job->compute(job->arena);
    return 0;
}

static struct isa_arena *arena_by(const char *isa, void (*compute)(struct isa_arena *arena))
{
    struct isa_arena *arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct isa_job job = {arena, isa, compute};

    assert_true(arena != MAP_FAILED);
    assert_int_equal(run_ranks(1, compute_rank, &job), 0);
    return arena;
}

static void check_gaps(const struct isa_arena *arena, const char *isa)
{
    static const unsigned char zeros[GAP];

    for (int i = 0; i < arena->count; i++) {
        const unsigned char *end = arena->data + arena->parts[i].begin + arena->parts[i].bytes;

        if (memcmp(end, zeros, GAP) != 0) {
            fail_msg("%s (part %d) by %s wrote behind its output", arena->parts[i].name, i, isa);
        }
    }
}

void isa_compare(void (*compute)(struct isa_arena *arena))
{
    static const char *const isas[] = {"generic", "avx2", "avx512"};
    struct isa_arena *first = arena_by(isas[0], compute);

    check_gaps(first, isas[0]);
    for (int k = 1; k < 3; k++) {
        struct isa_arena *other = arena_by(isas[k], compute);

        check_gaps(other, isas[k]);
        assert_int_equal(first->count, other->count);
        for (int i = 0; i < first->count; i++) {
            size_t begin = first->parts[i].begin;

            if (memcmp(first->data + begin, other->data + begin, first->parts[i].bytes) != 0) {
                fail_msg("%s (part %d): other bits by %s", first->parts[i].name, i, isas[k]);
            }
        }
        munmap(other, sizeof *other);
    }
    munmap(first, sizeof *first);
}
