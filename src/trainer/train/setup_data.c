/* setup_data.c - finds and opens the configured data. */
#include "train/setup_data.h"

#include "base/error.h"
#include "base/memory_left.h"
#include "data/files/paths.h"
#include "data/numbers.h"
#include "data/tokenizer/tokenizer.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"
#include "nn/weights/weights.h"
#include "train/model_spec.h"
#include "train/setup_csv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Put the key that named the file before an error text, but after the rank's name if the text has
 * one. The failure keeps its status and all else that is known of it. Failures of the group are
 * nobody's. */
static cddp_status blame(const struct cddpi_config *config, const char *key, cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    const char *unnamed = failure.text + failure.unnamed;

    if (status != CDDP_ERR_NOT_FOUND && status != CDDP_ERR_FORMAT && status != CDDP_ERR_IO &&
        status != CDDP_ERR_ARGUMENT) {
        return status;
    }
    memmove(failure.text, unnamed, strlen(unnamed) + 1);
    (void)cddpi_fail_again(status, &failure);
    return cddpi_fail_name(cddpi_config_prefix(config, key, status), failure.rank);
}

static cddp_status word_blame(const void *config, const char *key, cddp_status status)
{
    return blame(config, key, status);
}

/* Append the origin of the missing file @p path to the stored error text, if it belongs to an
 * example; else the folder in which it was searched. */
static cddp_status add_source(cddp_status status, const char *path)
{
    static const struct {
        const char *part, *source;
    } known[] = {
        {"/usr/share/datasets/fashion-mnist/", "apt install dataset-fashion-mnist brings it"},
        {"data/kjv.txt", "scripts/quickstart gpt2 makes it"},
        {"data/kjv.vocabulary.json", "scripts/quickstart gpt2 makes it"},
        {"data/kjv.words.json", "scripts/quickstart lstm makes it"},
        {"images/train", "scripts/make_image_folder images makes one to try"},
        {"images/test", "scripts/make_image_folder images makes one to try"}};
    char folder[PATH_MAX];

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(path, known[i].part, strlen(known[i].part)) == 0) {
            return cddpi_fail_suffix(status, ": %s", known[i].source);
        }
    }
    return path[0] == '/' || getcwd(folder, sizeof folder) == NULL
               ? status
               : cddpi_fail_suffix(status, " (names are relative to %s)", folder);
}

static cddp_status check_readable(const struct cddpi_config *config, const char *key,
                                  const char *path)
{
    int error_number;
    cddp_status status;

    if (access(path, R_OK) == 0) {
        return CDDP_OK;
    }
    error_number = errno;
    status = cddpi_config_prefix(config, key,
                                 cddpi_fail_errno(CDDP_ERR_CONFIG, error_number, "%s", path));
    return error_number == ENOENT ? add_source(status, path) : status;
}

static cddp_status check_patterns(const struct cddpi_config *config, const char *key,
                                  const struct cddpi_text_list *patterns)
{
    struct cddpi_paths paths = {NULL, 0};
    cddp_status status;

    /* One by one, to know which pattern matches no file. */
    for (int i = 0; i < patterns->count; i++) {
        status = cddpi_paths_find(&patterns->values[i], 1, &paths);
        if (status == CDDP_ERR_NOT_FOUND) {
            return add_source(blame(config, key, status), patterns->values[i]);
        }
        cddpi_paths_fini(&paths);
    }
    CDDPI_TRY(
        blame(config, key, cddpi_paths_find(patterns->values, (size_t)patterns->count, &paths)));
    status = CDDP_OK;
    for (size_t i = 0; status == CDDP_OK && i < paths.count; i++) {
        status = check_readable(config, key, paths.names[i]);
    }
    cddpi_paths_fini(&paths);
    return status;
}

/* Check that the file of weights is one. Its tensors are compared with the model later. */
static cddp_status check_weights(const struct cddpi_config *config)
{
    const char *path = config->model.weights;
    struct cddpi_weights *weights = NULL;
    cddp_safetensors *file = NULL;
    cddp_status status = CDDP_OK;

    if (path[0] != '\0' && config->model.type == CDDPI_MODEL_GPT2) {
        status = cddpi_weights_open(path, &weights);
        cddpi_weights_close(weights);
    } else if (path[0] != '\0') {
        status = cddp_safetensors_open(path, &file);
        cddp_safetensors_close(file);
    }
    return blame(config, "model.weights", status);
}

static cddp_status check_synthetic(const struct cddpi_config *config)
{
    if (config->data.type != CDDPI_DATA_SYNTHETIC) {
        return CDDP_OK;
    }
    if (cddpi_config_takes_tokens(config) && config->model.vocab == 0) {
        return cddpi_config_fail(
            config, "model.vocab",
            "must be given for synthetic tokens: how many different ones there are");
    }
    return cddpi_config_takes_tokens(config) ? CDDP_OK : cddpi_trainer_check_image(config);
}

