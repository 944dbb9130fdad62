/* dataset.h - owns a dataset opened in memory that the ranks of a machine share: images of bytes
 * with one class each, sequences of tokens, or numbers with a class or real targets each, addressed
 * by index. Read-only after opening, so any thread may read. */
#ifndef CDDPI_DATA_DATASET_H
#define CDDPI_DATA_DATASET_H

#include <cddp/group.h>
#include <cddp/sampler.h>

enum cddpi_dataset_kind { CDDPI_DATASET_IMAGES, CDDPI_DATASET_TOKENS, CDDPI_DATASET_NUMBERS };

struct cddpi_number_shard;  /* numbers.h */
struct cddpi_normalization; /* normalization.h */

/* Consecutive tokens: a whole file or a part of one. Little-endian, aligned to their size. */
struct cddpi_token_shard {
    const char *path; /* for error texts */
    const void *tokens;
    uint64_t token_count;
    uint64_t first_token;    /* index of its first token in the file */
    uint64_t first_sequence; /* index of its first sequence in the dataset */
};

/* Image files, one per sample. A file is decoded each time its sample is made. */
struct cddpi_image_files {
    char *root;        /* the folder, as the user named it */
    const char *names; /* paths below root, each ends with a NUL */
    uint64_t *offsets; /* where each sample's path begins in names */
    uint16_t *labels;
    size_t count;
    size_t *firsts; /* the first sample of each class; class_count entries */
    size_t class_count;
};

struct cddpi_dataset {
    uint64_t count; /* number of samples: images, or sequences of tokens */
    int channels, height, width;
    int classes;                 /* for tokens: the vocabulary size; every token is below it */
    const uint8_t *images;       /* count x channels x height x width; NULL: see files */
    const uint8_t *labels;       /* count labels; NULL: see wide_labels */
    const uint16_t *wide_labels; /* count labels */
    const struct cddpi_image_files *files; /* the image files; NULL: images are in memory */
    struct cddpi_dataset_memory *memory;   /* owns what the pointers above point to */
    enum cddpi_dataset_kind kind;
    /* Tokens: a sequence is `context` tokens and the one that follows them, which is also the first
     * token of the next sequence. So each token is predicted once an epoch, except for a shard's
     * first token and its remainder, which is too short for a sequence. */
    int context;
    int token_bytes; /* 2 or 4 */
    const struct cddpi_token_shard *shards;
    size_t shard_count;
    uint64_t token_count;  /* of all shards */
    uint64_t unused_count; /* how many of token_count are remainders */
    /* Numbers: a sample is channels x height x width of them. */
    const struct cddpi_number_shard *number_shards;
    size_t number_shard_count;
    int target_count; /* real targets of a sample; 0: a sample has a class instead */
    const cddp_sampler
        *split; /* sample i is row split[split_first + i] of all shards; NULL: row i */
    uint64_t split_first;
    const struct cddpi_normalization *normalization; /* borrowed; NULL: as the files have them */
    const char *columns;  /* what the numbers are, in JSON: see csv_schema.h; NULL: unknown */
    const float *missing; /* what each number of a sample gets where it is missing; NULL: nothing
                             may be missing */
};

/** How many numbers an image or a sample of numbers has. */
static inline size_t cddpi_dataset_elements(const struct cddpi_dataset *dataset)
{
    return (size_t)dataset->channels * (size_t)dataset->height * (size_t)dataset->width;
}

/** How many numbers say what the outputs for a sample should be: its class, the token after each of
 *  its tokens, or its real targets. */
static inline size_t cddpi_dataset_labels(const struct cddpi_dataset *dataset)
{
    if (dataset->kind == CDDPI_DATASET_TOKENS) {
        return (size_t)dataset->context;
    }
    return dataset->target_count > 0 ? (size_t)dataset->target_count : 1;
}

