/* fiber.h - functions that can be left in the middle and taken up again, on stacks of their own.
 * One thread owns a fiber. Sanitizers are told of every switch. */
#ifndef CDDP_TESTS_FIBER_H
#define CDDP_TESTS_FIBER_H

struct fiber;

/** A fiber that does nothing yet; ends the program if there is no memory. */
struct fiber *fiber_create(void);
void fiber_destroy(struct fiber *fiber);
/** Let @p fiber, which is fresh or has ended, run @p function until it ends or rests. */
void fiber_start(struct fiber *fiber, void (*function)(void *argument), void *argument);
/** Let a fiber that rests go on, until it ends or rests again. */
void fiber_resume(struct fiber *fiber);
/** Called by what runs in a fiber: back to whoever started or resumed it. */
void fiber_rest(struct fiber *fiber);
bool fiber_ended(const struct fiber *fiber);
/** Where its stack lies. */
void fiber_stack(const struct fiber *fiber, const char **out_begin, const char **out_end);

#endif
