/* fiber.h - fibers: functions on their own stacks that can pause and resume. A fiber belongs to one
 * thread. Sanitizers are informed of every switch. */
#ifndef CDDP_TESTS_FIBER_H
#define CDDP_TESTS_FIBER_H

struct fiber;

/** Create an idle fiber. Ends the program if there is no memory. */
struct fiber *fiber_create(void);
void fiber_destroy(struct fiber *fiber);
/** Run @p function in @p fiber, which is new or has ended, until it ends or rests. */
void fiber_start(struct fiber *fiber, void (*function)(void *argument), void *argument);
/** Continue a resting fiber, until it ends or rests again. */
void fiber_resume(struct fiber *fiber);
/** Called inside a fiber: return to the caller that started or resumed it. */
void fiber_rest(struct fiber *fiber);
bool fiber_ended(const struct fiber *fiber);
/** The bounds of the fiber's stack. */
void fiber_stack(const struct fiber *fiber, const char **out_begin, const char **out_end);

#endif
