/* shared_head.h - the beginning of the memory that ranks share for copies of snapshots: which file
 * is being written, and who writes which piece of it. */
#ifndef CDDPI_CHECKPOINT_SHARED_HEAD_H
#define CDDPI_CHECKPOINT_SHARED_HEAD_H

#include "checkpoint/shared_copy.h"

enum {
    SHARED_PIECES = 4096,          /* of a file, at most */
    SHARED_PIECE_LEAST = 64 << 10, /* bytes */
    SHARED_PIECE_USUAL = 1 << 20,  /* for files of which each rank gets many */
    SHARED_PIECES_WANTED = 64      /* of a smaller file */
};

/* The state of a piece, below the number of the offer of which it is. */
enum { PIECE_FREE, PIECE_TAKEN, PIECE_DONE, PIECE_STATE_BITS = 2 };

struct cddpi_shared_head {
    struct cddpi_shared_place place; /* of the writer's process */

    /* set by the writer at the beginning of a copy, while no helper looks */
    char temporary[CDDPI_SNAPSHOT_NAME_BYTES]; /* the folder that it writes */
    _Atomic uint64_t copied;                   /* bytes, by all ranks */

    _Alignas(64) _Atomic uint32_t bell; /* a futex: the writer has made an offer, or has ended */
    _Atomic uint32_t is_over;

    /* a file that is offered; changed only while `offer` is 0 */
    _Atomic uint32_t offer; /* its number, from 1 on; 0: none */
    _Atomic int32_t file;
    _Atomic uint64_t disk, inode; /* of the file, to know it by */
    _Atomic uint64_t offset;      /* of the data in it */
    uint32_t last_offer;          /* the writer's */
    _Alignas(64) _Atomic uint32_t pieces[SHARED_PIECES];
};

/* Where the tensors' data begins in the memory. */
enum { SHARED_HEAD_BYTES = (sizeof(struct cddpi_shared_head) + 4095) / 4096 * 4096 };

/* A piece of a file's data. */
struct shared_piece {
    uint64_t first;
    size_t bytes;
};

static inline uint64_t shared_piece_bytes(uint64_t bytes)
{
    uint64_t wanted = bytes / SHARED_PIECES_WANTED + 1;
    uint64_t least = bytes / SHARED_PIECES + 1;

    wanted = wanted < SHARED_PIECE_USUAL ? wanted : SHARED_PIECE_USUAL;
    wanted = wanted > least ? wanted : least;
    return (wanted + SHARED_PIECE_LEAST - 1) / SHARED_PIECE_LEAST * SHARED_PIECE_LEAST;
}

static inline uint32_t shared_piece_count(uint64_t bytes)
{
    uint64_t each = shared_piece_bytes(bytes);

    return (uint32_t)((bytes + each - 1) / each);
}

static inline struct shared_piece shared_piece(uint64_t bytes, uint32_t index)
{
    uint64_t each = shared_piece_bytes(bytes);
    uint64_t first = index * each;

    return (struct shared_piece){first, (size_t)(bytes - first < each ? bytes - first : each)};
}

static inline uint32_t shared_mark(uint32_t offer, uint32_t state)
{
    return offer << PIECE_STATE_BITS | state;
}

/* Change the state of piece @p index of offer @p offer. False: it had another state. */
static inline bool shared_piece_move(struct cddpi_shared_head *head, uint32_t offer, uint32_t index,
                                     uint32_t from, uint32_t to)
{
    uint32_t expected = shared_mark(offer, from);

    return atomic_compare_exchange_strong(&head->pieces[index], &expected, shared_mark(offer, to));
}

static inline unsigned char *shared_data(const struct cddpi_shared_copy *shared, int file)
{
    return (unsigned char *)shared->head + shared->layout.first[file];
}

/** Wake all that sleep for the bell. */
void cddpi_shared_ring(struct cddpi_shared_head *head);

#endif
