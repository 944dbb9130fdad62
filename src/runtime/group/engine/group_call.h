/* group_call.h - owns the fingerprint of a collective, which must be equal on all ranks, and the
 * error texts for when it differs. Every transport compares calls by it. */
#ifndef CDDPI_GROUP_CALL_H
#define CDDPI_GROUP_CALL_H

#include "group/group.h"

struct cddpi_call {
    uint8_t kind, type, op, weighted;
    int32_t root;
    uint64_t count;
};

/** The fingerprint of @p op. */
struct cddpi_call cddpi_call_of(const struct cddpi_group_op *op);
bool cddpi_call_same(const struct cddpi_call *a, const struct cddpi_call *b);
/** "all_reduce sum f32 x 100" */
void cddpi_call_describe(const struct cddpi_call *call, char *out, size_t bytes);

/** "all_reduce #12", where 12 counts the program's own calls; "all_reduce" if the program did not
 *  call it. */
void cddpi_op_title(const struct cddpi_group_op *op, char *out, size_t bytes);
/** Fail with CDDP_ERR_MISMATCH: other ranks called other collectives than @p op. @p text says what
 *  they called. */
cddp_status cddpi_call_mismatch(const struct cddpi_group_op *op, const char *text);

/* What rank @p rank called. */
typedef const struct cddpi_call *(*cddpi_call_fn)(const void *context, int rank);
/** Describe all ranks' calls, grouping ranks with equal calls: "ranks 0, 2: barrier; rank 1: ..."
 *  @p names has the numbers to print for the @p size ranks; NULL: 0, 1 ... @p bytes must exceed
 *  200. */
void cddpi_call_describe_all(cddpi_call_fn call_of, const void *context, const int *names, int size,
                             char *out, size_t bytes);

#endif
