/* weights.h - GPT-2's weights in files: cddp's own, Hugging Face's and llm.c's, read and written.
 *
 *     cddp   safetensors; names as in Hugging Face's GPT2Model ("h.0.attn.c_attn.weight" ...),
 *            linear weights outputs x inputs, no head of its own (it is tied to wte)
 *     hf     safetensors, one file or shards with an index; the same names, or with those of
 *            wrappers in them ("transformer.", "module.", "_orig_mod."); linear weights inputs x
 *            outputs ("Conv1D"); masks (attn.bias, attn.masked_bias) are passed over, and so is
 *            lm_head.weight when it equals wte.weight, or is taken for it when that is not there
 *     llmc   llm.c's model files, version 3 (f32) and 5 (bf16): 256 int32, then 16 tensors, each of
 *            them of all blocks; rows of zeros fill the vocabulary up to a multiple of 128
 *
 * Which one a file is shows in its contents. Data is memory-mapped and passes through buffers of a
 * few rows, whatever its size. Any thread; one file belongs to one thread. */
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

/** Map @p path and check that it is all of one GPT-2: names, shapes, types (f32, f16 or bf16),
 * sizes. A folder stands for the model.safetensors or the model.safetensors.index.json in it. Heads
 * are taken from llm.c's header, the file's metadata ("heads") or a config.json beside it
 * ("n_head").
 *  @param out  Release with cddpi_weights_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_FORMAT (names file and tensor), CDDP_ERR_IO, CDDP_ERR_NOT_FOUND,
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_weights_open(const char *path, struct cddpi_weights **out);
void cddpi_weights_close(struct cddpi_weights *weights);

enum cddpi_weights_format cddpi_weights_format(const struct cddpi_weights *weights);
const struct cddpi_gpt2_shape *cddpi_weights_shape(const struct cddpi_weights *weights);
/** The type of wte.weight in the file. */
cddp_type cddpi_weights_type(const struct cddpi_weights *weights);

/** Whether a file called @p name holds weights, of cddp's formats or of others'. */
bool cddpi_weights_are_called(const char *name);
/** Whether @p folder holds such files: then @p out is the name of one, of a format that can be read
 *  if there is one. */
bool cddpi_weights_name_in(const char *folder, char *out, size_t bytes);

/** Tensors of a GPT-2, in cddp's order of registration. */
size_t cddpi_weights_count(const struct cddpi_weights *weights);

/** Fill @p tensors, the parameters of a gpt2 with @p heads heads (f32, named and shaped as cddp's),
 * from a file of any of the formats. The model's context may be shorter than the file's: the first
 *  positions are taken. Nothing is written unless all fits.
 *  @return As cddpi_weights_open(); CDDP_ERR_FORMAT also for other shapes and another number of
 *          heads than the file knows of. */
CDDP_CHECKED cddp_status cddpi_weights_load(const char *path, int64_t heads,
                                            const cddp_tensor *tensors, size_t count);

/** Whether the open file @p weights at @p path has all of @p tensors, as cddpi_weights_load() wants
 *  them; their memory is not looked at. */
CDDP_CHECKED cddp_status cddpi_weights_match(const struct cddpi_weights *weights, const char *path,
                                             int64_t heads, const cddp_tensor *tensors,
                                             size_t count);
/** Fill one of these tensors. */
CDDP_CHECKED cddp_status cddpi_weights_fill(const struct cddpi_weights *weights,
                                            const cddp_tensor *tensor);

/** Write @p weights to @p path (through a temporary file beside it) in another format.
 *  @param type   F32; hf and llmc: or BF16; hf: or F16.
 *  @param heads  > 0 and a divisor of embed; noted in the file.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY: then an older file of that
 *          name is as it was. */
CDDP_CHECKED cddp_status cddpi_weights_write(const struct cddpi_weights *weights, const char *path,
                                             enum cddpi_weights_format format, cddp_type type,
                                             int64_t heads);

/** Write the config.json that Hugging Face's loaders want beside such a file. */
CDDP_CHECKED cddp_status cddpi_weights_write_config(const struct cddpi_weights *weights,
                                                    const char *path, cddp_type type,
                                                    int64_t heads);

#endif
