/* tokens.h - sequences over shards of tokens, for what opens such files. */
#ifndef CDDPI_DATA_FORMATS_TOKENS_H
#define CDDPI_DATA_FORMATS_TOKENS_H

#include "data/dataset.h"

/** Number the sequences of @p shards (borrowed; `first_sequence` is set here) and describe them in
 *  @p out, whose context, token_bytes and classes are set. Each shard must hold a sequence, but for
 * the last of several, which may be what others have left over.
 *  @return CDDP_OK, CDDP_ERR_FORMAT, with a text that begins with the shard's path. */
CDDP_CHECKED cddp_status cddpi_tokens_lay_out(struct cddpi_token_shard *shards, size_t count,
                                              struct cddpi_dataset *out);

/** Check that all ranks have the same shards, as far as their sizes tell. Collective.
 *  @return CDDP_OK, CDDP_ERR_MISMATCH, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_tokens_agree(cddp_group *group, const struct cddpi_dataset *dataset);

#endif
