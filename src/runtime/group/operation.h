/* operation.h - owns the struct of one group operation: its arguments and its progress. */
#ifndef CDDPI_GROUP_OPERATION_H
#define CDDPI_GROUP_OPERATION_H

#include "base/choices.h"

#include <cddp/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ALLOC is cddp_group_alloc(): `count` bytes; *(void **)out receives the address. REPLAY is that of
 * a captured graph: see group/device/group_device.h. */
#define CDDPI_KIND_MAP(X)                                                                          \
    X(CDDPI_BARRIER, "barrier")                                                                    \
    X(CDDPI_ALL_REDUCE, "all_reduce")                                                              \
    X(CDDPI_REDUCE, "reduce")                                                                      \
    X(CDDPI_BROADCAST, "broadcast")                                                                \
    X(CDDPI_ALL_GATHER, "all_gather")                                                              \
    X(CDDPI_REDUCE_SCATTER, "reduce_scatter")                                                      \
    X(CDDPI_GATHER, "gather")                                                                      \
    X(CDDPI_SCATTER, "scatter")                                                                    \
    X(CDDPI_ALL_TO_ALL, "all_to_all")                                                              \
    X(CDDPI_ALLOC, "group_alloc")                                                                  \
    X(CDDPI_SEND, "send")                                                                          \
    X(CDDPI_RECV, "recv")                                                                          \
    X(CDDPI_REPLAY, "replay")
enum cddpi_kind { CDDPI_KIND_MAP(CDDPI_CHOICE_ID) CDDPI_KINDS };

enum { CDDPI_OP_STATE_BYTES = 96 };

struct cddpi_group_op {
    enum cddpi_kind kind;
    cddp_type type;
    cddp_op op;
    int root; /* root of broadcast, reduce, gather, scatter; peer of send and recv; else 0 */
    bool weighted;
    double weight;
    size_t count;
    const void *in;
    void *out;
    uint64_t number; /* number among the group's collectives, or among the messages from one rank to
                        another */
    uint64_t call;   /* number among the collectives that the program itself called, used in errors;
                        0: cddp called it as part of something else, such as a step */
    /* the operation that this one is part of, for error texts; NULL: not a part */
    const struct cddpi_group_op *whole;
    uint64_t serial; /* number in the recorder; 0: not recorded */
    bool started;    /* the recorder has its start */
    bool unattended; /* no thread waits for it: it advances only when a compute thread calls cddp */
    int64_t start_ns;
    int64_t deadline_ns;

    /* private to the backend; all zero before the first advance */
    _Alignas(8) unsigned char state[CDDPI_OP_STATE_BYTES];
};

/** Whether `in` has a block of `count` elements for each rank. */
static inline bool cddpi_op_scatters(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
           op->kind == CDDPI_REDUCE_SCATTER;
}

/** Whether `out` has a block of `count` elements for each rank. */
static inline bool cddpi_op_gathers(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_GATHER || op->kind == CDDPI_ALL_TO_ALL || op->kind == CDDPI_ALL_GATHER;
}

/** "all_reduce", "send" ... */
const char *cddpi_kind_name(enum cddpi_kind kind);

#endif
