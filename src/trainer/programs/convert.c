/* convert.c - the program cddp-convert: converts GPT-2 weights from one format to another, and
 * checks checkpoints. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/mapped_file.h"
#include "base/memory_left.h"
#include "base/streams.h"
#include "checkpoint/snapshot.h"
#include "nn/weights/weights.h"
#include "programs/convert_tokenizer.h"
#include "programs/convert_verify.h"
#include "programs/program.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(TO, "to", 0, "hf|llmc|cddp",                                                                 \
      "the format to write. hf: for Hugging Face's GPT2LMHeadModel; OUT is a safetensors "         \
      "file if its name says so, else a folder with model.safetensors, config.json and the "       \
      "files of the tokenizer. llmc: a model file of llm.c. cddp: a safetensors file for "         \
      "model.weights")                                                                             \
    X(TYPE, "type", 0, "f32|bf16|f16",                                                             \
      "type of the elements (default f32); llmc allows f32 and bf16, cddp f32")                    \
    X(HEADS, "heads", 0, "N", "number of attention heads, if IN does not say it")                  \
    X(INFO, "info", 0, NULL, "print format, type and sizes of IN, and exit")                       \
    X(VERIFY, "verify", 0, NULL,                                                                   \
      "check all checkpoints of a run, a checkpoint, or a safetensors file: checksums, formats, "  \
      "shapes, NaN and Inf. Print a line for each checkpoint, and exit")                           \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-convert", OPTION_MAP);

enum { HEAD_SIZE = 64, HEADS_MAX = 1 << 18 };

/* Strings point into argv. */
struct convert_options {
    enum cddpi_weights_format format;
    cddp_type type;
    int64_t heads; /* 0: not given */
    const char *in;
    const char *out; /* NULL: --info */
};

/* Whether @p path is a run folder, or its folder of checkpoints. */
static bool is_run(const char *path)
{
    bool found = cddpi_folder_holds(path, "checkpoints") || cddpi_folder_holds(path, "latest");
    struct dirent *entry;
    DIR *dir = NULL;

    if (!found && cddpi_folder_open(path, &dir) != CDDP_OK) {
        dir = NULL;
    }
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        found = strncmp(entry->d_name, "step-", 5) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* Open the newest checkpoint of a run whose model is whole. */
static cddp_status open_run(const char *path, struct cddpi_weights **out)
{
    char *folder = cddpi_format("%s%s", path,
                                cddpi_folder_holds(path, "checkpoints") ? "/checkpoints" : "");
    char *snapshot = NULL;
    char *skipped = NULL;
    cddp_status status;

    CDDPI_TRY_MEMORY(folder != NULL, "%s: no memory for a name", path);
    status = cddpi_snapshot_find_model(folder, &snapshot, &skipped);
    if (status == CDDP_OK) {
        cddpi_say(stderr, "%s%scddp-convert: reading %s\n", skipped != NULL ? skipped : "",
                  skipped != NULL ? "\n" : "", snapshot);
        status = cddpi_weights_open(snapshot, out);
    }
    cddpi_free(folder);
    cddp_free(snapshot);
    cddp_free(skipped);
    return status;
}

/* Open a file, a folder of weights, or the newest complete checkpoint of a run. */
static cddp_status open_input(const char *path, struct cddpi_weights **out)
{
    struct stat info;
    cddp_status status;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return cddpi_weights_open(path, out);
    }
    if (!cddpi_folder_holds(path, "model.safetensors") &&
        !cddpi_folder_holds(path, "model.safetensors.index.json") && is_run(path)) {
        return open_run(path, out);
    }
    status = cddpi_weights_open(path, out);
    return status == CDDP_ERR_NOT_FOUND
               ? cddpi_fail_suffix(status, "; it is not the folder of a run either, for it has no "
                                           "checkpoints")
               : status;
}

