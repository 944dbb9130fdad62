/* dataset.h - samples by index, in memory that ranks of a machine share: images of bytes with a
 * class each, or sequences of tokens. Read-only after opening, so any thread may read. */
#ifndef CDDPI_DATA_DATASET_H
#define CDDPI_DATA_DATASET_H

#include <cddp/group.h>

enum cddpi_dataset_kind { CDDPI_DATASET_IMAGES, CDDPI_DATASET_TOKENS };

/* Tokens in a row, all of a file or a part of it. Little-endian, aligned to their size. */
struct cddpi_token_shard {
    const char *path; /* for texts of failures */
    const void *tokens;
    uint64_t token_count;
    uint64_t first_token;    /* number in the file of the first one here */
    uint64_t first_sequence; /* number in the dataset of its first sequence */
};

/* Image files, one a sample, which are decoded when a sample is made. */
struct cddpi_image_files {
    char *root;        /* the folder, as it was named */
    const char *names; /* below it, each with a NUL at its end */
    uint64_t *offsets; /* of each sample's in names */
    uint16_t *labels;
    size_t count;
    size_t *firsts; /* the first sample of each of its class_count classes */
    size_t class_count;
};

struct cddpi_dataset {
    uint64_t count; /* samples: images, or sequences of tokens */
    int channels, height, width;
    int classes;                           /* tokens: the vocabulary, each is below it */
    const uint8_t *images;                 /* count x channels x height x width; NULL: see files */
    const uint8_t *labels;                 /* count; NULL: see the next */
    const uint16_t *wide_labels;           /* count */
    const struct cddpi_image_files *files; /* where images are if not in memory; else NULL */
    struct cddpi_dataset_memory *memory;   /* what holds them */
    enum cddpi_dataset_kind kind;
    /* tokens: a sequence is `context` of them and the one that follows, which is also the first of
     * the next sequence: each token is predicted once an epoch, but for a shard's first and its
     * remainder, too few for a sequence */
    int context;
    int token_bytes; /* 2 or 4 */
    const struct cddpi_token_shard *shards;
    size_t shard_count;
    uint64_t token_count;  /* of all shards */
    uint64_t unused_count; /* how many of them are remainders */
};

/** Open IDX files (http://yann.lecun.com/exdb/mnist/: unsigned bytes, 3 dimensions for images and 1
 * for labels; also 4 dimensions N x C x H x W), plain or gzip'd, told apart by content. With a @p
 * group (all its ranks call this) one rank of a machine inflates and the others map what it made;
 * NULL: alone.
 *  @param classes  Labels must be below it; 0: one more than the largest label.
 *  @return CDDP_OK on all ranks or an error on all ranks: CDDP_ERR_NOT_FOUND, CDDP_ERR_FORMAT
 * (names the file, what is wrong and where), CDDP_ERR_IO, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_dataset_open_idx(const char *images_path, const char *labels_path,
                                                int classes, cddp_group *group,
                                                struct cddpi_dataset *out);

/** Open a folder of images as torchvision's ImageFolder does: a sub-folder a class, in the order of
 * their names; JPEG and PNG files below, of any sizes. One rank of a machine lists them, the others
 * map the list; collective with a @p group. No image is read.
 *  @param size  Height and width of samples, 1 to 4096, which have 3 channels.
 *  @param like  Open, and such a folder: the classes are its classes, by name; NULL: those there
 * are.
 *  @return as above, and CDDP_ERR_UNAVAILABLE: the build lacks a library for such files. */
CDDP_CHECKED cddp_status cddpi_dataset_open_image_folder(const char *root, int size,
                                                         const struct cddpi_dataset *like,
                                                         cddp_group *group,
                                                         struct cddpi_dataset *out);

/** The name of a class: what a '/' or NUL ends. */
const char *cddpi_image_files_class(const struct cddpi_image_files *files, int number);

/** Open files of tokens in llm.c's form: 256 little-endian 32-bit numbers, of which the first are
 *  20240520, 1 and how many tokens of 16 bits follow (GPT-2's), or 20240801, 7 and how many of 32
 *  bits (Llama 3's). Every rank maps them, and none reads them through; collective with a
 *  @p group.
 *  @param patterns    As cddpi_paths_find() takes them; shards lie in the order that it gives.
 *  @param context     Tokens of a sequence, without the one that follows it.
 *  @param vocabulary  Tokens must be below it; 0: 50257 or 128256, those of the two forms.
 *  @return as above, and what cddpi_paths_find() says; CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddpi_dataset_open_tokens(char *const *patterns, size_t pattern_count,
                                                   int context, int vocabulary, cddp_group *group,
                                                   struct cddpi_dataset *out);

struct cddpi_text_options {
    char *const *patterns; /* as above; borrowed, as all here */
    size_t pattern_count;
    const char *vocabulary; /* as cddpi_tokenizer_open() takes it; NULL: "" */
    int context;
    double test_fraction; /* in (0, 1): the part that is held back for tests */
};

/** Open text files, plain or gzip'd, as one text, with a token between two files that ends a text.
 *  One rank of a machine makes tokens of it, the others map them; collective with a @p group.
 *  @param out       Its classes are the vocabulary.
 *  @param out_test  The end of the text, of test_fraction of its tokens; NULL: all is in @p out.
 *  @return as above, and what cddpi_tokenizer_open() says. */
CDDP_CHECKED cddp_status cddpi_dataset_open_text(const struct cddpi_text_options *options,
                                                 cddp_group *group, struct cddpi_dataset *out,
                                                 struct cddpi_dataset *out_test);

/** Random images, the same everywhere, in memory of this process's own: for benchmarks.
 *  @param shape    Channels, height, width.
 *  @param classes  At most 65536.
 *  @param test     Others than those to train on.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_dataset_open_synthetic_images(const int shape[3], int classes,
                                                             uint64_t count, bool test,
                                                             struct cddpi_dataset *out);
/** Random tokens likewise: @p count sequences; the vocabulary is at most 65536. */
CDDP_CHECKED cddp_status cddpi_dataset_open_synthetic_tokens(int context, int vocabulary,
                                                             uint64_t count, bool test,
                                                             struct cddpi_dataset *out);

/** The memory that so many of them take; UINT64_MAX: more than can be counted. */
uint64_t cddpi_dataset_synthetic_images_bytes(const int shape[3], uint64_t count);
uint64_t cddpi_dataset_synthetic_tokens_bytes(int context, uint64_t count);

/** Whether what was read of @p dataset until now was in its files (mapped_file.h): to be asked
 *  before it is used.
 *  @param look  Also look whether they are as long as they were.
 *  @return CDDP_OK, CDDP_ERR_IO: names the file. */
CDDP_CHECKED cddp_status cddpi_dataset_check(const struct cddpi_dataset *dataset, bool look);

void cddpi_dataset_close(struct cddpi_dataset *dataset); /* accepts a zeroed or closed one */

/* A token that the vocabulary does not have. */
struct cddpi_token_fault {
    const char *path; /* the shard's; NULL: there is none */
    uint64_t token;   /* its number in the file */
    uint32_t value;
};

/** Copy sequence @p number: its first `context` tokens to @p input, and to @p label what follows
 *  each of them. false: one is outside the vocabulary (files are too large to look through when
 *  they are opened); both hold numbers that are not to be used then, and @p out says which. */
bool cddpi_dataset_token_sequence(const struct cddpi_dataset *dataset, uint64_t number,
                                  int32_t *input, int32_t *label, struct cddpi_token_fault *out);

#endif
