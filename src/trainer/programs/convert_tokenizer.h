/* convert_tokenizer.h - the files of cddp-convert --to hf from which transformers' AutoTokenizer
 * makes a model's tokenizer. */
#ifndef CDDPI_PROGRAMS_CONVERT_TOKENIZER_H
#define CDDPI_PROGRAMS_CONVERT_TOKENIZER_H

#include "nn/weights/weights.h"

/** Write tokenizer.json and tokenizer_config.json to the folder @p out, if @p in tells which
 *  tokenizer the model was trained with: a run by its train.conf, another folder by such files in
 *  it. A tokenizer that cannot be used is a line on standard error and no failure: the weights are
 *  written.
 *  @param out_end  The token that ends a text; -1: no files were written.
 *  @return CDDP_OK; CDDP_ERR_IO, CDDP_ERR_NO_MEMORY: the files could not be written. */
CDDP_CHECKED cddp_status cddpi_convert_tokenizer(const char *in, const char *out,
                                                 const struct cddpi_gpt2_shape *shape,
                                                 int32_t *out_end);

#endif
