/* memory.c - owns the placing of buffers: the largest first, each at the lowest offset where it
 * meets no other that is alive at the same time. */
#include "nn/memory.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>

static size_t align(const struct cddpi_memory *memory, size_t bytes)
{
    size_t alignment = memory->alignment > 0 ? memory->alignment : CDDPI_ALIGNMENT;

    return (bytes + alignment - 1) / alignment * alignment;
}

int cddpi_memory_add(struct cddpi_memory *memory, size_t bytes, int first, int last)
{
    if (memory->count == memory->capacity) {
        int capacity = memory->capacity > 0 ? 2 * memory->capacity : 64;
        void *grown = cddpi_realloc(memory->buffers, (size_t)capacity * sizeof *memory->buffers);

        if (grown == NULL) {
            return -1;
        }
        memory->buffers = grown;
        memory->capacity = capacity;
    }
    memory->buffers[memory->count] = (struct cddpi_buffer){.bytes = align(memory, bytes),
                                                           .first = first,
                                                           .last = last,
                                                           .again = -1,
                                                           .root = memory->count};
    return memory->count++;
}

int cddpi_memory_again(struct cddpi_memory *memory, int buffer, int first, int last)
{
    int again = cddpi_memory_add(memory, memory->buffers[buffer].bytes, first, last);

    if (again >= 0) {
        memory->buffers[buffer].again = again;
    }
    return again;
}

static struct cddpi_buffer *root_of(const struct cddpi_memory *memory, int buffer)
{
    while (memory->buffers[buffer].root != buffer) {
        buffer = memory->buffers[buffer].root;
    }
    return &memory->buffers[buffer];
}

const struct cddpi_buffer *cddpi_memory_root(const struct cddpi_memory *memory, int buffer)
{
    return root_of(memory, buffer);
}

void cddpi_memory_extend(struct cddpi_memory *memory, int buffer, int last)
{
    struct cddpi_buffer *root = root_of(memory, buffer);

    root->last = last > root->last ? last : root->last;
}

void cddpi_memory_view(struct cddpi_memory *memory, int buffer, int base)
{
    struct cddpi_buffer *from = root_of(memory, buffer);
    struct cddpi_buffer *to = root_of(memory, base);

    if (from == to) {
        return;
    }
    from->root = to->root;
    to->last = from->last > to->last ? from->last : to->last;
    to->first = from->first < to->first ? from->first : to->first;
}

bool cddpi_memory_replace(struct cddpi_memory *memory, int buffer, int base, int time)
{
    const struct cddpi_buffer *to = root_of(memory, base);

    if (to->last > time || to->bytes < memory->buffers[buffer].bytes) {
        return false;
    }
    cddpi_memory_view(memory, buffer, base);
    return true;
}

static bool alive_together(const struct cddpi_buffer *a, const struct cddpi_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
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

/* The lowest offset for @p buffer beside those already placed. Whenever one is in the way the
 * search goes on behind it, so it ends after as many rounds as there are buffers. */
static size_t lowest_offset(const struct cddpi_memory *memory, const struct order *placed,
                            size_t placed_count, const struct cddpi_buffer *buffer)
{
    size_t offset = 0;
    bool moved;

    do {
        moved = false;
        for (size_t i = 0; i < placed_count; i++) {
            const struct cddpi_buffer *other = &memory->buffers[placed[i].buffer];

            if (alive_together(buffer, other) && offset < other->offset + other->bytes &&
                other->offset < offset + buffer->bytes) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    } while (moved);
    return offset;
}

cddp_status cddpi_memory_place(struct cddpi_memory *memory)
{
    struct order *order = cddpi_zalloc_array((size_t)memory->count + 1, sizeof *order);
    size_t roots = 0;

    if (order == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to plan %d buffers", memory->count);
    }
    for (int i = 0; i < memory->count; i++) {
        if (memory->buffers[i].root == i) {
            order[roots++] = (struct order){memory->buffers[i].bytes, i};
        }
    }
    qsort(order, roots, sizeof *order, larger_first);
    memory->bytes = 0;
    for (size_t i = 0; i < roots; i++) {
        struct cddpi_buffer *buffer = &memory->buffers[order[i].buffer];
        size_t end;

        buffer->offset = lowest_offset(memory, order, i, buffer);
        end = buffer->offset + buffer->bytes;
        memory->bytes = end > memory->bytes ? end : memory->bytes;
    }
    for (int i = 0; i < memory->count; i++) {
        memory->buffers[i].offset = root_of(memory, i)->offset;
    }
    cddpi_free(order);
    return CDDP_OK;
}

bool cddpi_memory_valid(const struct cddpi_memory *memory)
{
    for (int i = 0; i < memory->count; i++) {
        const struct cddpi_buffer *a = &memory->buffers[i];

        if (a->offset % CDDPI_ALIGNMENT != 0 || a->offset + a->bytes > memory->bytes) {
            return false;
        }
        for (int j = 0; j < i; j++) {
            const struct cddpi_buffer *b = &memory->buffers[j];

            if (a->root == i && b->root == j && alive_together(a, b) &&
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes) {
                return false;
            }
        }
    }
    return true;
}

size_t cddpi_memory_sum(const struct cddpi_memory *memory)
{
    size_t sum = 0;

    for (int i = 0; i < memory->count; i++) {
        sum += memory->buffers[i].bytes;
    }
    return sum;
}

void cddpi_memory_fini(struct cddpi_memory *memory)
{
    cddpi_free(memory->buffers);
    *memory = (struct cddpi_memory){0};
}
