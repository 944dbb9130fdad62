/** @file
 *  exchange.h - what ranks tell each other beside tensors of equal size: blocks of different
 *  lengths, objects (any bytes), several messages at once, a store of keys of the caller's own, and
 *  whether to stop.
 *
 *  Everything here is of a group's thread (see group.h), and fails as the collectives there do. */
#ifndef CDDP_EXCHANGE_H
#define CDDP_EXCHANGE_H

#include <cddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Gather blocks of different lengths: @p out holds the sum of all @p counts elements, every rank's
 *  in rank order. Collective; in either memory of a group on a device.
 *  @param in      counts[rank] elements. In place: where they belong in @p out.
 *  @param counts  By rank: how many elements it gives; the same on all ranks, borrowed for the
 *                 call. 0 is allowed.
 *  @param work    As of the collectives in group.h.
 *  @return as a collective; CDDP_ERR_MISMATCH where ranks differ in the counts. */
CDDP_CHECKED cddp_status cddp_all_gatherv(cddp_group *group, const void *in, void *out,
                                          const size_t *counts, cddp_type type, cddp_work **work);

/** Give every rank everybody's bytes, of any length. Collective; only of the processor's memory.
 *  @param data       @p bytes bytes of this rank's; NULL if there are none.
 *  @param out        New memory with every rank's bytes, in rank order and without gaps, and a NUL
 *                    byte (not counted) behind the last. Release with cddp_free().
 *  @param out_bytes  The caller's array of world_size numbers: how many bytes each rank gave.
 *  @return as a collective. A rank without memory ends the group. */
CDDP_CHECKED cddp_status cddp_all_gather_bytes(cddp_group *group, const void *data, size_t bytes,
                                               void **out, size_t *out_bytes);

/** Give every rank the bytes of @p root, whose length only that rank knows. Collective; only of the
 *  processor's memory.
 *  @param data       @p bytes bytes on @p root; not read elsewhere, and may be NULL there.
 *  @param out        New memory, on @p root a copy, with a NUL byte (not counted) behind the bytes.
 *                    Release with cddp_free().
 *  @param out_bytes  How many bytes there are; may be NULL.
 *  @return as a collective. A rank without memory ends the group. */
CDDP_CHECKED cddp_status cddp_broadcast_bytes(cddp_group *group, const void *data, size_t bytes,
                                              int root, void **out, size_t *out_bytes);

/** One message of cddp_messages_start(). Arrays of it cross the border, so it has no struct_size,
 * and will not change. */
typedef struct cddp_message {
    bool receives;  /**< data comes from the peer; false: it goes there */
    int peer;       /**< another rank of the group */
    void *data;     /**< count elements; only read if they go to the peer */
    size_t count;   /**< elements */
    cddp_type type; /**< of an element */

} cddp_message;

/** Begin several messages at once, so that no order of sends and recvs, here or at the peers, makes
 *  ranks wait for each other for ever. Messages of a pair of ranks go in the order of the array.
 *  Nothing is begun if one of them has a bad argument. For all else see cddp_send().
 *  @param messages  @p count of them, borrowed for the call; their data stay in use until done.
 *  @param works     An array that gets @p count handles; NULL: wait until all are done. */
CDDP_CHECKED cddp_status cddp_messages_start(cddp_group *group, const cddp_message *messages,
                                             size_t count, cddp_work **works);

/** A store (see store.h) of the caller's own keys, for the ranks of this group alone, whatever has
 *  launched them. The first call is collective: rank 0 then serves the store, at its loopback
 *  address if all are on one machine. Later calls give the same handle and talk to nobody.
 *  @param out  The group's: not to be closed, and gone with the group. Once rank 0 has destroyed
 *              its group, calls on the handle give CDDP_ERR_IO.
 *  @return as a collective; CDDP_ERR_IO or CDDP_ERR_UNAVAILABLE: a rank does not reach rank 0. */
CDDP_CHECKED cddp_status cddp_group_store(cddp_group *group, cddp_store **out);

/** Whether any rank was asked to end by a signal (see cddp_stop_on_signals() in process.h): the
 * same answer on all ranks, so that all leave after the same step. Collective, of one byte; cheap
 * enough for each step.
 *  @param group  NULL: ask only about this process, and talk to nobody. */
CDDP_CHECKED cddp_status cddp_should_stop(cddp_group *group, bool *out_stop);

#ifdef __cplusplus
}
#endif
#endif