/* The number of heads; without other information, heads of 64 as in all published GPT-2 models. */
static cddp_status resolve_heads(const struct convert_options *options,
                                 const struct cddpi_weights *weights, int64_t *out)
{
    const struct cddpi_gpt2_shape *shape = cddpi_weights_shape(weights);

    if (options->heads > 0 && shape->heads > 0 && options->heads != shape->heads) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: the model was made with %lld heads, not with %lld", options->in,
                          (long long)shape->heads, (long long)options->heads);
    }
    *out = options->heads > 0 ? options->heads : shape->heads;
    if (*out == 0 && shape->embed % HEAD_SIZE != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: it does not say how many heads it was made with: give --heads N",
                          options->in);
    }
    if (*out == 0) {
        *out = shape->embed / HEAD_SIZE;
        cddpi_say(
            stderr,
            "cddp-convert: %s does not say how many heads it was made with: taking %lld heads "
            "of %d (see --heads)\n",
            options->in, (long long)*out, HEAD_SIZE);
    }
    return CDDP_OK;
}

static void print_line(const char *path, enum cddpi_weights_format format, cddp_type type,
                       const struct cddpi_gpt2_shape *shape, int64_t heads)
{
    double elements = (double)shape->embed * (double)(shape->vocab + shape->context + 2) +
                      (double)shape->blocks * (double)shape->embed *
                          (12.0 * (double)shape->embed + 13);

    cddpi_say(stdout,
              "%s: %s, %s, %.0f parameters: vocabulary %lld, context %lld, %lld blocks, embed %lld",
              path, cddpi_weights_format_names[format], cddp_type_name(type), elements,
              (long long)shape->vocab, (long long)shape->context, (long long)shape->blocks,
              (long long)shape->embed);
    if (heads > 0) {
        printf(", %lld heads\n", (long long)heads);
    } else {
        printf(", heads unknown\n");
    }
}

/* Write a folder in Hugging Face's format: the weights, their description, and the tokenizer. */
static cddp_status write_folder(const struct convert_options *options,
                                const struct cddpi_weights *weights, int64_t heads)
{
    char *model = cddpi_format("%s/model.safetensors", options->out);
    char *config = cddpi_format("%s/config.json", options->out);
    int32_t end_token = -1;
    cddp_status status;

    if (model == NULL || config == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for names", options->out);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, cddpi_folder_make(options->out));
    CDDPI_TRY_GOTO(out, status,
                   cddpi_weights_write(weights, model, options->format, options->type, heads));
    CDDPI_TRY_GOTO(out, status,
                   cddpi_convert_tokenizer(options->in, options->out, cddpi_weights_shape(weights),
                                           &end_token));
    if (end_token < 0 && cddpi_folder_holds(options->out, "tokenizer.json")) {
        cddpi_say(stderr,
                  "cddp-convert: %s keeps the tokenizer.json that it had: remove it if it is "
                  "another model's\n",
                  options->out);
    }
    status = cddpi_weights_write_config(weights, config, options->type, heads, end_token);
out:
    cddpi_free(model);
    cddpi_free(config);
    return status;
}

static cddp_status convert(const struct convert_options *options,
                           const struct cddpi_weights *weights)
{
    const struct cddpi_gpt2_shape *shape = cddpi_weights_shape(weights);
    const char *end = options->out != NULL ? strrchr(options->out, '.') : NULL;
    int64_t heads = 0;

    if (options->out == NULL) {
        print_line(options->in, cddpi_weights_format(weights), cddpi_weights_type(weights), shape,
                   shape->heads);
        return CDDP_OK;
    }
    CDDPI_TRY(resolve_heads(options, weights, &heads));
    if (options->format == CDDPI_WEIGHTS_HF && (end == NULL || strcmp(end, ".safetensors") != 0)) {
        CDDPI_TRY(write_folder(options, weights, heads));
    } else {
        CDDPI_TRY(
            cddpi_weights_write(weights, options->out, options->format, options->type, heads));
    }
    print_line(options->out, options->format, options->type, shape, heads);
    return CDDP_OK;
}

static cddp_status read_type(const char *const values[OPTION_COUNT], cddp_type *out)
{
    static const cddp_type types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};
    const char *words[3];
    int word = 0;
    cddp_status status;

    for (int i = 0; i < 3; i++) {
        words[i] = cddp_type_name(types[i]);
    }
    status = cddpi_option_word(&table, values, OPTION_TYPE, words, 3, &word);
    *out = types[word];
    return status;
}

