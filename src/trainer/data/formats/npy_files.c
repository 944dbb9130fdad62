/* npy_files.c - owns datasets in NumPy's files: which arrays belong together, and whether they fit.
 * The files may be larger than memory, so they are mapped, and samples are read only when a batch
 * needs them. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/formats/npy.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILES_OF_SHARD = 4, SHAPE_BYTES = 256 }; /* two files, or an archive and what was inflated */

static const char *print_shape(const struct cddpi_npy *npy, char out[SHAPE_BYTES])
{
    size_t at = 0;

    for (int i = 0; i < npy->dims && at + 24 < SHAPE_BYTES; i++) {
        at += (size_t)snprintf(out + at, SHAPE_BYTES - at, i == 0 ? "%" PRIu64 : " x %" PRIu64,
                               npy->shape[i]);
    }
    return out;
}

/* Read the array of a file, or of its member @p name. @p files are two closed ones. */
static cddp_status open_array(const char *path, const char *name, struct cddpi_data_file *files,
                              struct cddpi_npy *out)
{
    const uint8_t *data;
    size_t bytes;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_data_file_open_plain(path, &files[0]));
    data = files[0].data;
    bytes = files[0].bytes;
    if (cddpi_is_gzip(data, bytes)) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: the file is gzip'd, but NumPy's files are read in place: gunzip it first", path);
    }
    if (cddpi_is_npz(data, bytes)) {
        status = cddpi_npz_find(&files[0], path, name, &files[1], &data, &bytes);
        if (status == CDDP_OK && cddpi_npy_read(data, bytes, out) != CDDP_OK) {
            status = cddpi_fail_prefix(CDDP_ERR_FORMAT, "array \"%s\"", name);
        }
    } else {
        status = cddpi_npy_read(data, bytes, out);
    }
    CDDPI_TRY(cddpi_data_file_check(&files[0]));
    return status == CDDP_ERR_FORMAT ? cddpi_fail_prefix(status, "%s", path) : status;
}

/* The sample's shape as channels, height and width. A vector becomes channels, which linear layers
 * take as they are. */
static cddp_status fold_shape(const char *path, const struct cddpi_npy *npy, int out[3])
{
    uint64_t sizes[3] = {1, 1, 1};
    char shape[SHAPE_BYTES];

    for (int i = npy->dims - 1, to = npy->dims == 2 ? 0 : 2; i > 0; i--) {
        sizes[to] *= npy->shape[i]; /* row_elements did not overflow */
        to -= to > 0;
    }
    for (int i = 0; i < 3; i++) {
        if (sizes[i] > INT_MAX) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: samples of an array of %s are too large", path,
                              print_shape(npy, shape));
        }
        out[i] = (int)sizes[i];
    }
    return CDDP_OK;
}

static bool is_archive(const char *path)
{
    size_t length = strlen(path);

    return length > 4 && strcmp(path + length - 4, ".npz") == 0;
}

static cddp_status check_targets(const struct cddpi_npy_options *options, const char *path,
                                 const struct cddpi_npy *npy)
{
    char shape[SHAPE_BYTES];

    if (options->real_targets) {
        return npy->row_elements <= INT_MAX
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_FORMAT, "%s: %" PRIu64 " targets of a sample are too many",
                                path, npy->row_elements);
    }
    if (npy->row_elements != 1) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the array is of %s, but classes are one integer a sample; for real "
                          "targets set model.loss to \"mse\" or \"l1\"",
                          path, print_shape(npy, shape));
    }
    if (cddpi_number_is_real(npy->numbers.type)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the targets are floats, but classes are integers: for regression "
                          "set model.loss to \"mse\" or \"l1\", else save .astype(\"int64\")",
                          path);
    }
    return CDDP_OK;
}

/* The key that named the targets, if they are in files of their own. */
static const char *target_key(const struct cddpi_npy_options *options)
{
    return options->target_count > 0 ? options->target_key : options->input_key;
}

/* What all shards must have, and the training data as well. */
struct npy_facts {
    const char *path; /* where they were found; NULL: nowhere yet */
    int shape[3];
    uint64_t targets;
};

static cddp_status check_facts(const struct npy_facts *first, const struct npy_facts *now)
{
    if (memcmp(first->shape, now->shape, sizeof first->shape) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: samples are %d x %d x %d, but those of %s are %d x %d x %d",
                          now->path, now->shape[0], now->shape[1], now->shape[2], first->path,
                          first->shape[0], first->shape[1], first->shape[2]);
    }
    if (first->targets != now->targets) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: a sample has %" PRIu64 " targets, but those of %s have %" PRIu64,
                          now->path, now->targets, first->path, first->targets);
    }
    return CDDP_OK;
}

/* The functions below set @p key to what names the file that they look at. */

