/* mail.h - messages between two ranks of a machine (send and recv of device memory), for all
 * planes.
 *
 * Each rank has two lanes for each peer, one a direction: a stream of its own, made when it is
 * first used. So no message waits for one of another lane, nor for a collective, and ranks may send
 * to each other in any order. NCCL's own send and recv would do all of that in one stream, and
 * leave undefined what happens unless both ranks group their calls alike, which two ranks that do
 * not know of each other's calls cannot (NVIDIA/nccl issue 1279).
 *
 * A message goes in pieces through two slots, which belong to the sender: pinned memory that all
 * ranks map, or device memory that all have opened. Pieces of a lane are numbered through all
 * messages. Two flags (stream_flags.h) tell which the sender has put there and which the receiver
 * has taken; the slot of piece k may be written when k - 2 is taken. A message is done for its
 * sender when the last piece is taken: until then its peer may need this rank.
 *
 * Only so many pieces of a lane are in its stream at once, since a stream that is full holds up
 * whoever puts something into it. The others follow when cddpi_mail_advance() is called. */
#ifndef CDDPI_GROUP_MAIL_H
#define CDDPI_GROUP_MAIL_H

#include "group/planes.h"

struct cddpi_mail;

/** Bytes of each rank's area, if the caller brings them. */
size_t cddpi_mail_area_bytes(int world_size);
/** Collective. @p areas: by rank, device memory that all have opened; NULL: pinned memory.
 *  @param out  What cannot carry anything is made, too: cddpi_mail_post() then tells why.
 *  @return CDDP_OK, or as an exchange of the seat fails: the same on all ranks. */
cddp_status cddpi_mail_open(const struct cddpi_plane_seat *seat, char *const *areas,
                            struct cddpi_mail **out);
/** Returns whether all streams ran dry; else what they use stays. NULL is accepted, and dry. */
bool cddpi_mail_close(struct cddpi_mail *mail);
/** See struct cddpi_plane_ops. */
cddp_status cddpi_mail_post(struct cddpi_mail *mail, const struct cddpi_plane_message *message);
/** Put what has room by now into its stream. Any thread; NULL is accepted. */
cddp_status cddpi_mail_advance(struct cddpi_mail *mail);
/** End all messages of all ranks, whatever they carry. Any thread; NULL is accepted. */
void cddpi_mail_release(struct cddpi_mail *mail);

#endif
