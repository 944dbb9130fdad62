/* convert.c - the program cddp-convert: GPT-2 weights from one format to another. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/number.h"
#include "base/streams.h"
#include "nn/weights.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, HEAD_SIZE = 64 };

static const char usage[] =
    "usage: cddp-convert --to hf|llmc|cddp [--type f32|bf16|f16] [--heads N] IN OUT\n"
    "       cddp-convert --info IN\n"
    "       cddp-convert --help | --version\n"
    "\n"
    "Converts the weights of a GPT-2. What IN is shows in its contents: a safetensors file of "
    "cddp's\n"
    "or of Hugging Face's, a model file of llm.c's (version 3 or 5), a folder with a\n"
    "model.safetensors, or a run's folder: then its newest whole checkpoint.\n"
    "\n"
    "  --to FORMAT   hf: for Hugging Face's GPT2LMHeadModel. OUT is a file if its name ends in\n"
    "                .safetensors, else a folder that gets model.safetensors and config.json;\n"
    "                llmc: a model file; cddp: a safetensors file, for model.weights\n"
    "  --type TYPE   of the elements; f32 by default. llmc: f32 or bf16, cddp: f32\n"
    "  --heads N     attention heads, where IN does not tell\n"
    "  --info        print what IN is, and end\n"
    "  --help        print this text\n"
    "  --version     print the version\n";

struct request {
    enum cddpi_weights_format format;
    bool has_format, info;
    cddp_type type;
    int64_t heads; /* 0: not given */
    const char *in, *out;
};

static int fail(void)
{
    fprintf(stderr, "cddp-convert: %s\n", cddp_last_error());
    return EXIT_FAILED;
}

static int misuse(const char *what, const char *word)
{
    fprintf(stderr, "cddp-convert: %s%s%s\n%s", what, word != NULL ? ": " : "",
            word != NULL ? word : "", usage);
    return EXIT_USAGE;
}

static bool parse_format(const char *word, struct request *request)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(word, cddpi_weights_format_names[i]) == 0) {
            request->format = (enum cddpi_weights_format)i;
            request->has_format = true;
            return true;
        }
    }
    return false;
}

static bool parse_type(const char *word, struct request *request)
{
    static const cddp_type types[] = {CDDP_F32, CDDP_F16, CDDP_BF16};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(word, cddp_type_name(types[i])) == 0) {
            request->type = types[i];
            return true;
        }
    }
    return false;
}

/* Returns 0, an exit status, or -1 after --help and --version. */
static int parse(int argc, char **argv, struct request *out)
{
    static const struct option options[] = {{"to", required_argument, NULL, 't'},
                                            {"type", required_argument, NULL, 'y'},
                                            {"heads", required_argument, NULL, 'n'},
                                            {"info", no_argument, NULL, 'i'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 't' && !parse_format(optarg, out)) {
            return misuse("--to takes hf, llmc or cddp", optarg);
        } else if (option == 'y' && !parse_type(optarg, out)) {
            return misuse("--type takes f32, bf16 or f16", optarg);
        } else if (option == 'n' && !cddpi_parse_integer(optarg, 1, 1 << 18, &out->heads)) {
            return misuse("--heads takes a number from 1 on", optarg);
        } else if (option == 'i') {
            out->info = true;
        } else if (option == 'h') {
            fputs(usage, stdout);
            return -1;
        } else if (option == 'v') {
            printf("cddp-convert %s\n", cddp_version());
            return -1;
        } else if (option == '?') {
            fputs(usage, stderr); /* getopt has said what is wrong */
            return EXIT_USAGE;
        }
    }
    if (argc - optind != (out->info ? 1 : 2)) {
        return misuse(out->info ? "--info takes one file" : "what to read and what to write", NULL);
    }
    if (!out->info && !out->has_format) {
        return misuse("--to says which format is wanted", NULL);
    }
    out->in = argv[optind];
    out->out = argv[optind + 1];
    return 0;
}

static bool exists(const char *folder, const char *name)
{
    char *path = cddpi_format("%s/%s", folder, name);
    struct stat info;
    bool found = path != NULL && stat(path, &info) == 0;

    cddpi_free(path);
    return found;
}

