/* synthetic.c - owns datasets of random numbers for benchmarks: any number of samples, of any
 * shape, without files. They are the same on every rank and in every run, and nothing can be
 * learned from them. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/dataset_memory.h"

enum { PHILOX_BYTES = 4 * sizeof(uint32_t) }; /* made at a time */

static const char *const names[] = {"synthetic data to train on", "synthetic data to evaluate on"};

static uint64_t multiply(uint64_t a, uint64_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}

uint64_t cddpi_dataset_synthetic_images_bytes(const int shape[3], uint64_t count)
{
    uint64_t image = multiply(multiply((uint64_t)shape[0], (uint64_t)shape[1]), (uint64_t)shape[2]);

    return multiply(count, image > UINT64_MAX - 2 ? image : image + sizeof(uint16_t));
}

uint64_t cddpi_dataset_synthetic_tokens_bytes(int context, uint64_t count)
{
    return multiply(multiply(count, (uint64_t)context), sizeof(uint16_t));
}

/* Turn @p mapping into file @p index of @p memory. */
static cddp_status keep_mapping(const char *name, struct cddpi_growable_mapping *mapping,
                                struct cddpi_dataset_memory *memory, size_t index)
{
    cddp_status status = cddpi_data_file_freeze(name, mapping, &memory->files[index]);

    if (status != CDDP_OK) {
        cddpi_growable_mapping_free(mapping);
    }
    return status;
}

/* Make random bytes. */
static cddp_status make_images(const char *name, uint32_t part, size_t bytes,
                               struct cddpi_dataset_memory *memory)
{
    struct cddpi_philox stream = cddpi_philox_stream(0, CDDPI_RANDOM_SYNTHETIC, 2 * part);
    struct cddpi_growable_mapping mapping;

    CDDPI_TRY(
        cddpi_growable_mapping_create(name, cddpi_align_to(bytes, PHILOX_BYTES), false, &mapping));
    for (size_t i = 0; i < mapping.bytes / PHILOX_BYTES; i++) {
        cddpi_philox4(&stream, i, (uint32_t *)(void *)(mapping.data + i * PHILOX_BYTES));
    }
    return keep_mapping(name, &mapping, memory, 0);
}

/* Make one 16-bit number below @p limit from each 32 random bits: labels or tokens. */
static cddp_status make_numbers(const char *name, uint32_t part, size_t count, uint32_t limit,
                                struct cddpi_dataset_memory *memory, size_t index)
{
    struct cddpi_philox stream = cddpi_philox_stream(0, CDDPI_RANDOM_SYNTHETIC, 2 * part + 1);
    struct cddpi_growable_mapping mapping;
    uint16_t *numbers;
    uint32_t words[4];

    CDDPI_TRY(cddpi_growable_mapping_create(
        name, cddpi_align_to(count * sizeof *numbers, PHILOX_BYTES), false, &mapping));
    numbers = (uint16_t *)(void *)mapping.data;
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) {
            cddpi_philox4(&stream, i / 4, words);
        }
        numbers[i] = (uint16_t)((uint64_t)words[i % 4] * limit >> 32);
    }
    return keep_mapping(name, &mapping, memory, index);
}

cddp_status cddpi_dataset_open_synthetic_images(const int shape[3], int classes, uint64_t count,
                                                bool test, struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {.count = count,
                                    .channels = shape[0],
                                    .height = shape[1],
                                    .width = shape[2],
                                    .classes = classes,
                                    .kind = CDDPI_DATASET_IMAGES};
    const char *name = names[test];
    size_t bytes;
    cddp_status status;

    if (classes < 1 || classes > UINT16_MAX + 1 || shape[0] < 1 || shape[1] < 1 || shape[2] < 1 ||
        count < 1 ||
        count > SIZE_MAX / 4 / (size_t)shape[0] / (size_t)shape[1] / (size_t)shape[2]) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: %llu images of %d x %d x %d in %d classes cannot be made: each "
                          "number must be at least 1, and classes at most 65536",
                          name, (unsigned long long)count, shape[0], shape[1], shape[2], classes);
    }
    dataset.memory = cddpi_dataset_memory_create(2, 0, NULL);
    if (dataset.memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    bytes = (size_t)count * (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2];
    CDDPI_TRY_GOTO(fail, status, make_images(name, test, bytes, dataset.memory));
    CDDPI_TRY_GOTO(fail, status,
                   make_numbers(name, test, (size_t)count, (uint32_t)classes, dataset.memory, 1));
    dataset.images = dataset.memory->files[0].data;
    dataset.wide_labels = (const uint16_t *)(const void *)dataset.memory->files[1].data;
    *out = dataset;
    return CDDP_OK;

fail:
    cddpi_dataset_close(&dataset);
    return status;
}

cddp_status cddpi_dataset_open_synthetic_tokens(int context, int vocabulary, uint64_t count,
                                                bool test, struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {
        .context = context, .classes = vocabulary, .token_bytes = sizeof(uint16_t)};
    const char *name = names[test];
    size_t tokens = (size_t)count * (size_t)context + 1;
    cddp_status status;

    if (vocabulary < 1 || vocabulary > UINT16_MAX + 1 || context < 1 || count < 1 ||
        count > SIZE_MAX / 4 / (size_t)context) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: %llu sequences of %d tokens of a vocabulary of %d cannot be made: "
                          "each number must be at least 1, and the vocabulary at most 65536",
                          name, (unsigned long long)count, context, vocabulary);
    }
    dataset.memory = cddpi_dataset_memory_create(1, 1, NULL);
    if (dataset.memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    CDDPI_TRY_GOTO(fail, status,
                   make_numbers(name, test, tokens, (uint32_t)vocabulary, dataset.memory, 0));
    *dataset.memory->shards = (struct cddpi_token_shard){
        .path = name, .tokens = dataset.memory->files[0].data, .token_count = tokens};
    CDDPI_TRY_GOTO(fail, status, cddpi_tokens_lay_out(dataset.memory->shards, 1, &dataset));
    *out = dataset;
    return CDDP_OK;

fail:
    cddpi_dataset_close(&dataset);
    return status;
}
