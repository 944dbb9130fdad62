/* isa.h - runs kernels once for each instruction set that CDDP_MAX_ISA can allow, each in a process
 * of its own, and compares the bits of what they have computed. */
#ifndef CDDP_TESTS_SUPPORT_ISA_H
#define CDDP_TESTS_SUPPORT_ISA_H

#include <stddef.h>
#include <stdint.h>

/* What one process has computed: parts one after another. */
struct isa_arena;

/* Memory for a part, zeros, not aligned to vectors. There is a gap behind it, which must stay as it
 * is. @p name: a string constant. */
void *isa_take(struct isa_arena *arena, const char *name, size_t bytes);
/* The same for floats, and for floats that begin as @p from. */
float *isa_out(struct isa_arena *arena, const char *name, size_t count);
float *isa_copy(struct isa_arena *arena, const char *name, const float *from, size_t count);

/* Numbers drawn alike in each process: of many sizes, and zeros of both signs. */
uint32_t isa_draw(void);
float isa_number(void);
/* Release with free(). */
float *isa_numbers(size_t count);

/* Let @p compute make its parts with each instruction set, and compare them. */
void isa_compare(void (*compute)(struct isa_arena *arena));

#endif
