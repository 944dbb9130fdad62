/* weights_file.h - what the files of src/trainer/nn/weights/ share: the list of a GPT-2's tensors,
 * and the place of each one in an open file. */
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

/* Larger values in a file are rejected, so that no product of them overflows. */
enum {
    CDDPI_GPT2_BLOCKS_MAX = 1 << 14,
    CDDPI_GPT2_EMBED_MAX = 1 << 18,
    CDDPI_GPT2_TOKENS_MAX = 1 << 28 /* vocabulary and context */
};

/* A tensor of a GPT-2 in cddp's layout. */
struct cddpi_gpt2_tensor {
    char name[CDDPI_GPT2_NAME_BYTES];
    int dims; /* 1: a vector with `columns` elements */
    int64_t rows, columns;
    bool linear; /* outputs x inputs; Hugging Face's is transposed */
};

/** The number of tensors: 4, and 12 for each block. */
size_t cddpi_gpt2_tensor_count(const struct cddpi_gpt2_shape *shape);
/** Tensor @p index in cddp's order: wte, wpe, block by block, ln_f. */
void cddpi_gpt2_tensor_at(const struct cddpi_gpt2_shape *shape, size_t index,
                          struct cddpi_gpt2_tensor *out);
/** The index of the tensor with cddp's name @p name; the number of tensors if there is none. */
size_t cddpi_gpt2_index(const struct cddpi_gpt2_shape *shape, const char *name);
/** The index, in cddp's order, of the tensor at @p place in llm.c's order. */
size_t cddpi_gpt2_llmc_index(const struct cddpi_gpt2_shape *shape, size_t place);

/* A matrix in a file; its data is not aligned. */
struct cddpi_weights_view {
    const unsigned char *data;
    cddp_type type;
    bool transposed; /* stored as columns x rows */
};

/* The safetensors files of a model: one file, or the shards of an index. */
struct cddpi_weights_files {
    cddp_safetensors **files;
    char **paths;
    size_t count;
};

/** Open the file at @p path, or the index and all its shards. Checks that no tensor occurs twice.
 *  Call cddpi_weights_files_close() also after a failure: files that were opened stay open. */
cddp_status cddpi_weights_files_open(const char *path, struct cddpi_weights_files *files);
void cddpi_weights_files_close(struct cddpi_weights_files *files); /* accepts zeroed ones */
/** cddpi_safetensors_look() for each of the files. */
cddp_status cddpi_weights_files_look(const struct cddpi_weights_files *files);
/** Whether @p path has the name of an index file. */
bool cddpi_weights_is_index(const char *path);
bool cddpi_name_ends_with(const char *name, const char *end);

/** Find the weights file in @p folder; release @p out with cddpi_free(). CDDP_ERR_NOT_FOUND: there
 *  is none; the text says what the folder holds instead. */
cddp_status cddpi_weights_find_in_folder(const char *folder, char **out);

/** The path of @p name in the folder of @p path; NULL: out of memory. */
char *cddpi_weights_beside(const char *path, const char *name);
/** Read a JSON file of at most @p most bytes; release it with json_decref(). */
cddp_status cddpi_weights_read_json(const char *path, size_t most, json_t **out_root);

/* names.c: finds the tensors of safetensors files by the names of a plain GPT-2. Programs wrap
 * models in other modules, and each wrapper adds a prefix to the names: "module." (DataParallel),
 * "_orig_mod." (torch.compile), "transformer." and "model." (heads). */

/* A tensor of the files. */
struct cddpi_named_tensor {
    const char *name; /* without the wrappers' prefixes */
    const cddp_tensor *tensor;
    size_t file; /* index in cddpi_weights_files */
};

struct cddpi_weights_names {
    struct cddpi_named_tensor *rows; /* sorted by name; names are unique */
    size_t count;
    char *text; /* storage of all names */
};

/** @param path  Names the files in errors.
 *  @param out   Release with cddpi_weights_names_fini().
 *  @return CDDP_ERR_FORMAT also if two tensors have the same name. */
cddp_status cddpi_weights_names_init(const struct cddpi_weights_files *files, const char *path,
                                     struct cddpi_weights_names *out);
void cddpi_weights_names_fini(struct cddpi_weights_names *names);

/** NULL: there is no tensor of that name. */
const struct cddpi_named_tensor *cddpi_weights_names_find(const struct cddpi_weights_names *names,
                                                          const char *name);

/** Return an error for the missing tensor @p name, which lists what the files have instead. */
cddp_status cddpi_weights_names_missing(const struct cddpi_weights_names *names, const char *path,
                                        const char *name);

struct cddpi_weights {
    enum cddpi_weights_format format;
    struct cddpi_gpt2_shape shape;
    double dropouts[CDDPI_GPT2_DROPOUTS]; /* used when the model was trained; 0 where the file does
                                             not say */
    struct cddpi_weights_view *views;     /* in cddp's order */
    size_t count;
    bool table_of_head;               /* the file stores wte under the name of lm_head */
    struct cddpi_weights_files files; /* or: */
    struct cddpi_mapped_file *mapped;
    const unsigned char *map;
    size_t map_bytes;
};

/** Return @p status, the result of reading or writing; CDDP_ERR_IO if the file was truncated
 *  meanwhile. */
cddp_status cddpi_weights_checked(const struct cddpi_weights *weights, cddp_status status);

/** Allocate the views of a file whose shape is known. */
cddp_status cddpi_weights_make_views(struct cddpi_weights *weights, const char *path);

/** Find the GPT-2 in the safetensors files that @p weights has open. */
cddp_status cddpi_weights_place_safetensors(struct cddpi_weights *weights, const char *path);

/** Whether the file starts like an llm.c model. Fails if it starts like neither format. */
cddp_status cddpi_weights_sniff(const char *path, bool *out_llmc);
/** The same for an llm.c file. */
cddp_status cddpi_weights_open_llmc(struct cddpi_weights *weights, const char *path);
cddp_status cddpi_weights_write_llmc(const struct cddpi_weights *weights, const char *path,
                                     cddp_type type, int64_t heads);

/** Read rows [@p first, @p first + @p rows) of tensor @p index as f32, in cddp's layout or
 *  @p transposed. Rows are counted in the output's layout; a vector is one row. */
void cddpi_weights_rows(const struct cddpi_weights *weights, size_t index, bool transposed,
                        int64_t first, int64_t rows, float *out);

/** Whether both have the same @p count elements after conversion to f32. */
bool cddpi_weights_same(const struct cddpi_weights_view *a, const struct cddpi_weights_view *b,
                        size_t count);

struct cddpi_writer;
/** Write all of tensor @p index as @p type. */
cddp_status cddpi_weights_put(const struct cddpi_weights *weights, size_t index, bool transposed,
                              cddp_type type, struct cddpi_writer *writer);

#endif