/** Open IDX files (http://yann.lecun.com/exdb/mnist/: unsigned bytes, 3 dimensions for images and 1
 *  for labels; also 4 dimensions N x C x H x W), plain or gzip'd, recognised by content. Collective
 *  in @p group: one rank of each machine inflates, and the others map its result. NULL: this
 *  process alone.
 *  @param classes  Every label must be below it; 0: use the largest label plus one.
 *  @return CDDP_OK on all ranks, or an error on all ranks: CDDP_ERR_NOT_FOUND, CDDP_ERR_FORMAT (the
 *          text names the file, the fault and its place), CDDP_ERR_IO, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_dataset_open_idx(const char *images_path, const char *labels_path,
                                                int classes, cddp_group *group,
                                                struct cddpi_dataset *out);

struct cddpi_data_file;

/** Open the images of the IDX file @p path, without labels.
 *  @param file       Owns the images; release with cddpi_data_file_close().
 *  @param out_shape  How many there are; channels, height and width of each.
 *  @return as above. */
CDDP_CHECKED cddp_status cddpi_idx_open_images(const char *path, struct cddpi_data_file *file,
                                               int64_t out_shape[4], const uint8_t **out);

/** Open a folder of images as torchvision's ImageFolder does: each sub-folder is a class, in the
 *  order of their names, and holds JPEG and PNG files of any sizes. Collective in @p group: one
 *  rank of each machine lists the files, and the others map its list. No image is read.
 *  @param size  Height and width of samples, 1 to 4096. Samples have 3 channels.
 *  @param like  Another open image folder, whose classes are used, matched by name; NULL: the
 *               classes are the sub-folders of @p root.
 *  @return as above, and CDDP_ERR_UNAVAILABLE: the build lacks a library for such files. */
CDDP_CHECKED cddp_status cddpi_dataset_open_image_folder(const char *root, int size,
                                                         const struct cddpi_dataset *like,
                                                         cddp_group *group,
                                                         struct cddpi_dataset *out);

/** Move a part of the images of each class of @p train, which is such a folder just opened, to
 *  @p out_test. The choice depends on the names of files only: it is the same on all ranks and
 *  in every run. Of a class, one image at least is held back, and one at least is left; a class of
 * one image is only trained on.
 *  @param test_fraction  In (0, 1): the part of each class.
 *  @return CDDP_OK, CDDP_ERR_FORMAT (no class has two images), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_dataset_split_image_folder(struct cddpi_dataset *train,
                                                          double test_fraction,
                                                          struct cddpi_dataset *out_test);

/** Open token files in llm.c's format: a header of 256 little-endian 32-bit numbers, then the
 *  tokens. The header begins with 20240520, 1 and the number of 16-bit tokens (GPT-2), or with
 *  20240801, 7 and the number of 32-bit tokens (Llama 3). Every rank maps the files; no rank reads
 *  them through. Collective in @p group.
 *  @param patterns    As cddpi_paths_find() takes them. Shards are in the order that it returns.
 *  @param context     Tokens of a sequence, without the one that follows it.
 *  @param vocabulary  Every token must be below it; 0: 50257 (GPT-2) or 128256 (Llama 3).
 *  @return as above, and as cddpi_paths_find(); CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddpi_dataset_open_tokens(char *const *patterns, size_t pattern_count,
                                                   int context, int vocabulary, cddp_group *group,
                                                   struct cddpi_dataset *out);

struct cddpi_text_options {
    char *const *patterns; /* as above; borrowed, like all pointers here */
    size_t pattern_count;
    const char *vocabulary; /* as cddpi_tokenizer_open() takes it; NULL: "" */
    int context;
    double test_fraction; /* in (0, 1): the part held out as test data */
};

/** Open text files, plain or gzip'd, as one text, with an end-of-text token between two files.
 *  Collective in @p group: one rank of each machine encodes the text to tokens, and the others map
 *  them.
 *  @param out       Its classes are the vocabulary.
 *  @param out_test  The last part of the text, test_fraction of its tokens; NULL: all tokens go to
 *          @p out.
 *  @return as above, and as cddpi_tokenizer_open(). */
CDDP_CHECKED cddp_status cddpi_dataset_open_text(const struct cddpi_text_options *options,
                                                 cddp_group *group, struct cddpi_dataset *out,
                                                 struct cddpi_dataset *out_test);

/* Whom to blame for a file: words a failure with the key of train.conf that named it. Called before
 * ranks agree on the failure, so that all of them get the same text. All zeros: nobody. */
struct cddpi_data_blame {
    cddp_status (*word)(const void *context, const char *key, cddp_status status);
    const void *context;
};

