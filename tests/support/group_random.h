/* group_random.h - collectives drawn at random: kind, type, operation, size, memory and place in
 * it, and, between hosts, a link and a number of leaders as if they had been measured. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_RANDOM_H
#define CDDP_TESTS_SUPPORT_GROUP_RANDOM_H

#include "group/group.h"

/* In a rank of at most eight: do @p steps collectives, sometimes several at a time. Each must give
 * the bits of the reference, leave the rest of its input, and write nothing beside its output.
 * Returns 0, or prints what is wrong. @p draws: the same on all ranks, and not 0. */
int group_random(cddp_group *group, uint64_t draws, int steps);

#endif
