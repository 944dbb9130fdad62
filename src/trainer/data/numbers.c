/* numbers.c - owns datasets of numbers: how elements of each type become float32, and which row of
 * which shard is a sample. */
#include "data/numbers.h"

#include "base/error.h"
#include "base/hash.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/normalization.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASSES_MAX = 1 << 16 };
enum { SPLIT_SEED = 20 }; /* any number, but always this one */

/* The elements may have any alignment, so each is copied out; compilers make this a load. */
#define CONVERT(name, element)                                                                     \
    static void name(const void *values, size_t count, float *out)                                 \
    {                                                                                              \
        const char *from = values;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            element value;                                                                         \
                                                                                                   \
            memcpy(&value, from + i * sizeof value, sizeof value);                                 \
            out[i] = (float)value;                                                                 \
        }                                                                                          \
    }

CONVERT(from_f64, double)
CONVERT(from_u8, uint8_t)
CONVERT(from_i8, int8_t)
CONVERT(from_u16, uint16_t)
CONVERT(from_i16, int16_t)
CONVERT(from_u32, uint32_t)
CONVERT(from_i32, int32_t)
CONVERT(from_u64, uint64_t)
CONVERT(from_i64, int64_t)

static void from_f32(const void *values, size_t count, float *out)
{
    memcpy(out, values, count * sizeof *out);
}

static float half_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7FFF) << 13;
    float value;

    if ((half & 0x7C00) == 0) {
        value = (float)(half & 0x3FF) * 0x1p-24f; /* 0 and subnormal numbers */
    } else {
        bits += (half & 0x7C00) == 0x7C00 ? 0x70000000U : 0x38000000U; /* the exponents' biases */
        memcpy(&value, &bits, sizeof value);
    }
    return half >> 15 != 0 ? -value : value;
}

static void from_f16(const void *values, size_t count, float *out)
{
    const char *from = values;

    for (size_t i = 0; i < count; i++) {
        uint16_t half;

        memcpy(&half, from + i * sizeof half, sizeof half);
        out[i] = half_to_float(half);
    }
}

static const struct {
    size_t bytes;
    bool is_signed;
    void (*convert)(const void *values, size_t count, float *out);
} types[CDDPI_NUMBER_TYPES] = {
    [CDDPI_NUMBER_F32] = {4, true, from_f32}, [CDDPI_NUMBER_F64] = {8, true, from_f64},
    [CDDPI_NUMBER_F16] = {2, true, from_f16}, [CDDPI_NUMBER_U8] = {1, false, from_u8},
    [CDDPI_NUMBER_I8] = {1, true, from_i8},   [CDDPI_NUMBER_U16] = {2, false, from_u16},
    [CDDPI_NUMBER_I16] = {2, true, from_i16}, [CDDPI_NUMBER_U32] = {4, false, from_u32},
    [CDDPI_NUMBER_I32] = {4, true, from_i32}, [CDDPI_NUMBER_U64] = {8, false, from_u64},
    [CDDPI_NUMBER_I64] = {8, true, from_i64}};

size_t cddpi_number_bytes(enum cddpi_number_type type)
{
    return types[type].bytes;
}

bool cddpi_number_is_real(enum cddpi_number_type type)
{
    return type <= CDDPI_NUMBER_F16;
}

void cddpi_numbers_to_f32(enum cddpi_number_type type, const void *values, size_t count, float *out)
{
    types[type].convert(values, count, out);
}

static const char *at(const struct cddpi_numbers *numbers, uint64_t index)
{
    return (const char *)numbers->values + index * types[numbers->type].bytes;
}

bool cddpi_number_rounds(enum cddpi_number_type type)
{
    return type == CDDPI_NUMBER_F64 || (types[type].bytes >= 4 && !cddpi_number_is_real(type));
}

double cddpi_number_at(const struct cddpi_numbers *numbers, uint64_t index)
{
    const char *from = at(numbers, index);
    bool is_signed = types[numbers->type].is_signed;
    double real;
    uint64_t wide;
    uint32_t narrow;

    if (numbers->type == CDDPI_NUMBER_F64) {
        memcpy(&real, from, sizeof real);
        return real;
    }
    if (types[numbers->type].bytes == sizeof narrow) {
        memcpy(&narrow, from, sizeof narrow);
        return is_signed ? (double)(int32_t)narrow : (double)narrow;
    }
    memcpy(&wide, from, sizeof wide);
    return is_signed ? (double)(int64_t)wide : (double)wide;
}

/* The class in @p row; -1: it is below 0 or too large for an int32_t. */
static int32_t class_at(const struct cddpi_numbers *classes, uint64_t row)
{
    const char *from = at(classes, row);
    size_t bytes = types[classes->type].bytes;
    uint64_t value = 0;

    memcpy(&value, from, bytes); /* little-endian */
    if (value > INT32_MAX || (types[classes->type].is_signed && value >> (8 * bytes - 1) != 0)) {
        return -1;
    }
    return (int32_t)value;
}

static cddp_status check_classes(const struct cddpi_number_shard *shard, int limit, int *largest)
{
    for (uint64_t row = 0; row < shard->count; row++) {
        int32_t found = class_at(&shard->targets, row);

        if (found < 0 || found >= (limit > 0 ? limit : CLASSES_MAX)) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: the class of sample %" PRIu64
                              " is %s, but classes are 0 to %d%s",
                              shard->target_path, row, found < 0 ? "negative or huge" : "too large",
                              (limit > 0 ? limit : CLASSES_MAX) - 1,
                              limit > 0 ? "" : ": give real targets as floats");
        }
        *largest = found > *largest ? found : *largest;
    }
    return CDDP_OK;
}

