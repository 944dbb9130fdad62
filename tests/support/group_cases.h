/* group_cases.h - shared by the tests of collectives: each number of ranks, registered and ordinary
 * buffers, and their contents. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_CASES_H
#define CDDP_TESTS_SUPPORT_GROUP_CASES_H

#include "support/group.h"
#include "support/group_reference.h"
#include "support/test.h"

#include <stdbool.h>

/* Data repeat after a prime number of elements: they are quick to produce, and no two pieces are
 * equal. */
enum { PIECE = SHM_CHUNK_BYTES, PERIOD = 8209 };

static const cddp_type types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16,
                                  CDDP_I32, CDDP_I64, CDDP_U8};

/* Run @p body at every number of ranks up to @p most, with or without the communication thread. */
void at_sizes_to(int most, rank_fn body, const char *threads);
void at_every_size(rank_fn body, const char *threads);
void *buffer(cddp_group *group, bool registered, size_t bytes);
void give_back(cddp_group *group, bool registered, void *memory);

/* Repeat the first @p period bytes of @p data until it has @p bytes. */
void repeat(void *data, size_t period, size_t bytes);
void fill_rank(void *data, int rank, size_t from, size_t count, cddp_type type);

/* Compare @p got with the reduction over all ranks, from element @p from on; only some elements if
 * there are many. */
int compare_reduced(const void *got, size_t from, size_t count, int n, cddp_type type, cddp_op op,
                    const double *weights);

#endif
