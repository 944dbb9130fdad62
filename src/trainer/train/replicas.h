/* replicas.h - compares the state of ranks that must be equal: parameters, optimizer state and
 * cursor. Nothing else would show damage by a faulty memory or processor: a rank that computes with
 * wrong parameters still sends gradients. */
#ifndef CDDPI_TRAIN_REPLICAS_H
#define CDDPI_TRAIN_REPLICAS_H

#include "train/trainer.h"

/** At the start of a run, warn if train.check_replicas finds only a part of the damage. */
void cddpi_replicas_warn(struct cddpi_trainer *trainer);

/** After a step, compare all replicas if train.check_replicas asks for it: every so many steps, and
 *  before a checkpoint is written (@p saves). Collective.
 *  @return CDDP_OK; CDDP_ERR_MISMATCH on all ranks: the text and the culprit name the rank that
 *          differs. */
CDDP_CHECKED cddp_status cddpi_replicas_check(struct cddpi_trainer *trainer, bool saves);

/** The same at the end of a run, where all but the optimizer's state is compared in any case. The
 *  parameters are complete, and in host memory (cddpi_trainer_assemble()). Collective. */
CDDP_CHECKED cddp_status cddpi_replicas_check_last(struct cddpi_trainer *trainer);

/* For replicas.c and replicas_differ.c only: */

enum { CDDPI_REPLICAS_DIGEST_BYTES = 16 };

/* A part of a tensor, with a hash of its own. */
struct cddpi_replicas_piece {
    const unsigned char *data;
    size_t bytes;
    size_t tensor; /* index in the list of tensors */
    size_t begin;  /* of its bytes in the tensor */
};

/* What this rank must have in common with its replicas. */
struct cddpi_replicas_state {
    cddp_param *tensors;
    size_t tensor_count, tensor_room;
    struct cddpi_replicas_piece *pieces;
    uint32_t *hashes; /* of the pieces */
    size_t piece_count;
    int64_t cursor[3];                                 /* step, epoch, position */
    unsigned char digest[CDDPI_REPLICAS_DIGEST_BYTES]; /* of all hashes */
};

/* How ranks differ. The same on all ranks. */
struct cddpi_replicas_verdict {
    int parts;   /* of the model in a pipeline: ranks r, r + parts, r + 2 parts ... are replicas */
    int culprit; /* the lowest rank that differs in the first part that differs; -1: none */
    int right;   /* a replica of it that is right, if most of them agree; else the lowest one */
    bool has_majority; /* more than half of these replicas agree with `right` */
};

/** Name the ranks that differ, and the first element. Collective.
 *  @param digests  Of all ranks.
 *  @return CDDP_ERR_MISMATCH, or an error of the group. */
cddp_status cddpi_replicas_differ(struct cddpi_trainer *trainer,
                                  const struct cddpi_replicas_state *state,
                                  const struct cddpi_replicas_verdict *verdict,
                                  const unsigned char (*digests)[CDDPI_REPLICAS_DIGEST_BYTES]);

#endif