static cddp_status check_npy(const struct cddpi_config *config)
{
    const struct {
        const char *key;
        const struct cddpi_text_list *patterns;
    } lists[] = {{"data.train", &config->data.train},
                 {"data.train_targets", &config->data.train_targets},
                 {"data.test", &config->data.test},
                 {"data.test_targets", &config->data.test_targets}};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].patterns->count > 0) {
            CDDPI_TRY(check_patterns(config, lists[i].key, lists[i].patterns));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_check_files(const struct cddpi_config *config)
{
    const struct {
        const char *key, *path;
    } files[] = {{"data.train_images", config->data.train_images},
                 {"data.train_labels", config->data.train_labels},
                 {"data.test_images", config->data.test_images},
                 {"data.test_labels", config->data.test_labels},
                 {"data.vocabulary", config->data.vocabulary},
                 {"model.weights", config->model.weights}};
    bool has_files = config->data.type == CDDPI_DATA_TOKENS ||
                     config->data.type == CDDPI_DATA_TEXT || config->data.type == CDDPI_DATA_CSV;

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].path[0] != '\0') {
            CDDPI_TRY(check_readable(config, files[i].key, files[i].path));
        }
    }
    if (config->data.type == CDDPI_DATA_IMAGE_FOLDER) {
        CDDPI_TRY(check_readable(config, "data.train", config->data.train.values[0]));
    }
    if (config->data.type == CDDPI_DATA_IMAGE_FOLDER && config->data.test.count > 0) {
        CDDPI_TRY(check_readable(config, "data.test", config->data.test.values[0]));
    }
    if (has_files) {
        CDDPI_TRY(check_patterns(config, "data.train", &config->data.train));
    }
    if (has_files && (config->data.type == CDDPI_DATA_TOKENS || config->data.test.count > 0)) {
        CDDPI_TRY(check_patterns(config, "data.test", &config->data.test));
    }
    if (config->data.type == CDDPI_DATA_NPY) {
        CDDPI_TRY(check_npy(config));
    }
    CDDPI_TRY(check_synthetic(config));
    return check_weights(config);
}

static cddp_status open_images(const struct cddpi_config *config, cddp_group *group,
                               struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    CDDPI_TRY(cddpi_dataset_open_idx(config->data.train_images, config->data.train_labels,
                                     config->data.classes, group, train));
    CDDPI_TRY(cddpi_dataset_open_idx(config->data.test_images, config->data.test_labels,
                                     train->classes, group, test));
    CDDPI_TRY(cddpi_trainer_check_channels(config, train->channels));
    if (train->channels != test->channels || train->height != test->height ||
        train->width != test->width) {
        return cddpi_config_fail(config, "data.test_images",
                                 "images of %d x %d x %d, but those to train on are %d x %d x %d",
                                 test->channels, test->height, test->width, train->channels,
                                 train->height, train->width);
    }
    return CDDP_OK;
}

static cddp_status open_folders(const struct cddpi_config *config, cddp_group *group,
                                struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    int size = config->data.size;
    cddp_status status;

    CDDPI_TRY(blame(
        config, "data.train",
        cddpi_dataset_open_image_folder(config->data.train.values[0], size, NULL, group, train)));
    if (config->data.test.count > 0) {
        CDDPI_TRY(blame(config, "data.test",
                        cddpi_dataset_open_image_folder(config->data.test.values[0], size, train,
                                                        group, test)));
    } else {
        status = blame(config, "data.test_fraction",
                       cddpi_dataset_split_image_folder(train, config->data.test_fraction, test));
        CDDPI_TRY(group != NULL ? cddpi_agree(group, status) : status);
    }
    return cddpi_trainer_check_channels(config, train->channels);
}

static cddp_status open_token_list(const struct cddpi_config *config, const char *key,
                                   const struct cddpi_text_list *patterns, int vocabulary,
                                   cddp_group *group, struct cddpi_dataset *out)
{
    return blame(config, key,
                 cddpi_dataset_open_tokens(patterns->values, (size_t)patterns->count,
                                           config->model.context, vocabulary, group, out));
}

/* The number of different tokens in the files: the model's, else that of the vocabulary that made
 * them, else 0: the usual one of such files. */
static cddp_status count_vocabulary(const struct cddpi_config *config, int *out)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    cddp_status status;

    if (config->data.vocabulary[0] == '\0') {
        *out = config->model.vocab;
        return CDDP_OK;
    }
    CDDPI_TRY(blame(config, "data.vocabulary",
                    cddpi_tokenizer_open(config->data.vocabulary, &tokenizer)));
    status = cddpi_trainer_fit_vocabulary(config, "data.vocabulary",
                                          cddpi_tokenizer_vocabulary(tokenizer), out);
    cddpi_tokenizer_close(tokenizer);
    return status;
}

