/* numbers.h - datasets of numbers: arrays of samples and of their classes or real targets, in
 * memory or mapped, in the element types that NumPy has. Formats describe their arrays as shards,
 * and batches read samples of any of them as float32. Any thread may read. */
#ifndef CDDPI_DATA_NUMBERS_H
#define CDDPI_DATA_NUMBERS_H

#include "data/dataset.h"

/* Little-endian, at any alignment. */
enum cddpi_number_type {
    CDDPI_NUMBER_F32,
    CDDPI_NUMBER_F64,
    CDDPI_NUMBER_F16,
    CDDPI_NUMBER_U8,
    CDDPI_NUMBER_I8,
    CDDPI_NUMBER_U16,
    CDDPI_NUMBER_I16,
    CDDPI_NUMBER_U32,
    CDDPI_NUMBER_I32,
    CDDPI_NUMBER_U64,
    CDDPI_NUMBER_I64,
    CDDPI_NUMBER_TYPES
};

size_t cddpi_number_bytes(enum cddpi_number_type type);
bool cddpi_number_is_real(enum cddpi_number_type type);
/** Convert @p count numbers at @p values to float32, each rounded once. */
void cddpi_numbers_to_f32(enum cddpi_number_type type, const void *values, size_t count,
                          float *out);

/** Whether numbers of this type may differ from their floats. */
bool cddpi_number_rounds(enum cddpi_number_type type);

struct cddpi_numbers {
    const void *values;
    enum cddpi_number_type type;
};

/** Number @p index of @p numbers, which are of a type that rounds. */
double cddpi_number_at(const struct cddpi_numbers *numbers, uint64_t index);

/* Consecutive samples: a file or a part of one. */
struct cddpi_number_shard {
    const char *path, *target_path; /* for error texts */
    struct cddpi_numbers inputs;    /* count x channels x height x width */
    struct cddpi_numbers targets;   /* count x target_count; or count classes, of an integer type */
    uint64_t count;                 /* > 0 */
    uint64_t first_row;             /* of all shards' samples; cddpi_numbers_lay_out() sets it */
};

/** Describe @p count shards (borrowed; usually dataset_memory's, which releases them) in @p out,
 *  whose channels, height, width and target_count are set already. Classes are read through.
 *  @param classes  Of samples without real targets: every class must be below it; 0: use the
 *                  largest class plus one.
 *  @return CDDP_OK, CDDP_ERR_FORMAT with a text that begins with the shard's target_path. */
CDDP_CHECKED cddp_status cddpi_numbers_lay_out(struct cddpi_number_shard *shards, size_t count,
                                               int classes, struct cddpi_dataset *out);

/** Check that all ranks have the same shards, by their sizes and types. Collective.
 *  @return CDDP_OK, CDDP_ERR_MISMATCH, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_numbers_agree(cddp_group *group,
                                             const struct cddpi_dataset *dataset);

/** The order of @p rows samples of which cddpi_numbers_split() holds back the last ones.
 *  @param path       For error texts.
 *  @param out        Release with cddp_sampler_destroy().
 *  @param out_count  How many at its start are trained on.
 *  @return as cddpi_numbers_split(). */
CDDP_CHECKED cddp_status cddpi_numbers_order(const char *path, uint64_t rows, double fraction,
                                             cddp_sampler **out, uint64_t *out_count);

/** Move a part of the samples of @p dataset to @p out_test, which shares its memory. The same
 *  samples are chosen in every run, at random but independent of the seed, because files are often
 *  sorted by class.
 *  @param fraction  In (0, 1). Each part has one sample at least.
 *  @return CDDP_OK; CDDP_ERR_FORMAT: there is only one sample; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_numbers_split(struct cddpi_dataset *dataset, double fraction,
                                             struct cddpi_dataset *out_test);

/** Write sample @p number as float32 to @p input, and its class (int32_t) or real targets (float)
 *  to @p label. Returns false, with the reason in @p text, if a number is not finite as float32 or
 * a class is out of range, because its file has changed. */
bool cddpi_dataset_numbers(const struct cddpi_dataset *dataset, uint64_t number, float *input,
                           int32_t *label, char *text, size_t text_bytes);

#endif
