/* group_call.h - the fingerprint of a collective: what all ranks must have called alike, and the
 * words for it when they did not. Every transport compares calls by this. */
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

/** "all_reduce #12", as the program counts its calls; "all_reduce" if it is not one of them. */
void cddpi_op_title(const struct cddpi_group_op *op, char *out, size_t bytes);
/** Word that ranks called other collectives than @p op here, by @p text, which says what. */
cddp_status cddpi_call_mismatch(const struct cddpi_group_op *op, const char *text);

/* What rank @p rank called. */
typedef const struct cddpi_call *(*cddpi_call_fn)(const void *context, int rank);
/** Ranks that called the same are named together: "ranks 0, 2: barrier; rank 1: ..." @p names are
 *  what the @p size ranks are called; NULL: 0, 1 ... @p bytes is more than 200. */
void cddpi_call_describe_all(cddpi_call_fn call_of, const void *context, const int *names, int size,
                             char *out, size_t bytes);

#endif