static cddp_status open_tokens(const struct cddpi_config *config, cddp_group *group,
                               struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    int vocabulary = 0;
    cddp_status status = count_vocabulary(config, &vocabulary);

    CDDPI_TRY(group != NULL ? cddpi_agree(group, status) : status);
    CDDPI_TRY(open_token_list(config, "data.train", &config->data.train, vocabulary, group, train));
    CDDPI_TRY(open_token_list(config, "data.test", &config->data.test, vocabulary, group, test));
    if (test->token_bytes != train->token_bytes) {
        return cddpi_config_fail(config, "data.test",
                                 "%s has tokens of %d bytes, but those to train on have %d",
                                 test->shards[0].path, test->token_bytes, train->token_bytes);
    }
    return CDDP_OK;
}

static cddp_status open_texts(const struct cddpi_config *config, cddp_group *group,
                              struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    struct cddpi_text_options options = {.patterns = config->data.train.values,
                                         .pattern_count = (size_t)config->data.train.count,
                                         .vocabulary = config->data.vocabulary,
                                         .context = config->model.context,
                                         .test_fraction = config->data.test_fraction};
    bool has_test = config->data.test.count > 0;
    cddp_status status;

    CDDPI_TRY(blame(config, "data.train",
                    cddpi_dataset_open_text(&options, group, train, has_test ? NULL : test)));
    if (has_test) {
        options.patterns = config->data.test.values;
        options.pattern_count = (size_t)config->data.test.count;
        CDDPI_TRY(blame(config, "data.test", cddpi_dataset_open_text(&options, group, test, NULL)));
    }
    status = cddpi_trainer_fit_vocabulary(config, "the text", train->classes, &train->classes);
    test->classes = train->classes;
    return status;
}

static cddp_status open_npy(const struct cddpi_config *config, cddp_group *group,
                            struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    struct cddpi_npy_options options = cddpi_trainer_npy_options(config, false);
    cddp_status status;

    options.blame = (struct cddpi_data_blame){word_blame, config};
    CDDPI_TRY(cddpi_dataset_open_npy(&options, group, train));
    if (config->data.test.count > 0) {
        options = cddpi_trainer_npy_options(config, true);
        options.blame = (struct cddpi_data_blame){word_blame, config};
        options.like = train;
        return cddpi_dataset_open_npy(&options, group, test);
    }
    if (config->data.test_targets.count > 0) {
        return cddpi_config_fail(config, "data.test_targets", "there is no data.test with samples");
    }
    status = blame(config, "data.test_fraction",
                   cddpi_numbers_split(train, config->data.test_fraction, test));
    return group != NULL ? cddpi_agree(group, status) : status;
}

static uint64_t synthetic_count(const struct cddpi_config *config, bool test)
{
    uint64_t samples = (uint64_t)config->data.samples;

    return test ? (samples + 9) / 10 : samples;
}

/* Each rank makes all synthetic samples itself, so the first rank of a machine checks the memory
 * for all its ranks, before any rank allocates. Collective in @p group. */
static cddp_status check_synthetic_memory(const struct cddpi_config *config, cddp_group *group)
{
    int ranks = group != NULL ? cddpi_group_local_world_size(group) : 1;
    uint64_t bytes = 0;
    cddp_status status = CDDP_OK;

    for (int test = 0; test < 2; test++) {
        uint64_t count = synthetic_count(config, test);
        uint64_t part = cddpi_config_takes_tokens(config)
                            ? cddpi_dataset_synthetic_tokens_bytes(config->model.context, count)
                            : cddpi_dataset_synthetic_images_bytes(config->data.image.values,
                                                                   count);

        bytes = __builtin_add_overflow(bytes, part, &bytes) ? UINT64_MAX : bytes;
    }
    bytes = __builtin_mul_overflow(bytes, (uint64_t)ranks, &bytes) ? UINT64_MAX : bytes;
    if ((group == NULL || cddpi_group_local_rank(group) == 0) &&
        cddpi_memory_need(bytes,
                          "%llu synthetic samples to train on and %llu to evaluate on, in each of "
                          "%d rank%s of this machine",
                          (unsigned long long)synthetic_count(config, false),
                          (unsigned long long)synthetic_count(config, true), ranks,
                          ranks == 1 ? "" : "s") != CDDP_OK) {
        status = cddpi_config_prefix(config, "data.samples", CDDP_ERR_CONFIG);
    }
    return group != NULL ? cddpi_agree(group, status) : status;
}

