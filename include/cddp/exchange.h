/** @file
 *  exchange.h - what ranks exchange besides tensors of equal size: blocks of different
 *  lengths, objects (any bytes), several messages at once, a key-value store for the caller, and
 *  whether to stop.
 *
 *  For threads and errors, the rules of the collectives in group.h apply to all of these calls. */
#ifndef CDDP_EXCHANGE_H
#define CDDP_EXCHANGE_H

#include <cddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Gather blocks of different lengths from all ranks (MPI_Allgatherv). The buffers may be in CPU
 *  memory or in device memory.
 *
 *  Collective: yes.
 *  @param in      counts[rank] elements. In place: this rank's block in @p out.
 *  @param out     Every rank's block, in rank order: as many elements as all @p counts together.
 *  @param counts  How many elements each rank contributes, by rank; may be 0. The same on all
 *                 ranks, borrowed for the call.
 *  @param work    As for the collectives in group.h.
 *  @return as a collective; CDDP_ERR_MISMATCH if the ranks' counts differ. */
CDDP_CHECKED cddp_status cddp_all_gatherv(cddp_group *group, const void *in, void *out,
                                          const size_t *counts, cddp_type type, cddp_work **work);

/** Gather bytes from all ranks; each rank may contribute a different number (PyTorch's
 *  all_gather_object), in CPU memory only.
 *
 *  Collective: yes.
 *  @param data       @p bytes bytes of this rank; NULL if there are none.
 *  @param out        New memory with every rank's bytes, in rank order and without gaps, then a NUL
 *                    byte, which does not count. Release with cddp_free().
 *  @param out_bytes  The caller's array of world_size numbers: how many bytes each rank
 *                    contributed.
 *  @return as a collective. If a rank has no memory for the result, the group breaks. */
CDDP_CHECKED cddp_status cddp_all_gather_bytes(cddp_group *group, const void *data, size_t bytes,
                                               void **out, size_t *out_bytes);

/** Broadcast bytes whose length only rank @p root knows (PyTorch's broadcast_object_list).
 *  In CPU memory only.
 *
 *  Collective: yes.
 *  @param data       @p bytes bytes on @p root; ignored on other ranks, where it may be NULL.
 *  @param out        New memory with the bytes (on @p root, too), then a NUL byte, which does not
 *                    count. Release with cddp_free().
 *  @param out_bytes  How many bytes there are; may be NULL.
 *  @return as a collective. If a rank has no memory for the result, the group breaks. */
CDDP_CHECKED cddp_status cddp_broadcast_bytes(cddp_group *group, const void *data, size_t bytes,
                                              int root, void **out, size_t *out_bytes);

/** One message of cddp_messages_start(). Callers pass arrays of it, so it has no struct_size and
 *  keeps its size: later versions use the reserved words and define more flags. Flags and words
 *  that the library does not know must be 0; otherwise the call returns CDDP_ERR_UNAVAILABLE. */
typedef struct cddp_message {
    bool receives;        /**< true: receive from the peer; false: send to it */
    int peer;             /**< another rank of the group */
    const void *in;       /**< a send: count elements, which are only read; else NULL */
    void *out;            /**< a receive: where count elements go; else NULL */
    size_t count;         /**< elements */
    cddp_type type;       /**< type of an element */
    uint32_t flags;       /**< 0: there are no flags yet */
    uint64_t reserved[2]; /**< 0 */

} cddp_message;

/** Start several messages at once. Ranks cannot deadlock, whatever the order of sends and recvs
 *  here and at the peers. Messages between the same two ranks are sent in the order of the array.
 *  If one message has a bad argument, none starts. See cddp_send() for everything else.
 *
 *  Collective: no.
 *  @param messages  @p count messages, borrowed for the call; their memory stays in use until the
 *                   messages are done.
 *  @param works     An array that receives @p count handles; NULL: the call waits until all are
 *                   done. */
CDDP_CHECKED cddp_status cddp_messages_start(cddp_group *group, const cddp_message *messages,
                                             size_t count, cddp_work **works);

/** Create a key-value store (see store.h) for the caller, which only the ranks of this group share.
 *  It works with every launcher. Rank 0 serves the store, on loopback if all ranks are on one
 *  machine. If the group has a store already, the call returns that one.
 *
 *  Collective: yes.
 *  @param out  The group owns the handle: do not close it. It is valid as long as the group. After
 *              rank 0 has destroyed its group, calls on the handle return CDDP_ERR_IO.
 *  @return as a collective; CDDP_ERR_IO or CDDP_ERR_UNAVAILABLE if a rank does not reach rank 0. */
CDDP_CHECKED cddp_status cddp_group_store_create(cddp_group *group, cddp_store **out);

/** The store that cddp_group_store_create() has created; NULL if there is none.
 *  Collective: no. */
CDDP_API cddp_store *cddp_group_store(const cddp_group *group);

/** Check whether any rank was asked to stop, by a signal or by cddp_stop_request() (see process.h).
 *  The answer is the same on all ranks, so all can stop after the same step. It costs an all-reduce
 *  of one byte: cheap enough for every step. cddp_stop_requested() asks about this process alone.
 *  Collective: yes. */
CDDP_CHECKED cddp_status cddp_group_should_stop(cddp_group *group, bool *out_stop);

#ifdef __cplusplus
}
#endif
#endif