static cddp_status open_shard(const struct cddpi_npy_options *options,
                              struct cddpi_data_file *files, const char **key,
                              struct cddpi_number_shard *shard, struct npy_facts *out)
{
    struct cddpi_npy inputs, targets;

    *key = options->input_key;
    CDDPI_TRY(open_array(shard->path, options->input_name, &files[0], &inputs));
    *key = target_key(options);
    CDDPI_TRY(open_array(shard->target_path, options->target_name, &files[2], &targets));
    if (inputs.shape[0] != targets.shape[0]) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: there are %" PRIu64 " targets, but %" PRIu64 " samples in %s",
                          shard->target_path, targets.shape[0], inputs.shape[0], shard->path);
    }
    CDDPI_TRY(check_targets(options, shard->target_path, &targets));
    *key = options->input_key;
    CDDPI_TRY(fold_shape(shard->path, &inputs, out->shape));
    out->targets = options->real_targets ? targets.row_elements : 0;
    out->path = shard->path;
    shard->inputs = inputs.numbers;
    shard->targets = targets.numbers;
    shard->count = inputs.shape[0];
    return CDDP_OK;
}

static cddp_status open_shards(const struct cddpi_npy_options *options, size_t count,
                               const char **key, struct cddpi_dataset *dataset)
{
    struct cddpi_dataset_memory *memory = dataset->memory;
    const struct cddpi_dataset *like = options->like;
    struct npy_facts first = {.path = NULL};

    if (like != NULL) {
        first = (struct npy_facts){.path = like->number_shards[0].path,
                                   .shape = {like->channels, like->height, like->width},
                                   .targets = (uint64_t)like->target_count};
    }
    for (size_t i = 0; i < count; i++) {
        struct npy_facts now = {.path = NULL};

        memory->number_shards[i].path = memory->paths.names[i];
        memory->number_shards[i].target_path =
            memory->paths.names[memory->paths.count > count ? count + i : i];
        CDDPI_TRY(open_shard(options, memory->files + i * FILES_OF_SHARD, key,
                             &memory->number_shards[i], &now));
        first = first.path == NULL ? now : first;
        CDDPI_TRY(check_facts(&first, &now));
    }
    dataset->channels = first.shape[0];
    dataset->height = first.shape[1];
    dataset->width = first.shape[2];
    dataset->target_count = (int)first.targets;
    *key = target_key(options);
    return cddpi_numbers_lay_out(memory->number_shards, count,
                                 like != NULL ? like->classes : options->classes, dataset);
}

/* The files of samples, and behind them as many of targets; archives have both. */
static cddp_status find_files(const struct cddpi_npy_options *options, const char **key,
                              size_t *out_count, struct cddpi_paths *out)
{
    struct cddpi_paths targets = {NULL, 0};
    char **both;
    size_t archives = 0;

    CDDPI_TRY(cddpi_paths_find(options->inputs, options->input_count, out));
    *out_count = out->count;
    for (size_t i = 0; i < out->count; i++) {
        archives += is_archive(out->names[i]);
    }
    if (archives == out->count && options->target_count == 0) {
        return CDDP_OK;
    }
    if (archives > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: an archive holds samples and targets: give only archives, and no "
                          "files of targets, or only .npy files",
                          out->names[0]);
    }
    if (options->target_count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: where are its targets? A .npy file of samples "
                          "needs another one with their targets",
                          out->names[0]);
    }
    *key = options->target_key;
    CDDPI_TRY(cddpi_paths_find(options->targets, options->target_count, &targets));
    if (targets.count != out->count) {
        cddp_status status = cddpi_fail(CDDP_ERR_ARGUMENT,
                                        "%zu files of samples, but %zu of targets: %s ..., %s ...",
                                        out->count, targets.count, out->names[0], targets.names[0]);

        cddpi_paths_fini(&targets);
        return status;
    }
    both = cddpi_realloc(out->names, 2 * out->count * sizeof *both);
    if (both == NULL) {
        cddpi_paths_fini(&targets);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory for %zu names", 2 * out->count);
    }
    memcpy(both + out->count, targets.names, targets.count * sizeof *both);
    out->names = both;
    out->count *= 2;
    cddpi_free(targets.names); /* the names themselves have moved */
    return CDDP_OK;
}