static cddp_status open_synthetic_part(const struct cddpi_config *config, bool test,
                                       struct cddpi_dataset *out)
{
    uint64_t count = synthetic_count(config, test);

    if (cddpi_config_takes_tokens(config)) {
        return cddpi_dataset_open_synthetic_tokens(config->model.context, config->model.vocab,
                                                   count, test, out);
    }
    return cddpi_dataset_open_synthetic_images(config->data.image.values,
                                               config->data.classes > 0 ? config->data.classes : 10,
                                               count, test, out);
}

static cddp_status open_synthetic(const struct cddpi_config *config, cddp_group *group,
                                  struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    CDDPI_TRY(check_synthetic(config));
    CDDPI_TRY(check_synthetic_memory(config, group));
    CDDPI_TRY(blame(config, "data.samples", open_synthetic_part(config, false, train)));
    CDDPI_TRY(blame(config, "data.samples", open_synthetic_part(config, true, test)));
    return train->kind == CDDPI_DATASET_IMAGES
               ? cddpi_trainer_check_channels(config, train->channels)
               : CDDP_OK;
}

static cddp_status open_by_type(const struct cddpi_config *config, cddp_group *group,
                                struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    switch (config->data.type) {
    case CDDPI_DATA_TOKENS:
        return open_tokens(config, group, train, test);
    case CDDPI_DATA_TEXT:
        return open_texts(config, group, train, test);
    case CDDPI_DATA_SYNTHETIC:
        return open_synthetic(config, group, train, test);
    case CDDPI_DATA_IMAGE_FOLDER:
        return open_folders(config, group, train, test);
    case CDDPI_DATA_NPY:
        return open_npy(config, group, train, test);
    case CDDPI_DATA_CSV: {
        struct cddpi_data_blame by = {word_blame, config};

        return cddpi_trainer_open_csv(config, &by, group, train, test);
    }
    default:
        return open_images(config, group, train, test);
    }
}

cddp_status cddpi_trainer_open_data(const struct cddpi_config *config, cddp_group *group,
                                    struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    cddp_status status = open_by_type(config, group, train, test);
    struct cddpi_failure failure = *cddpi_last_failure();

    /* A missing file gets the same error text as before training: its key, and where the file comes
     * from. */
    if (status == CDDP_ERR_NOT_FOUND && cddpi_trainer_check_files(config) != CDDP_OK) {
        failure.rank = -1;
        failure.unnamed = 0;
        memcpy(failure.text, cddp_last_error(), strlen(cddp_last_error()) + 1);
        return cddpi_fail_again(status, &failure);
    }
    return status == CDDP_OK ? status : cddpi_fail_again(status, &failure);
}

/* Print the classes that have no sample in @p counts, as "3, 10-199", as far as @p out has room. */
static void print_empty_classes(const uint64_t counts[256], int classes, char *out, size_t bytes)
{
    size_t at = 0;

    out[0] = '\0';
    for (int first = 0, last; first < classes; first = last + 1) {
        int length;

        last = first;
        if (counts[first] > 0) {
            continue;
        }
        while (last + 1 < classes && counts[last + 1] == 0) {
            last++;
        }
        length = snprintf(out + at, bytes - at, first < last ? "%s%d-%d" : "%s%d",
                          at > 0 ? ", " : "", first, last);
        if (length < 0 || at + (size_t)length + 8 > bytes) {
            snprintf(out + at, bytes - at, ", ...");
            return;
        }
        at += (size_t)length;
    }
}

void cddpi_trainer_note_classes(const struct cddpi_config *config,
                                const struct cddpi_dataset *train, char *out, size_t out_bytes)
{
    uint64_t counts[256] = {0};
    uint64_t sample = 0;
    int classes = train->classes;
    int empty = 0;
    char which[128];

    out[0] = '\0';
    if (train->labels == NULL || classes > 256) {
        return;
    }
    for (uint64_t i = 0; i < train->count; i++) {
        counts[train->labels[i]]++;
    }
    for (int i = 0; i < classes; i++) {
        empty += counts[i] == 0;
    }
    if (empty == 0) {
        return;
    }
    print_empty_classes(counts, classes, which, sizeof which);
    if (config->data.classes > 0) {
        snprintf(out, out_bytes,
                 "%s: of the %d classes that data.classes says there are, %d have no sample: %s",
                 config->data.train_labels, classes, empty, which);
        return;
    }
    while (train->labels[sample] != classes - 1) {
        sample++;
    }
    snprintf(out, out_bytes,
             "%s: there are %d classes because sample %llu has label %d, and %d of them have no "
             "sample: %s. If that label is wrong, set data.classes: then it is an error",
             config->data.train_labels, classes, (unsigned long long)sample, classes - 1, empty,
             which);
}
