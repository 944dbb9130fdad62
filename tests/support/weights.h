/* weights.h - the weights of a small GPT-2 for tests, and weight files as other programs write
 * them. */
#ifndef CDDP_TESTS_SUPPORT_WEIGHTS_H
#define CDDP_TESTS_SUPPORT_WEIGHTS_H

#include "nn/weights/weights_file.h"
#include "support/folder.h"

#include <stdbool.h>

enum { VOCAB = 131, CONTEXT = 5, BLOCKS = 2, HEADS = 3, EMBED = 12 };

enum { TENSORS = 4 + 12 * BLOCKS, MOST_TENSORS = 4 + 12 * 3 + 8, MOST_ELEMENTS = 1 << 14 };

static const struct cddpi_gpt2_shape small = {VOCAB, CONTEXT, BLOCKS, EMBED, HEADS};

/* The parameters of a gpt2 of some shape, in memory. */
struct params {
    cddp_param tensors[MOST_TENSORS];
    size_t count;
    char names[MOST_TENSORS][CDDPI_GPT2_NAME_BYTES];
    float data[MOST_TENSORS][MOST_ELEMENTS];
};

/* The value of element @p e of tensor @p i; most values are not exact in 16 bits. */
float element(size_t i, size_t e);
size_t elements(const cddp_param *tensor);

/* Make the parameters of cddp's gpt2. @p filled: with values; else with NaNs whose bits are all
 * ones. */
void make_params(struct params *params, const struct cddpi_gpt2_shape *shape, bool filled);

/* Assert that @p params are those of make_params(). */
void assert_filled(const struct params *params);

void write_params(const cddp_param *params, size_t count, const char *name,
                  const char *const *metadata);

/* A file as Hugging Face's libraries write it, but written with cddp's safetensors writer. */
struct hf_file {
    cddp_param tensors[MOST_TENSORS];
    size_t count;
    char names[MOST_TENSORS][64];
    float data[MOST_TENSORS][MOST_ELEMENTS];
};

void make_hf(struct hf_file *file, const char *prefix);
cddp_param *hf_find(struct hf_file *file, const char *name);

/* Insert a tensor before the others, so that those need not be aligned. */
cddp_param *hf_add(struct hf_file *file, const char *name, cddp_type type, int dims,
                   const int64_t *shape);
void write_hf(const struct hf_file *file, const char *name, const char *const *metadata);

/* Convert @p in, of any format, to @p out. */
void convert(const char *in, const char *out, enum cddpi_weights_format format, cddp_type type);

/* Write the small GPT-2 to a file @p name of cddp's. */
void write_cddp(const char *name);

/* The contents of a file; release with free(). */
unsigned char *read_all(const char *name, size_t *out_bytes);
void assert_same_bytes(const char *left, const char *right);

/* Assert that opening @p name fails with a message that names the file and contains @p text. */
void assert_refused(const char *name, const char *text);

#endif