static cddp_status describe(const struct cddpi_npy_options *options, const char **key,
                            struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {.kind = CDDPI_DATASET_NUMBERS};
    struct cddpi_paths paths = {NULL, 0};
    size_t count = 0;
    cddp_status status = find_files(options, key, &count, &paths);

    if (status != CDDP_OK) {
        cddpi_paths_fini(&paths);
        return status;
    }
    dataset.memory = cddpi_dataset_memory_create(count * FILES_OF_SHARD, 0, NULL);
    if (dataset.memory == NULL) {
        cddpi_paths_fini(&paths);
        return CDDP_ERR_NO_MEMORY;
    }
    dataset.memory->paths = paths;
    dataset.memory->number_shards = cddpi_zalloc_array(count,
                                                       sizeof *dataset.memory->number_shards);
    status = dataset.memory->number_shards != NULL
                 ? open_shards(options, count, key, &dataset)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to describe %zu files", count);
    if (status != CDDP_OK) {
        cddpi_dataset_memory_release(dataset.memory);
        return status;
    }
    *out = dataset;
    return CDDP_OK;
}

/* How much memory one rank inflates the archive @p path to. Faults of the file are worded when it
 * is opened. */
static uint64_t measure_archive(const struct cddpi_npy_options *options, const char *path)
{
    struct cddpi_data_file archive = CDDPI_DATA_FILE_CLOSED;
    uint64_t inputs = 0, targets = 0, sum = 0;

    if (cddpi_data_file_open_plain(path, &archive) == CDDP_OK &&
        cddpi_is_npz(archive.data, archive.bytes) &&
        cddpi_npz_measure(&archive, options->input_name, &inputs) == CDDP_OK &&
        cddpi_npz_measure(&archive, options->target_name, &targets) == CDDP_OK &&
        __builtin_add_overflow(inputs, targets, &sum)) {
        sum = UINT64_MAX;
    }
    cddpi_data_file_close(&archive);
    return sum;
}

/* Each rank inflates archives itself, so the first rank of a machine checks the memory for all its
 * ranks, before any rank takes some. Collective in @p group. */
static cddp_status check_memory(const struct cddpi_npy_options *options, cddp_group *group)
{
    uint64_t ranks = (uint64_t)cddpi_group_local_world_size(group);
    struct cddpi_paths paths = {NULL, 0};
    uint64_t bytes = 0;
    cddp_status status = CDDP_OK;

    if (cddpi_group_local_rank(group) == 0 && ranks > 1 &&
        cddpi_paths_find(options->inputs, options->input_count, &paths) == CDDP_OK) {
        for (size_t i = 0; i < paths.count; i++) {
            uint64_t more = is_archive(paths.names[i]) ? measure_archive(options, paths.names[i])
                                                       : 0;

            if (__builtin_mul_overflow(more, ranks, &more) ||
                __builtin_add_overflow(bytes, more, &bytes)) {
                bytes = UINT64_MAX;
            }
        }
        if (bytes > 0) {
            status = cddpi_memory_need(
                bytes,
                "the compressed arrays of %s%s, in %d ranks of this "
                "machine",
                paths.names[0], paths.count > 1 ? " and the files after it" : "", (int)ranks);
        }
    }
    cddpi_paths_fini(&paths);
    return cddpi_agree(group, status);
}

cddp_status cddpi_dataset_open_npy(const struct cddpi_npy_options *options, cddp_group *group,
                                   struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {0};
    const char *key = options->input_key;
    bool together = group != NULL && cddp_group_world_size(group) > 1;
    cddp_status status;

    CDDPI_TRY(together ? check_memory(options, group) : CDDP_OK);
    status = describe(options, &key, &dataset); /* on its own line: it sets the key */
    status = cddpi_data_blame(&options->blame, key, status);
    if (together) {
        CDDPI_TRY_GOTO(fail, status, cddpi_agree(group, status));
        CDDPI_TRY_GOTO(fail, status, cddpi_numbers_agree(group, &dataset));
        status = cddpi_agree_on_files(group, dataset.memory->paths.names,
                                      dataset.memory->paths.count, true);
    }
    if (status == CDDP_OK) {
        *out = dataset;
        return CDDP_OK;
    }

fail:
    cddpi_dataset_close(&dataset);
    return status;
}

cddp_status cddpi_npy_open_samples(const char *path, const char *name,
                                   struct cddpi_data_file files[2], struct cddpi_npy *out,
                                   int shape[3])
{
    CDDPI_TRY(open_array(path, name, files, out));
    return fold_shape(path, out, shape);
}

cddp_status cddpi_npy_shape(const struct cddpi_npy_options *options, int out[3])
{
    struct cddpi_data_file files[2] = {CDDPI_DATA_FILE_CLOSED, CDDPI_DATA_FILE_CLOSED};
    struct cddpi_paths paths = {NULL, 0};
    struct cddpi_npy npy;
    cddp_status status;

    CDDPI_TRY(cddpi_paths_find(options->inputs, options->input_count, &paths));
    status = cddpi_npy_open_samples(paths.names[0], options->input_name, files, &npy, out);
    cddpi_data_file_close(&files[0]);
    cddpi_data_file_close(&files[1]);
    cddpi_paths_fini(&paths);
    return status;
}
