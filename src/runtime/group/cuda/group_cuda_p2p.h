/* group_cuda_p2p.h - owns messages between two ranks of a machine (send and recv of device memory),
 * for all transports.
 *
 * Each rank has two channels per peer, one for each direction. A channel is a stream of its own,
 * created at first use. So no message waits for another channel's messages or for a collective, and
 * ranks may send to each other in any order. NCCL's send and recv would run all messages in one
 * stream. Their behaviour is undefined unless both ranks group their calls in the same way, which
 * is impossible for ranks that do not know each other's calls (NVIDIA/nccl issue 1279).
 *
 * A message is sent in pieces through two slots of the sender, in pinned memory that all ranks map
 * or in device memory that all ranks have opened. Pieces of a channel are numbered across all
 * messages. Two flags (stream_flags.h) count the pieces that the sender has written and those that
 * the receiver has taken. The slot of piece k may be written once piece k - 2 is taken. For the
 * sender, a message is done when its last piece is taken: until then the peer may need this rank.
 *
 * The number of a channel's pieces in its stream is limited, since a full stream blocks the thread
 * that enqueues into it. cddpi_p2p_advance() enqueues the others later. */
#ifndef CDDPI_GROUP_CUDA_P2P_H
#define CDDPI_GROUP_CUDA_P2P_H

#include "group/cuda/common.h"

struct cddpi_p2p;

/** Bytes of each rank's area, if the caller provides the areas. */
size_t cddpi_p2p_area_bytes(int world_size);
/** Collective. @p areas: by rank, device memory that all ranks have opened; NULL: use pinned
 *  memory.
 *  @param out  Created even if messages are impossible; cddpi_p2p_start() then gives the reason.
 *  @return CDDP_OK, or the error of an exchange between the ranks; the same on all ranks. */
cddp_status cddpi_p2p_open(const struct cddpi_device_open_params *params, char *const *areas,
                           struct cddpi_p2p **out);
/** Returns whether all streams became empty; if not, the memory that they use is not freed. Accepts
 *  NULL and returns true for it. */
bool cddpi_p2p_close(struct cddpi_p2p *p2p);
/** See struct cddpi_device_transport_ops. */
cddp_status cddpi_p2p_start(struct cddpi_p2p *p2p, const struct cddpi_p2p_message *message);
/** Enqueue the pieces for which there is room now. Any thread; accepts NULL.
 */
cddp_status cddpi_p2p_advance(struct cddpi_p2p *p2p);
/** Abort all messages of all ranks; their data is undefined. Any thread; accepts NULL. */
void cddpi_p2p_release(struct cddpi_p2p *p2p);

#endif
