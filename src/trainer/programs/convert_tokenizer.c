/* convert_tokenizer.c - the files of cddp-convert --to hf from which transformers' AutoTokenizer
 * makes a model's tokenizer. */
#include "programs/convert_tokenizer.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/replace.h"
#include "base/streams.h"
#include "data/tokenizer/tokenizer_train.h"
#include "train/config/config.h"

#include <jansson.h>
#include <stdlib.h>

/* Open the tokenizer that the run in @p folder was trained with. */
static cddp_status open_of_run(const char *folder, struct cddpi_tokenizer **out)
{
    char *path = cddpi_format("%s/train.conf", folder);
    struct cddpi_config config;
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory for a name", folder);
    status = cddpi_config_load_model(path, NULL, &config);
    cddpi_free(path);
    CDDPI_TRY(status);
    if (config.data.type == CDDPI_DATA_TEXT || config.data.vocabulary[0] != '\0') {
        status = cddpi_tokenizer_open(config.data.vocabulary, out);
    } else {
        status = cddpi_fail(CDDP_ERR_NOT_FOUND,
                            "the run in %s was given tokens, and no data.vocabulary that says what "
                            "they mean",
                            folder);
    }
    cddpi_config_fini(&config);
    return status;
}

/* Whether @p folder has files of a tokenizer. */
static bool has_tokenizer(const char *folder)
{
    return cddpi_folder_holds(folder, "tokenizer.json") ||
           cddpi_folder_holds(folder, "vocab.json") || cddpi_folder_holds(folder, "encoder.json");
}

/* Describe the tokenizer to transformers. Only one of words has texts that it does not know. */
static cddp_status write_description(const struct cddpi_tokenizer *tokenizer, const char *path,
                                     const struct cddpi_gpt2_shape *shape)
{
    size_t bytes = 0;
    const char *end = cddpi_tokenizer_token(tokenizer, cddpi_tokenizer_end(tokenizer), &bytes);
    size_t space = cddpi_tokenizer_keeps_text(tokenizer) ? 0 : 1; /* in front of a word */
    int shown = (int)(bytes - space);
    json_t *document = json_pack("{s:s, s:s#, s:s#, s:I, s:b}", "tokenizer_class",
                                 "PreTrainedTokenizerFast", "bos_token", end + space, shown,
                                 "eos_token", end + space, shown, "model_max_length",
                                 (json_int_t)shape->context, "clean_up_tokenization_spaces", 0);
    bool is_good = document != NULL &&
                   (cddpi_tokenizer_keeps_text(tokenizer) ||
                    json_object_set_new(document, "unk_token", json_string("<unk>")) == 0);
    char *text = is_good ? json_dumps(document, JSON_INDENT(1)) : NULL;
    cddp_status status;

    json_decref(document);
    CDDPI_TRY_MEMORY(text != NULL, "%s: no memory", path);
    status = cddpi_file_replace_line(path, text);
    free(text); /* allocated by jansson */
    return status;
}

static cddp_status write_files(const struct cddpi_tokenizer *tokenizer, const char *out,
                               const struct cddpi_gpt2_shape *shape)
{
    char *model = cddpi_format("%s/tokenizer.json", out);
    char *description = cddpi_format("%s/tokenizer_config.json", out);
    cddp_status status = CDDP_OK;

    if (model == NULL || description == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for names", out);
    }
    status = status == CDDP_OK ? cddpi_tokenizer_save(tokenizer, model) : status;
    status = status == CDDP_OK ? write_description(tokenizer, description, shape) : status;
    cddpi_free(model);
    cddpi_free(description);
    return status;
}

cddp_status cddpi_convert_tokenizer(const char *in, const char *out,
                                    const struct cddpi_gpt2_shape *shape, int32_t *out_end)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    bool is_run = cddpi_folder_holds(in, "train.conf");
    cddp_status status;

    *out_end = -1;
    if (!is_run && !has_tokenizer(in)) {
        return CDDP_OK;
    }
    status = is_run ? open_of_run(in, &tokenizer) : cddpi_tokenizer_open(in, &tokenizer);
    if (status == CDDP_OK && cddpi_tokenizer_vocabulary(tokenizer) > shape->vocab) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "the tokenizer has %d tokens, the model only %lld",
                            cddpi_tokenizer_vocabulary(tokenizer), (long long)shape->vocab);
    }
    status = status == CDDP_OK ? write_files(tokenizer, out, shape) : status;
    if (status == CDDP_OK) {
        *out_end = cddpi_tokenizer_end(tokenizer);
    }
    cddpi_tokenizer_close(tokenizer);
    if (status == CDDP_OK || status == CDDP_ERR_IO || status == CDDP_ERR_NO_MEMORY) {
        return status;
    }
    cddpi_say(stderr, "cddp-convert: %s gets no files of a tokenizer: %s\n", out,
              cddp_last_error());
    return CDDP_OK;
}
