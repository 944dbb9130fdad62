/* weights.h - reads and writes GPT-2's weights in three formats: cddp's own, Hugging Face's and
 * llm.c's.
 *
 *     cddp   safetensors; names as in Hugging Face's GPT2Model ("h.0.attn.c_attn.weight" ...),
 *            linear weights outputs x inputs, no head of its own (it is tied to wte)
 *     hf     safetensors, one file or shards with an index; the same names, with or without the
 *            prefixes of wrappers ("transformer.", "module.", "_orig_mod."); linear weights inputs
 *            x outputs ("Conv1D"). Masks (attn.bias, attn.masked_bias) are skipped. lm_head.weight
 *            is skipped if it equals wte.weight, and replaces wte.weight if that is missing
 *     llmc   llm.c's model files, version 3 (f32) and 5 (bf16): 256 int32, then 16 tensors, each
 *            for all blocks; rows of zeros pad the vocabulary to a multiple of 128
 *
 * The format is recognised from the contents. Data is memory-mapped and passes through buffers of a
 * few rows, so memory does not grow with the file. Any thread may call these functions; an open
 * file belongs to one thread. */
#ifndef CDDPI_NN_WEIGHTS_WEIGHTS_H
#define CDDPI_NN_WEIGHTS_WEIGHTS_H

#include "base/choices.h"

#include <cddp/checkpoint.h>

#include <stdbool.h>

#define CDDPI_WEIGHTS_FORMAT_MAP(X)                                                                \
    X(CDDPI_WEIGHTS_CDDP, "cddp")                                                                  \
    X(CDDPI_WEIGHTS_HF, "hf")                                                                      \
    X(CDDPI_WEIGHTS_LLMC, "llmc")
enum cddpi_weights_format { CDDPI_WEIGHTS_FORMAT_MAP(CDDPI_CHOICE_ID) };

extern const char *const cddpi_weights_format_names[CDDPI_CHOICE_COUNT(CDDPI_WEIGHTS_FORMAT_MAP)];

struct cddpi_gpt2_shape {
    int64_t vocab, context, blocks, embed;
    int64_t heads; /* 0: the file does not say */
};

struct cddpi_weights; /* an open file */

/** Map @p path and check that it holds exactly one GPT-2: names, shapes, types (f32, f16 or bf16),
 *  sizes. A folder stands for the model.safetensors or model.safetensors.index.json in it. The
 *  number of heads comes from llm.c's header, the file's metadata ("heads") or a config.json beside
 *  it ("n_head").
 *  @param out  Release with cddpi_weights_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_FORMAT (names file and tensor), CDDP_ERR_IO, CDDP_ERR_NOT_FOUND,
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_weights_open(const char *path, struct cddpi_weights **out);
void cddpi_weights_close(struct cddpi_weights *weights);

enum cddpi_weights_format cddpi_weights_format(const struct cddpi_weights *weights);
const struct cddpi_gpt2_shape *cddpi_weights_shape(const struct cddpi_weights *weights);
/** The type of wte.weight in the file. */
cddp_type cddpi_weights_type(const struct cddpi_weights *weights);

/** Whether the file name @p name is that of a weights file, in cddp's formats or others. */
bool cddpi_weights_are_called(const char *name);
/** Whether @p folder holds such files. If so, @p out receives the name of one; a readable format is
 *  preferred. */
bool cddpi_weights_name_in(const char *folder, char *out, size_t bytes);

/** Fill @p tensors, the parameters of a gpt2 with @p heads heads (f32, with cddp's names and
 *  shapes), from a file in any of the formats. If the model's context is shorter than the file's,
 *  the first positions are used. Either all tensors are written or none.
 *  @return As cddpi_weights_open(); CDDP_ERR_FORMAT also if shapes differ, or the file specifies
 *          another number of heads. */
CDDP_CHECKED cddp_status cddpi_weights_load(const char *path, int64_t heads,
                                            const cddp_param *tensors, size_t count);

/** Check that the open file @p weights at @p path has all of @p tensors, in the sense of
 *  cddpi_weights_load(). Their memory is not accessed. */
CDDP_CHECKED cddp_status cddpi_weights_match(const struct cddpi_weights *weights, const char *path,
                                             int64_t heads, const cddp_param *tensors,
                                             size_t count);
/** Fill one of these tensors. */
CDDP_CHECKED cddp_status cddpi_weights_fill(const struct cddpi_weights *weights,
                                            const cddp_param *tensor);

/** Write @p weights to @p path (through a temporary file beside it) in another format.
 *  @param type   F32; for hf and llmc also BF16; for hf also F16.
 *  @param heads  > 0 and a divisor of embed; recorded in the file.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. After an error, an older
 *          file of that name is unchanged. */
CDDP_CHECKED cddp_status cddpi_weights_write(const struct cddpi_weights *weights, const char *path,
                                             enum cddpi_weights_format format, cddp_type type,
                                             int64_t heads);

/** Write the config.json that Hugging Face's loaders expect beside such a file. @p end_token: what
 *  ends a text; -1: not known, except for GPT-2's own vocabulary. */
CDDP_CHECKED cddp_status cddpi_weights_write_config(const struct cddpi_weights *weights,
                                                    const char *path, cddp_type type, int64_t heads,
                                                    int32_t end_token);

#endif