/* Open @path, or the newest whole checkpoint below it. */
static cddp_status open_input(const char *path, struct cddpi_weights **out)
{
    struct stat info;
    char *folder;
    char *snapshot = NULL;
    char *skipped = NULL;
    cddp_status status;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode) || exists(path, "model.safetensors")) {
        return cddpi_weights_open(path, out);
    }
    folder = cddpi_format("%s%s", path, exists(path, "checkpoints") ? "/checkpoints" : "");
    if (folder == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", path);
    }
    status = cddp_snapshot_find(folder, &snapshot, &skipped);
    if (status == CDDP_OK) {
        fprintf(stderr, "%s%scddp-convert: reading %s\n", skipped != NULL ? skipped : "",
                skipped != NULL ? "\n" : "", snapshot);
        status = cddpi_weights_open(snapshot, out);
    }
    cddpi_free(folder);
    cddp_free(snapshot);
    cddp_free(skipped);
    return status;
}

/* All GPT-2 models that were published have heads of 64. */
static cddp_status settle_heads(const struct request *request, const struct cddpi_weights *weights,
                                int64_t *out)
{
    const struct cddpi_gpt2_shape *shape = cddpi_weights_shape(weights);

    if (request->heads > 0 && shape->heads > 0 && request->heads != shape->heads) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: made with %lld heads, not with %lld", request->in,
                          (long long)shape->heads, (long long)request->heads);
    }
    *out = request->heads > 0 ? request->heads : shape->heads;
    if (*out == 0 && shape->embed % HEAD_SIZE != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: it does not say how many heads it was made with: give --heads N",
                          request->in);
    }
    if (*out == 0) {
        *out = shape->embed / HEAD_SIZE;
        fprintf(stderr,
                "cddp-convert: %s does not say how many heads it was made with: taking %lld heads "
                "of %d (see --heads)\n",
                request->in, (long long)*out, HEAD_SIZE);
    }
    return CDDP_OK;
}

static void print_line(const char *path, enum cddpi_weights_format format, cddp_type type,
                       const struct cddpi_gpt2_shape *shape, int64_t heads)
{
    double elements = (double)shape->embed * (double)(shape->vocab + shape->context + 2) +
                      (double)shape->blocks * (double)shape->embed *
                          (12.0 * (double)shape->embed + 13);

    printf("%s: %s, %s, %.0f parameters: vocabulary %lld, context %lld, %lld blocks, embed %lld",
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

/* Hugging Face's folder: the weights, and what they are. */
static cddp_status write_folder(const struct request *request, const struct cddpi_weights *weights,
                                int64_t heads)
{
    char *model = cddpi_format("%s/model.safetensors", request->out);
    char *config = cddpi_format("%s/config.json", request->out);
    cddp_status status;

    if (model == NULL || config == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for names", request->out);
    } else {
        status = cddpi_folder_make(request->out);
    }
    if (status == CDDP_OK) {
        status = cddpi_weights_write(weights, model, request->format, request->type, heads);
    }
    if (status == CDDP_OK) {
        status = cddpi_weights_write_config(weights, config, request->type, heads);
    }
    cddpi_free(model);
    cddpi_free(config);
    return status;
}

static int convert(const struct request *request, const struct cddpi_weights *weights)
{
    const struct cddpi_gpt2_shape *shape = cddpi_weights_shape(weights);
    bool folder = request->format == CDDPI_WEIGHTS_HF && !ends_with(request->out, ".safetensors");
    int64_t heads = 0;
    cddp_status status;

    if (request->info) {
        print_line(request->in, cddpi_weights_format(weights), cddpi_weights_type(weights), shape,
                   shape->heads);
        return 0;
    }
    status = settle_heads(request, weights, &heads);
    if (status == CDDP_OK && folder) {
        status = write_folder(request, weights, heads);
    } else if (status == CDDP_OK) {
        status = cddpi_weights_write(weights, request->out, request->format, request->type, heads);
    }
    if (status != CDDP_OK) {
        return fail();
    }
    print_line(request->out, request->format, request->type, shape, heads);
    return 0;
}

int main(int argc, char **argv)
{
    struct request request = {.type = CDDP_F32};
    struct cddpi_weights *weights;
    int result;

    cddpi_streams_open();
    result = parse(argc, argv, &request);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
    if (result == 0) {
        if (open_input(request.in, &weights) != CDDP_OK) {
            return fail();
        }
        result = convert(&request, weights);
        cddpi_weights_close(weights);
    }
    return cddpi_streams_end("cddp-convert", result > 0 ? result : 0);
}
