/* group_cuda_p2p.h - messages between two ranks of a machine (send and recv of device memory), for
 * all transports.
 *
 * Each rank has two channels for each peer, one a direction: a stream of its own, made when it is
 * first used. So no message waits for one of another channel, nor for a collective, and ranks may
 * send to each other in any order. NCCL's own send and recv would do all of that in one stream, and
 * leave undefined what happens unless both ranks group their calls alike, which two ranks that do
 * not know of each other's calls cannot (NVIDIA/nccl issue 1279).
 *
 * A message goes in pieces through two slots, which belong to the sender: pinned memory that all
 * ranks map, or device memory that all have opened. Pieces of a channel are numbered through all
 * messages. Two flags (stream_flags.h) tell which the sender has put there and which the receiver
 * has taken; the slot of piece k may be written when k - 2 is taken. A message is done for its
 * sender when the last piece is taken: until then its peer may need this rank.
 *
 * Only so many pieces of a channel are in its stream at once, since a stream that is full holds up
 * whoever puts something into it. The others follow when cddpi_p2p_advance() is called. */
#ifndef CDDPI_GROUP_CUDA_P2P_H
#define CDDPI_GROUP_CUDA_P2P_H

#include "group/cuda/common.h"

struct cddpi_p2p;

/** Bytes of each rank's area, if the caller brings them. */
size_t cddpi_p2p_area_bytes(int world_size);
/** Collective. @p areas: by rank, device memory that all have opened; NULL: pinned memory.
 *  @param out  Made even where no message can be carried: cddpi_p2p_start() then says why.
 *  @return CDDP_OK, or the error of an exchange between the ranks: the same on all of them. */
cddp_status cddpi_p2p_open(const struct cddpi_device_open_params *params, char *const *areas,
                           struct cddpi_p2p **out);
/** Returns whether all streams ran dry; else the memory that they use is not freed. NULL is
 *  accepted, and counts as dry. */
bool cddpi_p2p_close(struct cddpi_p2p *p2p);
/** See struct cddpi_device_transport_ops. */
cddp_status cddpi_p2p_start(struct cddpi_p2p *p2p, const struct cddpi_p2p_message *message);
/** Put the pieces for which there is room by now into their streams. Any thread; NULL is accepted.
 */
cddp_status cddpi_p2p_advance(struct cddpi_p2p *p2p);
/** End all messages of all ranks, whatever they carry. Any thread; NULL is accepted. */
void cddpi_p2p_release(struct cddpi_p2p *p2p);

#endif
