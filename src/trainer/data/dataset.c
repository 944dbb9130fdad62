/* dataset.c - owns what datasets of all formats share: their memory, and which tokens of which
 * shard are a sample. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "kernels/cpu/cpu_tokens.h"

#include <string.h>

struct cddpi_dataset_memory *cddpi_dataset_memory_create(size_t files, size_t shards,
                                                         cddp_group *group)
{
    struct cddpi_dataset_memory *memory = cddpi_zalloc(sizeof *memory);

    if (memory != NULL) {
        memory->datasets = 1;
        memory->file_count = files;
        memory->files = cddpi_zalloc_array(files, sizeof *memory->files);
        memory->shards = shards > 0 ? cddpi_zalloc_array(shards, sizeof *memory->shards) : NULL;
    }
    if (memory == NULL || memory->files == NULL || (shards > 0 && memory->shards == NULL)) {
        if (memory != NULL) {
            cddpi_dataset_memory_release(memory);
        }
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to describe %zu files", files);
        if (group != NULL) {
            cddp_group_abort(group, "no memory while opening the data");
        }
        return NULL;
    }
    return memory;
}

void cddpi_dataset_memory_release(struct cddpi_dataset_memory *memory)
{
    if (--memory->datasets > 0) {
        return;
    }
    for (size_t i = 0; memory->files != NULL && i < memory->file_count; i++) {
        cddpi_data_file_close(&memory->files[i]);
    }
    cddpi_free(memory->files);
    cddpi_free(memory->shards);
    cddpi_paths_fini(&memory->paths);
    cddpi_image_files_free(memory->image_files);
    cddpi_image_files_free(memory->held_back);
    cddpi_free(memory->number_shards);
    cddp_sampler_destroy(memory->split);
    cddpi_free(memory->labels[0]);
    cddpi_free(memory->labels[1]);
    cddpi_free(memory);
}

cddp_status cddpi_data_blame(const struct cddpi_data_blame *blame, const char *key,
                             cddp_status status)
{
    return status != CDDP_OK && blame->word != NULL ? blame->word(blame->context, key, status)
                                                    : status;
}

cddp_status cddpi_dataset_check(const struct cddpi_dataset *dataset, bool look)
{
    const struct cddpi_dataset_memory *memory = dataset->memory;

    for (size_t i = 0; memory != NULL && i < memory->file_count; i++) {
        const struct cddpi_mapped_file *file = memory->files[i].file;

        CDDPI_TRY(look ? cddpi_mapped_file_look(file) : cddpi_mapped_file_check(file));
    }
    return CDDP_OK;
}

void cddpi_dataset_close(struct cddpi_dataset *dataset)
{
    if (dataset->memory != NULL) {
        cddpi_dataset_memory_release(dataset->memory);
    }
    memset(dataset, 0, sizeof *dataset);
}

cddp_status cddpi_tokens_lay_out(struct cddpi_token_shard *shards, size_t count,
                                 struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = *out;
    uint64_t context = (uint64_t)dataset.context;

    dataset.kind = CDDPI_DATASET_TOKENS;
    dataset.shards = shards;
    dataset.shard_count = count;
    dataset.count = 0;
    dataset.token_count = 0;
    dataset.unused_count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t tokens = shards[i].token_count;
        bool is_rest = i > 0 && i + 1 == count;

        shards[i].first_sequence = dataset.count;
        dataset.token_count += tokens;
        if (tokens <= context && is_rest) {
            dataset.unused_count += tokens;
            continue;
        }
        if (tokens <= context) {
            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: there are only %llu tokens, but one sequence of a context of %d takes %llu",
                shards[i].path, (unsigned long long)tokens, dataset.context,
                (unsigned long long)context + 1);
        }
        dataset.count += (tokens - 1) / context;
        dataset.unused_count += (tokens - 1) % context;
    }
    *out = dataset;
    return CDDP_OK;
}

cddp_status cddpi_tokens_agree(cddp_group *group, const struct cddpi_dataset *dataset)
{
    static const char *const names[] = {"number of files", "number of tokens", "bytes of a token",
                                        "vocabulary", "order of sizes"};
    uint64_t facts[] = {dataset->shard_count, dataset->token_count, (uint64_t)dataset->token_bytes,
                        (uint64_t)dataset->classes, cddpi_hash_start};

    for (size_t i = 0; i < dataset->shard_count; i++) {
        facts[4] = cddpi_hash_add(facts[4], dataset->shards[i].token_count);
    }
    return cddpi_agree_on(group, dataset->shards[0].path, names, facts,
                          sizeof facts / sizeof *facts);
}

/* Find the shard that contains sequence @p number: the last one whose first sequence is not
 * later. */
static const struct cddpi_token_shard *find_shard(const struct cddpi_dataset *dataset,
                                                  uint64_t number)
{
    size_t low = 0;
    size_t high = dataset->shard_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (dataset->shards[middle].first_sequence <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &dataset->shards[low];
}

static uint32_t token_at(const struct cddpi_dataset *dataset, const struct cddpi_token_shard *shard,
                         uint64_t number)
{
    if (dataset->token_bytes == 2) {
        return ((const uint16_t *)shard->tokens)[number];
    }
    return ((const uint32_t *)shard->tokens)[number];
}

bool cddpi_dataset_token_sequence(const struct cddpi_dataset *dataset, uint64_t number,
                                  int32_t *input, int32_t *label, struct cddpi_token_fault *out)
{
    const struct cddpi_token_shard *shard = find_shard(dataset, number);
    size_t context = (size_t)dataset->context;
    uint64_t first = (number - shard->first_sequence) * context;
    uint32_t largest;

    if (dataset->token_bytes == 2) {
        largest = cddpi_token_sequence_u16((const uint16_t *)shard->tokens + first, context, input,
                                           label);
    } else {
        largest = cddpi_token_sequence_u32((const uint32_t *)shard->tokens + first, context, input,
                                           label);
    }
    if (largest < (uint32_t)dataset->classes) {
        return true;
    }
    *out = (struct cddpi_token_fault){shard->path, shard->first_token + first, largest};
    for (size_t i = 0; i <= context; i++) { /* bounded: the file may have changed */
        if (token_at(dataset, shard, first + i) >= (uint32_t)dataset->classes) {
            out->token += i;
            out->value = token_at(dataset, shard, first + i);
            break;
        }
    }
    return false;
}
