/* convert_options.c - owns cddp-convert's option table, from which parsing, help and suggestions
 * are made. */
#include "programs/convert_options.h"

#include "base/error.h"
#include "base/options.h"

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(TO, "to", 0, "FORMAT",                                                                       \
      "hf: for Hugging Face's GPT2LMHeadModel, OUT is a file if its name ends in .safetensors, "   \
      "else a folder that gets model.safetensors and config.json; llmc: a model file; cddp: a "    \
      "safetensors file, for model.weights")                                                       \
    X(TYPE, "type", 0, "TYPE",                                                                     \
      "of the elements: f32 (the default), bf16 or f16; llmc holds f32 and bf16, cddp f32")        \
    X(HEADS, "heads", 0, "N", "attention heads, where IN does not tell")                           \
    X(INFO, "info", 0, NULL, "print what IN is, and end")                                          \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-convert", OPTION_MAP);

enum { HEADS_MAX = 1 << 18 };

static cddp_status read_format(const char *const values[OPTION_COUNT],
                               enum cddpi_weights_format *out)
{
    int word = (int)*out;
    cddp_status status = cddpi_option_word(&table, values, OPTION_TO, cddpi_weights_format_names,
                                           CDDPI_CHOICE_COUNT(CDDPI_WEIGHTS_FORMAT_MAP), &word);

    *out = (enum cddpi_weights_format)word;
    return status;
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

/* Refuse an option that would be ignored: it is a mistake. */
static cddp_status check_info(const char *const values[OPTION_COUNT], int word_count)
{
    static const int useless[] = {OPTION_TO, OPTION_TYPE, OPTION_HEADS};

    for (int i = 0; i < 3; i++) {
        if (values[useless[i]] != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s has no meaning with --info",
                              rows[useless[i]].name);
        }
    }
    return word_count == 1 ? CDDP_OK
                           : cddpi_fail(CDDP_ERR_ARGUMENT,
                                        "--info needs one file or folder: see cddp-convert --help");
}

static cddp_status read_values(const char *const values[OPTION_COUNT], int word_count,
                               struct cddpi_convert_options *options)
{
    CDDPI_TRY(read_format(values, &options->format));
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

cddp_status cddpi_convert_options_parse(int argc, char **argv, struct cddpi_convert_options *out)
{
    struct cddpi_convert_options options = {.type = CDDP_F32};
    const char *values[OPTION_COUNT] = {NULL};
    int word_count = 0;

    CDDPI_TRY(cddpi_options_read(&table, argc, argv, values, &word_count));
    options.mode = values[OPTION_HELP] != NULL      ? CDDPI_CONVERT_HELP
                   : values[OPTION_VERSION] != NULL ? CDDPI_CONVERT_VERSION
                   : values[OPTION_INFO] != NULL    ? CDDPI_CONVERT_INFO
                                                    : CDDPI_CONVERT_WRITE;
    if (options.mode == CDDPI_CONVERT_INFO) {
        CDDPI_TRY(check_info(values, word_count));
    } else if (options.mode == CDDPI_CONVERT_WRITE) {
        CDDPI_TRY(read_values(values, word_count, &options));
    }
    options.in = word_count > 0 ? argv[1] : NULL;
    options.out = word_count > 1 ? argv[2] : NULL;
    *out = options;
    return CDDP_OK;
}

void cddpi_convert_options_help(FILE *to)
{
    fputs(
        "usage: cddp-convert --to hf|llmc|cddp [--type f32|bf16|f16] [--heads N] IN OUT\n"
        "       cddp-convert --info IN\n"
        "       cddp-convert --help | --version\n"
        "\nConverts the weights of a GPT-2. What IN is shows in its contents: a safetensors file\n"
        "of cddp's or of Hugging Face's, the index of one in shards, a model file of llm.c's\n"
        "(version 3 or 5), a folder with a model.safetensors or a model.safetensors.index.json, "
        "or\n"
        "a run's folder: then its newest whole checkpoint.\n\n",
        to);
    cddpi_options_print(&table, 18, to);
}
