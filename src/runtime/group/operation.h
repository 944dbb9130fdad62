/* operation.h - one operation of a group: what was asked for, and how far it has come. */
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
    CDDPI_ALLOC, /* cddp_group_alloc(): `count` bytes, *(void **)out gets the memory */
    CDDPI_SEND,
    CDDPI_RECV,
    CDDPI_REPLAY, /* of a captured graph: see group/device/group_device.h */
    CDDPI_KINDS
};

enum { CDDPI_OP_STATE_BYTES = 96 };

/* One operation: what was asked for, and how far it has come. */
struct cddpi_group_op {
    enum cddpi_kind kind;
    cddp_type type;
    cddp_op op;
    int root; /* of broadcast, reduce, gather, scatter; the peer of send and recv; else 0 */
    bool weighted;
    double weight;
    size_t count;
    const void *in;
    void *out;
    uint64_t number; /* counts collectives of the group, or messages of the ordered pair */
    uint64_t call; /* counts the collectives that the program itself calls, as errors name them; 0:
                      cddp called this one, as a part of something else such as a step */
    const struct cddpi_group_op *whole; /* the operation that this one is a part of, which errors
                                           name; NULL: none */
    uint64_t serial;                    /* in the recorder; 0: it is not there */
    bool started;                       /* as the recorder knows it */
    bool unattended; /* no thread waits for it: it advances only when a thread that computes happens
                        to call cddp */
    int64_t start_ns;
    int64_t deadline_ns;

    /* the backend's own; all zero before the first advance */
    _Alignas(8) unsigned char state[CDDPI_OP_STATE_BYTES];
};

/** "all_reduce", "send" ... */
const char *cddpi_kind_name(enum cddpi_kind kind);

#endif