/** Word the failure @p status. @return @p status; CDDP_OK is returned at once. */
CDDP_CHECKED cddp_status cddpi_data_blame(const struct cddpi_data_blame *blame, const char *key,
                                          cddp_status status);

/* NumPy's files; all pointers are borrowed. */
struct cddpi_npy_options {
    char *const *inputs; /* as patterns above: .npy files of samples, or .npz archives with both */
    size_t input_count;
    char *const *targets; /* .npy files, one for each of inputs; none for archives */
    size_t target_count;
    const char *input_name, *target_name; /* of the arrays in an archive */
    bool real_targets;                    /* regression: any numbers; else integers, classes */
    int classes;                          /* 0: the largest class plus one */
    const struct cddpi_dataset *like;   /* whose samples and targets these must be like, or NULL */
    const char *input_key, *target_key; /* that name the files, for blame */
    struct cddpi_data_blame blame;
};

/** Open .npy and .npz files, whose arrays' first dimension is the samples. A sample of one
 *  dimension is that many channels of 1 x 1, of two an image of one channel; of more than three,
 * the first ones are multiplied to channels. The files are mapped; compressed members are inflated
 * by each rank. Collective in @p group.
 *  @return as above, and as cddpi_paths_find(). */
CDDP_CHECKED cddp_status cddpi_dataset_open_npy(const struct cddpi_npy_options *options,
                                                cddp_group *group, struct cddpi_dataset *out);

/** Read channels, height and width of the samples in the first file of @p options.
 *  @return as above. */
CDDP_CHECKED cddp_status cddpi_npy_shape(const struct cddpi_npy_options *options, int out[3]);

/** Random images for benchmarks, the same on every machine, in this process's own memory.
 *  @param shape    Channels, height, width.
 *  @param classes  At most 65536.
 *  @param test     Make the test images, which differ from those to train on.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_dataset_open_synthetic_images(const int shape[3], int classes,
                                                             uint64_t count, bool test,
                                                             struct cddpi_dataset *out);
/** The same for random tokens: @p count sequences; the vocabulary is at most 65536. */
CDDP_CHECKED cddp_status cddpi_dataset_open_synthetic_tokens(int context, int vocabulary,
                                                             uint64_t count, bool test,
                                                             struct cddpi_dataset *out);

/** The bytes of memory that @p count synthetic samples take; UINT64_MAX: the number overflows. */
uint64_t cddpi_dataset_synthetic_images_bytes(const int shape[3], uint64_t count);
uint64_t cddpi_dataset_synthetic_tokens_bytes(int context, uint64_t count);

/** Check that everything read from @p dataset until now was really in its files (see
 *  mapped_file.h). Call it after reading and before using what was read.
 *  @param look  Also check that the files still have their length.
 *  @return CDDP_OK; CDDP_ERR_IO: the text names the file. */
CDDP_CHECKED cddp_status cddpi_dataset_check(const struct cddpi_dataset *dataset, bool look);

void cddpi_dataset_close(struct cddpi_dataset *dataset); /* accepts a zeroed or closed one */

enum { CDDPI_DATA_DIGESTS = 2 };

/** Digests that tell whether a dataset is the same as at an earlier start: one of its images (or
 *  tokens, or image files), one of its labels. File names and compression do not matter. Small data
 *  are hashed whole; of large data, a few MiB of evenly spread samples. 0: unknown, because an
 * image file cannot be read now or there are no such data. */
void cddpi_dataset_digest(const struct cddpi_dataset *dataset, uint64_t out[CDDPI_DATA_DIGESTS]);

/* A token that is outside the vocabulary. */
struct cddpi_token_fault {
    const char *path; /* the shard's; NULL: no such token */
    uint64_t token;   /* its index in the file */
    uint32_t value;
};

/** Copy sequence @p number: its first `context` tokens to @p input, and the token that follows each
 *  of them to @p label. Returns false if a token is outside the vocabulary: files are too large to
 *  check all tokens when they are opened. Then @p input and @p label must not be used, and @p out
 *  names the token. */
bool cddpi_dataset_token_sequence(const struct cddpi_dataset *dataset, uint64_t number,
                                  int32_t *input, int32_t *label, struct cddpi_token_fault *out);

#endif
