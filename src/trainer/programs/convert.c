/* convert.c - the program cddp-convert: converts GPT-2 weights from one format to another. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/mapped_file.h"
#include "base/memory_left.h"
#include "base/streams.h"
#include "programs/convert_options.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, HEAD_SIZE = 64 };

static int fail(void)
{
    fprintf(stderr, "cddp-convert: %s\n", cddp_last_error());
    return EXIT_FAILED;
}

static bool exists(const char *folder, const char *name)
{
    char *path = cddpi_format("%s/%s", folder, name);
    struct stat info;
    bool found = path != NULL && lstat(path, &info) == 0;

    cddpi_free(path);
    return found;
}

/* Whether @p path is a run folder, or its folder of checkpoints. */
static bool is_run(const char *path)
{
    bool found = exists(path, "checkpoints") || exists(path, "latest");
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

/* Open the newest complete checkpoint of a run. */
static cddp_status open_run(const char *path, struct cddpi_weights **out)
{
    char *folder = cddpi_format("%s%s", path, exists(path, "checkpoints") ? "/checkpoints" : "");
    char *snapshot = NULL;
    char *skipped = NULL;
    cddp_status status;

    if (folder == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", path);
    }
    status = cddp_snapshot_find(folder, &snapshot, &skipped);
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
    if (!exists(path, "model.safetensors") && !exists(path, "model.safetensors.index.json") &&
        is_run(path)) {
        return open_run(path, out);
    }
    status = cddpi_weights_open(path, out);
    return status == CDDP_ERR_NOT_FOUND
               ? cddpi_fail_suffix(status, "; it is not the folder of a run either, for it has no "
                                           "checkpoints")
               : status;
}

/* The number of heads; without other information, heads of 64 as in all published GPT-2 models. */
static cddp_status resolve_heads(const struct cddpi_convert_options *options,
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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* Write a folder in Hugging Face's format: the weights, and their description. */
static cddp_status write_folder(const struct cddpi_convert_options *options,
                                const struct cddpi_weights *weights, int64_t heads)
{
    char *model = cddpi_format("%s/model.safetensors", options->out);
    char *config = cddpi_format("%s/config.json", options->out);
    cddp_status status;

    if (model == NULL || config == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for names", options->out);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, cddpi_folder_make(options->out));
    CDDPI_TRY_GOTO(out, status,
                   cddpi_weights_write(weights, model, options->format, options->type, heads));
    status = cddpi_weights_write_config(weights, config, options->type, heads);
out:
    cddpi_free(model);
    cddpi_free(config);
    return status;
}

static int convert(const struct cddpi_convert_options *options, const struct cddpi_weights *weights)
{
    const struct cddpi_gpt2_shape *shape = cddpi_weights_shape(weights);
    bool folder = options->format == CDDPI_WEIGHTS_HF && !ends_with(options->out, ".safetensors");
    int64_t heads = 0;
    cddp_status status;

    if (options->mode == CDDPI_CONVERT_INFO) {
        print_line(options->in, cddpi_weights_format(weights), cddpi_weights_type(weights), shape,
                   shape->heads);
        return 0;
    }
    status = resolve_heads(options, weights, &heads);
    if (status == CDDP_OK && folder) {
        status = write_folder(options, weights, heads);
    } else if (status == CDDP_OK) {
        status = cddpi_weights_write(weights, options->out, options->format, options->type, heads);
    }
    if (status != CDDP_OK) {
        return fail();
    }
    print_line(options->out, options->format, options->type, shape, heads);
    return 0;
}

static int run(const struct cddpi_convert_options *options)
{
    struct cddpi_weights *weights;
    int result;

    (void)signal(SIGXFSZ, SIG_IGN); /* hitting ulimit -f is an error like a full disk */
    if (open_input(options->in, &weights) != CDDP_OK) {
        return fail();
    }
    result = convert(options, weights);
    cddpi_weights_close(weights);
    return result;
}

int main(int argc, char **argv)
{
    struct cddpi_convert_options options;
    int result = 0;

    cddpi_streams_open();
    cddpi_mapped_files_catch();
    if (cddpi_stack_ensure() != CDDP_OK) {
        fprintf(stderr, "cddp-convert: %s\n", cddp_last_error());
        return 1;
    }
    if (cddpi_convert_options_parse(argc, argv, &options) != CDDP_OK) {
        (void)fail();
        return EXIT_USAGE;
    }
    if (options.mode == CDDPI_CONVERT_HELP) {
        cddpi_convert_options_help(stdout);
    } else if (options.mode == CDDPI_CONVERT_VERSION) {
        printf("cddp-convert %s\n", cddp_version());
    } else {
        result = run(&options);
    }
    return cddpi_streams_end("cddp-convert", result);
}
