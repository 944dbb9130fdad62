/* operation.h - owns the struct of one group operation: its arguments and its progress. */
#ifndef CDDPI_GROUP_OPERATION_H
#define CDDPI_GROUP_OPERATION_H

#include <cddp/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cddpi_kind {
    CDDPI_BARRIER,
    CDDPI_ALL_REDUCE,
    CDDPI_REDUCE,
    CDDPI_BROADCAST,
    CDDPI_ALL_GATHER,
    CDDPI_REDUCE_SCATTER,
    CDDPI_GATHER,
    CDDPI_SCATTER,
    CDDPI_ALL_TO_ALL,
    CDDPI_ALLOC, /* cddp_group_alloc(): `count` bytes; *(void **)out receives the address */
    CDDPI_SEND,
    CDDPI_RECV,
    CDDPI_REPLAY, /* of a captured graph: see group/device/group_device.h */
    CDDPI_KINDS
};

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

/** "all_reduce", "send" ... */
const char *cddpi_kind_name(enum cddpi_kind kind);

#endif
