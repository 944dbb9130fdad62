/* arena.c - places buffers in the arena: the largest first, each at the lowest offset where it
 * overlaps no other buffer that is alive at the same time. */
#include "nn/plan/arena.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t align(const struct cddpi_arena *arena, size_t bytes)
{
    return cddpi_align_to(bytes, arena->alignment > 0 ? arena->alignment : CDDPI_ALIGNMENT);
}

int cddpi_arena_add(struct cddpi_arena *arena, size_t bytes, int first, int last)
{
    if (arena->count == arena->capacity) {
        int capacity = arena->capacity > 0 ? 2 * arena->capacity : 64;
        void *grown = cddpi_realloc(arena->buffers, (size_t)capacity * sizeof *arena->buffers);

        if (grown == NULL) {
            return -1;
        }
        arena->buffers = grown;
        arena->capacity = capacity;
    }
    arena->buffers[arena->count] = (struct cddpi_arena_buffer){.bytes = align(arena, bytes),
                                                               .first = first,
                                                               .last = last,
                                                               .recomputed = -1,
                                                               .root = arena->count};
    return arena->count++;
}

int cddpi_arena_recomputed(struct cddpi_arena *arena, int buffer, int first, int last)
{
    int recomputed = cddpi_arena_add(arena, arena->buffers[buffer].bytes, first, last);

    if (recomputed >= 0) {
        arena->buffers[buffer].recomputed = recomputed;
    }
    return recomputed;
}

static struct cddpi_arena_buffer *root_of(const struct cddpi_arena *arena, int buffer)
{
    while (arena->buffers[buffer].root != buffer) {
        buffer = arena->buffers[buffer].root;
    }
    return &arena->buffers[buffer];
}

const struct cddpi_arena_buffer *cddpi_arena_root(const struct cddpi_arena *arena, int buffer)
{
    return root_of(arena, buffer);
}

void cddpi_arena_extend(struct cddpi_arena *arena, int buffer, int last)
{
    struct cddpi_arena_buffer *root = root_of(arena, buffer);

    root->last = last > root->last ? last : root->last;
}

void cddpi_arena_view(struct cddpi_arena *arena, int buffer, int base)
{
    struct cddpi_arena_buffer *from = root_of(arena, buffer);
    struct cddpi_arena_buffer *to = root_of(arena, base);

    if (from == to) {
        return;
    }
    from->root = to->root;
    to->last = from->last > to->last ? from->last : to->last;
    to->first = from->first < to->first ? from->first : to->first;
}

bool cddpi_arena_replace(struct cddpi_arena *arena, int buffer, int base, int time)
{
    const struct cddpi_arena_buffer *to = root_of(arena, base);

    if (to->last > time || to->bytes < arena->buffers[buffer].bytes) {
        return false;
    }
    cddpi_arena_view(arena, buffer, base);
    return true;
}

static bool alive_together(const struct cddpi_arena_buffer *a, const struct cddpi_arena_buffer *b)
{
    return a->region == b->region && a->first <= b->last && b->first <= a->last;
}

/* qsort() has no context: the order is sorted as pairs */
struct order {
    size_t bytes;
    int buffer;
};

static int larger_first(const void *left, const void *right)
{
    const struct order *a = left;
    const struct order *b = right;

    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return a->buffer < b->buffer ? -1 : 1;
}

/* The lowest offset for @p buffer that avoids the buffers already placed. When one overlaps, the
 * search continues after its end, so there are at most as many rounds as buffers. */
static size_t lowest_offset(const struct cddpi_arena *arena, const struct order *placed,
                            size_t placed_count, const struct cddpi_arena_buffer *buffer)
{
    size_t offset = 0;
    bool moved;

    do {
        moved = false;
        for (size_t i = 0; i < placed_count; i++) {
            const struct cddpi_arena_buffer *other = &arena->buffers[placed[i].buffer];

            if (alive_together(buffer, other) && offset < other->offset + other->bytes &&
                other->offset < offset + buffer->bytes) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    } while (moved);
    return offset;
}

cddp_status cddpi_arena_place(struct cddpi_arena *arena)
{
    struct order *order = cddpi_zalloc_array((size_t)arena->count + 1, sizeof *order);
    size_t roots = 0;

    CDDPI_TRY_MEMORY(order != NULL, "model: no memory to plan %d buffers", arena->count);
    for (int i = 0; i < arena->count; i++) {
        if (arena->buffers[i].root == i) {
            order[roots++] = (struct order){arena->buffers[i].bytes, i};
        }
    }
    qsort(order, roots, sizeof *order, larger_first);
    memset(arena->bytes, 0, sizeof arena->bytes);
    for (size_t i = 0; i < roots; i++) {
        struct cddpi_arena_buffer *buffer = &arena->buffers[order[i].buffer];
        size_t *bytes = &arena->bytes[buffer->region];
        size_t end;

        buffer->offset = lowest_offset(arena, order, i, buffer);
        end = buffer->offset + buffer->bytes;
        *bytes = end > *bytes ? end : *bytes;
    }
    for (int i = 0; i < arena->count; i++) {
        arena->buffers[i].offset = root_of(arena, i)->offset;
        arena->buffers[i].region = root_of(arena, i)->region;
    }
    cddpi_free(order);
    return CDDP_OK;
}

size_t cddpi_arena_total(const struct cddpi_arena *arena)
{
    size_t total = 0;

    for (int r = 0; r < CDDPI_REGIONS; r++) {
        total += arena->bytes[r];
    }
    return total;
}

void cddpi_arena_fini(struct cddpi_arena *arena)
{
    cddpi_free(arena->buffers);
    *arena = (struct cddpi_arena){0};
}