cddp_status cddpi_numbers_lay_out(struct cddpi_number_shard *shards, size_t count, int classes,
                                  struct cddpi_dataset *out)
{
    int largest = 0;

    out->kind = CDDPI_DATASET_NUMBERS;
    out->number_shards = shards;
    out->number_shard_count = count;
    out->count = 0;
    for (size_t i = 0; i < count; i++) {
        shards[i].first_row = out->count;
        out->count += shards[i].count;
        if (out->target_count == 0) {
            CDDPI_TRY(check_classes(&shards[i], classes, &largest));
        }
    }
    out->classes = out->target_count > 0 ? out->target_count : classes > 0 ? classes : largest + 1;
    return CDDP_OK;
}

cddp_status cddpi_numbers_agree(cddp_group *group, const struct cddpi_dataset *dataset)
{
    static const char *const names[] = {
        "number of samples in the files", "number of samples to train on", "numbers of a sample",
        "number of classes or targets", "order of sizes and types of numbers"};
    uint64_t facts[] = {0, dataset->count, cddpi_dataset_elements(dataset),
                        (uint64_t)dataset->classes, cddpi_hash_start};

    for (size_t i = 0; i < dataset->number_shard_count; i++) {
        const struct cddpi_number_shard *shard = &dataset->number_shards[i];

        facts[0] += shard->count;
        facts[4] = cddpi_hash_add(facts[4], shard->count);
        facts[4] = cddpi_hash_add(facts[4], (uint64_t)shard->inputs.type);
        facts[4] = cddpi_hash_add(facts[4], (uint64_t)shard->targets.type);
    }
    return cddpi_agree_on(group, dataset->number_shards[0].path, names, facts,
                          sizeof facts / sizeof *facts);
}

cddp_status cddpi_numbers_order(const char *path, uint64_t rows, double fraction,
                                cddp_sampler **out, uint64_t *out_count)
{
    uint64_t held = (uint64_t)((double)rows * fraction);

    if (rows < 2) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: there is only 1 sample: none can be held back for evaluation", path);
    }
    held = held < 1 ? 1 : held >= rows ? rows - 1 : held;
    *out_count = rows - held;
    return cddp_sampler_create(CDDP_ORDER_RANDOM, rows, SPLIT_SEED, out);
}

cddp_status cddpi_numbers_split(struct cddpi_dataset *dataset, double fraction,
                                struct cddpi_dataset *out_test)
{
    uint64_t rows = dataset->count;

    CDDPI_TRY(cddpi_numbers_order(dataset->number_shards[0].path, rows, fraction,
                                  &dataset->memory->split, &dataset->count));
    dataset->split = dataset->memory->split;
    dataset->memory->datasets++;
    *out_test = *dataset;
    out_test->count = rows - dataset->count;
    out_test->split_first = dataset->count;
    return CDDP_OK;
}

/* Find the shard of @p row: the last one whose first row is not later. */
static const struct cddpi_number_shard *find_shard(const struct cddpi_dataset *dataset,
                                                   uint64_t row)
{
    size_t low = 0;
    size_t high = dataset->number_shard_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (dataset->number_shards[middle].first_row <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &dataset->number_shards[low];
}

static bool all_finite(const float *x, size_t count)
{
    unsigned strange = 0;

    for (size_t i = 0; i < count; i++) { /* no early end, so that this is a vector loop */
        strange |= fabsf(x[i]) <= 3.402823466e38F ? 0U : 1U;
    }
    return strange == 0;
}

/* Convert the @p count numbers of @p row, and check them. */
static bool read_row(const struct cddpi_numbers *numbers, const char *path, const char *what,
                     uint64_t row, size_t count, float *out, char *text, size_t text_bytes)
{
    types[numbers->type].convert(at(numbers, row * count), count, out);
    if (all_finite(out, count)) {
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(out[i])) {
            snprintf(text, text_bytes,
                     "%s: %s %zu of sample %" PRIu64 " is %s as float32, from which no model can "
                     "learn: remove the sample or replace the value",
                     path, what, i, row, isnan(out[i]) ? "NaN" : "infinite");
            break;
        }
    }
    return false;
}

bool cddpi_dataset_numbers(const struct cddpi_dataset *dataset, uint64_t number, float *input,
                           int32_t *label, char *text, size_t text_bytes)
{
    uint64_t row = dataset->split != NULL
                       ? cddp_sampler_at(dataset->split, dataset->split_first + number)
                       : number;
    const struct cddpi_number_shard *shard = find_shard(dataset, row);

    row -= shard->first_row;
    if (!read_row(&shard->inputs, shard->path, "number", row, cddpi_dataset_elements(dataset),
                  input, text, text_bytes)) {
        return false;
    }
    if (dataset->normalization != NULL) {
        cddpi_normalization_apply(dataset->normalization, cddpi_dataset_elements(dataset), input);
    }
    if (dataset->target_count > 0) {
        return read_row(&shard->targets, shard->target_path, "target", row,
                        (size_t)dataset->target_count, (float *)label, text, text_bytes);
    }
    *label = class_at(&shard->targets, row);
    if (*label >= 0 && *label < dataset->classes) {
        return true;
    }
    snprintf(text, text_bytes,
             "%s: the class of sample %" PRIu64 " is out of range now: the file has changed",
             shard->target_path, row);
    return false;
}