/* Refuse an option that would be ignored next to --info or --verify: it is a mistake. */
static cddp_status check_alone(const char *const values[OPTION_COUNT], int word_count, int alone)
{
    static const int others[] = {OPTION_TO, OPTION_TYPE, OPTION_HEADS, OPTION_INFO};

    for (int i = 0; i < 4; i++) {
        if (others[i] != alone && values[others[i]] != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s has no meaning with --%s",
                              rows[others[i]].name, rows[alone].name);
        }
    }
    return word_count == 1 ? CDDP_OK
                           : cddpi_fail(CDDP_ERR_ARGUMENT,
                                        "--%s needs one file or folder: see cddp-convert --help",
                                        rows[alone].name);
}

static cddp_status read_values(const char *const values[OPTION_COUNT], int word_count,
                               struct convert_options *options)
{
    int format = (int)options->format;

    CDDPI_TRY(cddpi_option_word(&table, values, OPTION_TO, cddpi_weights_format_names,
                                CDDPI_CHOICE_COUNT(CDDPI_WEIGHTS_FORMAT_MAP), &format));
    options->format = (enum cddpi_weights_format)format;
    CDDPI_TRY(read_type(values, &options->type));
    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_HEADS, 1, HEADS_MAX, &options->heads));
    if (word_count != 2) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "name what to read and what to write, IN and OUT: see cddp-convert --help");
    }
    if (values[OPTION_TO] == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "the format is missing: give --to hf, llmc or cddp");
    }
    return CDDP_OK;
}

static int run(const char *const *values, char **words, int count)
{
    struct convert_options options = {.type = CDDP_F32, .in = count > 0 ? words[0] : NULL};
    int alone = values[OPTION_VERIFY] != NULL ? OPTION_VERIFY : OPTION_INFO;
    struct cddpi_weights *weights;
    cddp_status status = values[alone] != NULL ? check_alone(values, count, alone)
                                               : read_values(values, count, &options);

    if (status != CDDP_OK) {
        return cddpi_program_fail(&table, CDDPI_EXIT_USAGE);
    }
    options.out = values[alone] == NULL ? words[1] : NULL;
    cddpi_mapped_files_catch();
    (void)signal(SIGXFSZ, SIG_IGN); /* hitting ulimit -f is an error like a full disk */
    if (values[OPTION_VERIFY] != NULL) {
        status = cddpi_convert_verify(options.in);
        return status == CDDP_OK ? 0 : cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
    }
    if (open_input(options.in, &weights) != CDDP_OK) {
        return cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
    }
    status = convert(&options, weights);
    cddpi_weights_close(weights);
    return status == CDDP_OK ? 0 : cddpi_program_fail(&table, CDDPI_EXIT_FAILED);
}

int main(int argc, char **argv)
{
    static const struct cddpi_program program = {
        .options = &table,
        .column = 18,
        .usage =
            "usage: cddp-convert --to hf|llmc|cddp [--type f32|bf16|f16] [--heads N] IN OUT\n"
            "       cddp-convert --info IN\n"
            "       cddp-convert --verify RUN\n"
            "       cddp-convert --help | --version\n"
            "\nConverts the weights of a GPT-2. IN is a safetensors file of cddp or Hugging Face,\n"
            "a model.safetensors.index.json with its shards beside it, a model file of llm.c\n"
            "(version 3 or 5), a folder with a model.safetensors or such an index, or a run's "
            "folder\n"
            "(its newest complete checkpoint). Its contents show which of these it is.\n\n",
        .run = run};

    return cddpi_program_main(&program, argc, argv);
}
