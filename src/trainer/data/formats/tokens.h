/* tokens.h - divides shards of tokens into sequences, for all formats of token files. */
#ifndef CDDPI_DATA_FORMATS_TOKENS_H
#define CDDPI_DATA_FORMATS_TOKENS_H

#include "data/dataset.h"

/** Number the sequences of @p shards (borrowed; sets `first_sequence`) and describe them in @p out,
 *  whose context, token_bytes and classes are set already. Each shard must hold at least one
 *  sequence; only the last of several shards may be shorter.
 *  @return CDDP_OK, CDDP_ERR_FORMAT with a text that begins with the shard's path. */
CDDP_CHECKED cddp_status cddpi_tokens_lay_out(struct cddpi_token_shard *shards, size_t count,
                                              struct cddpi_dataset *out);

/** Check that all ranks have the same shards, by their sizes. Collective.
 *  @return CDDP_OK, CDDP_ERR_MISMATCH, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_tokens_agree(cddp_group *group, const struct cddpi_dataset *dataset);

#endif
