/* weights_file.h - what the files of src/trainer/nn/weights/ share: which tensors a GPT-2 has, and
 * where in an open file each one lies. */
#ifndef CDDPI_NN_WEIGHTS_FILE_H
#define CDDPI_NN_WEIGHTS_FILE_H

#include "nn/weights/weights.h"

#include <jansson.h>
#include <stdbool.h>

enum { CDDPI_GPT2_DROPOUTS = 3 }; /* keys of Hugging Face's config.json */
extern const char *const cddpi_gpt2_dropouts[CDDPI_GPT2_DROPOUTS];

enum {
    CDDPI_GPT2_NAME_BYTES = 48,
    CDDPI_GPT2_ROWS = 12, /* tensors of a block */
    CDDPI_GPT2_HEAD = 2,  /* tensors before the blocks */
    CDDPI_GPT2_TAIL = 2   /* tensors after them */
};

/* A file that claims more is refused, so that no product of these overflows. */
enum {
    CDDPI_GPT2_BLOCKS_MAX = 1 << 14,
    CDDPI_GPT2_EMBED_MAX = 1 << 18,
    CDDPI_GPT2_TOKENS_MAX = 1 << 28 /* vocabulary and context */
};

/* One tensor of a GPT-2 as cddp has it. */
struct cddpi_gpt2_tensor {
    char name[CDDPI_GPT2_NAME_BYTES];
    int dims; /* 1: a vector of columns */
    int64_t rows, columns;
    bool linear; /* outputs x inputs; Hugging Face's is transposed */
};

/** How many tensors it has: 4, and 12 a block. */
size_t cddpi_gpt2_tensor_count(const struct cddpi_gpt2_shape *shape);
/** Tensor @p index in cddp's order: wte, wpe, block by block, ln_f. */
void cddpi_gpt2_tensor_at(const struct cddpi_gpt2_shape *shape, size_t index,
                          struct cddpi_gpt2_tensor *out);
/** Its index by cddp's name of it; the count when it has none of that name. */
size_t cddpi_gpt2_index(const struct cddpi_gpt2_shape *shape, const char *name);
/** Index, in that order, of the tensor at @p place in llm.c's order. */
size_t cddpi_gpt2_llmc_index(const struct cddpi_gpt2_shape *shape, size_t place);

/* A matrix in a file; nothing is aligned there. */
struct cddpi_weights_view {
    const unsigned char *data;
    cddp_type type;
    bool transposed; /* it lies there as columns x rows */
};

/* The safetensors files that a model lies in: one, or the shards of an index. */
struct cddpi_weights_files {
    cddp_safetensors **files;
    char **paths;
    size_t count;
};

/** Open the file, or the index and all its shards, at @p path: each tensor is there once. What is
 *  open stays for cddpi_weights_files_close(), also after a failure. */
cddp_status cddpi_weights_files_open(const char *path, struct cddpi_weights_files *files);
void cddpi_weights_files_close(struct cddpi_weights_files *files); /* accepts zeroed ones */
/** As cddpi_safetensors_look(), for each of them. */
cddp_status cddpi_weights_files_look(const struct cddpi_weights_files *files);
/** Whether @p path is called as an index is. */
bool cddpi_weights_is_index(const char *path);

/** The file that a folder of weights is read from, to be released with cddpi_free(); if it has
 * none, what it has instead: CDDP_ERR_NOT_FOUND. */
cddp_status cddpi_weights_find_in_folder(const char *folder, char **out);

/** @p name beside the file at @p path; NULL: no memory. */
char *cddpi_weights_beside(const char *path, const char *name);
/** All of a JSON file of at most @p most bytes, to be released with json_decref(). */
cddp_status cddpi_weights_read_json(const char *path, size_t most, json_t **out_root);

struct cddpi_weights {
    enum cddpi_weights_format format;
    struct cddpi_gpt2_shape shape;
    double dropouts[CDDPI_GPT2_DROPOUTS]; /* of the model's training; 0 where nothing tells */
    struct cddpi_weights_view *views;     /* in cddp's order */
    size_t count;
    bool table_of_head;               /* the file has wte under its other name, lm_head */
    struct cddpi_weights_files files; /* or: */
    struct cddpi_mapped_file *mapped;
    const unsigned char *map;
    size_t map_bytes;
};

/** @p status, how reading or writing went, unless the file was cut off meanwhile: CDDP_ERR_IO. */
cddp_status cddpi_weights_checked(const struct cddpi_weights *weights, cddp_status status);

/** Allocate the views of a file whose shape is known. */
cddp_status cddpi_weights_make_views(struct cddpi_weights *weights, const char *path);

/** Find the GPT-2 in the safetensors files that @p weights has open. */
cddp_status cddpi_weights_place_safetensors(struct cddpi_weights *weights, const char *path);

/** Whether the file begins as llm.c's models do; an error if it begins like neither format. */
cddp_status cddpi_weights_sniff(const char *path, bool *out_llmc);
/** The same from an llm.c file. */
cddp_status cddpi_weights_open_llmc(struct cddpi_weights *weights, const char *path);
cddp_status cddpi_weights_write_llmc(const struct cddpi_weights *weights, const char *path,
                                     cddp_type type, int64_t heads);

/** Rows [@p first, @p first + @p rows) of tensor @p index as f32, in cddp's layout or @p
 * transposed. Rows are those of what comes out; a vector is one row. */
void cddpi_weights_rows(const struct cddpi_weights *weights, size_t index, bool transposed,
                        int64_t first, int64_t rows, float *out);

/** Whether @p count elements are equal in both, once they are f32. */
bool cddpi_weights_same(const struct cddpi_weights_view *a, const struct cddpi_weights_view *b,
                        size_t count);

struct cddpi_writer;
/** Put all of tensor @p index as @p type. */
cddp_status cddpi_weights_put(const struct cddpi_weights *weights, size_t index, bool transposed,
                              cddp_type type, struct cddpi_writer *writer);

#endif
