/* infer_text.c - lets a model of tokens continue a text, which arrives in pieces of whole
 * characters. */
#include "infer/infer.h"

#include "base/alloc.h"
#include "base/types.h"
#include "base/utf8.h"
#include "train/generate/generate.h"
#include "train/generate/text_reader.h"

#include <math.h>
#include <string.h>

enum { LONGEST_CHARACTER = 4 };

/* Text on its way to the caller. */
struct text_pieces {
    cddp_text_fn fn;
    void *state;
    char held[LONGEST_CHARACTER]; /* the beginning of a character */
    size_t held_bytes;
};

/* How many bytes at the end of @p text begin a character that goes on. */
static size_t open_bytes(const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        size_t length = cddpi_utf8_length(text + at, bytes - at);
        unsigned char lead = (unsigned char)text[at];
        size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        bool is_open = length == 0 && lead >= 0xC2 && lead <= 0xF4 && bytes - at < wanted;

        for (size_t i = at + 1; is_open && i < bytes; i++) {
            is_open = ((unsigned char)text[i] & 0xC0) == 0x80;
        }
        if (is_open) {
            return bytes - at;
        }
        at += length > 0 ? length : 1;
    }
    return 0;
}

/* Hand over @p bytes of @p text, all of it if @p last. */
static cddp_status put_piece(struct text_pieces *pieces, const char *text, size_t bytes, bool last)
{
    char *joined = cddpi_zalloc(pieces->held_bytes + bytes + 1);
    size_t all = pieces->held_bytes + bytes;
    size_t open;
    char *shown;
    cddp_status status = CDDP_OK;

    if (joined == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_generate: no memory");
    }
    memcpy(joined, pieces->held, pieces->held_bytes);
    memcpy(joined + pieces->held_bytes, text, bytes);
    open = last ? 0 : open_bytes(joined, all);
    shown = cddpi_utf8_clean(joined, all - open);
    memcpy(pieces->held, joined + all - open, open);
    pieces->held_bytes = open;
    cddpi_free(joined);
    if (shown == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_generate: no memory");
    }
    if (shown[0] != '\0') {
        status = pieces->fn(pieces->state, shown, strlen(shown));
    }
    if (status != CDDP_OK && cddpi_last_failure()->status != (int32_t)status) {
        (void)cddpi_fail(status, "model_generate: the function that receives the text: %s",
                         cddp_status_text(status));
    }
    cddpi_free(shown);
    return status;
}

static cddp_status on_token(void *state, const char *bytes, size_t count)
{
    return put_piece(state, bytes, count, false);
}

static cddp_status read_options(const struct cddp_model *model,
                                const cddp_generate_options *options, cddp_generate_options *out)
{
    cddp_generate_options read = CDDP_GENERATE_OPTIONS_INIT;

    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("model_generate", "CDDP_GENERATE_OPTIONS_INIT", options,
                                    sizeof read, &read));
    }
    if (!isfinite(read.temperature) || read.temperature < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_generate: temperature is %g, but must be finite and not negative",
                          read.temperature);
    }
    if (read.max_tokens > 1000000 || read.top_k > (uint32_t)model->data.classes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_generate: max_tokens is %u and top_k %u, but they may be at most "
                          "1000000 and the vocabulary's %d tokens",
                          read.max_tokens, read.top_k, model->data.classes);
    }
    if (read.max_tokens == 0) {
        read.max_tokens = (uint32_t)model->config->train.generate_tokens;
    }
    *out = read;
    return CDDP_OK;
}

static cddp_status write_text(struct cddp_model *model, const char *prompt,
                              const cddp_generate_options *options, struct text_pieces *pieces)
{
    struct cddpi_text_reader reader;
    struct cddpi_generated generated = {0};
    cddp_status status = cddpi_text_reader_init(&reader, model->model, model->device,
                                                model->data.context, model->data.classes,
                                                model->step);
    struct cddpi_generator generator = {.logits = cddpi_text_reader_logits,
                                        .model = &reader,
                                        .context = model->data.context,
                                        .vocabulary = model->data.classes,
                                        .tokenizer = model->tokenizer,
                                        .sampling = {.temperature = options->temperature,
                                                     .top_k = (int)options->top_k,
                                                     .seed = options->seed,
                                                     .step = model->step},
                                        .count = (int)options->max_tokens,
                                        .on_token = on_token,
                                        .state = pieces};

    if (status == CDDP_OK) {
        status = cddpi_generate(&generator, prompt, &generated);
    }
    if (status == CDDP_OK) {
        status = put_piece(pieces, "", 0, true);
    }
    cddpi_generated_fini(&generated);
    cddpi_text_reader_fini(&reader);
    return status;
}

cddp_status cddp_model_generate(cddp_model *model, const char *prompt,
                                const cddp_generate_options *options, cddp_text_fn fn, void *state)
{
    struct text_pieces pieces = {.fn = fn, .state = state};
    cddp_generate_options read = CDDP_GENERATE_OPTIONS_INIT;
    size_t team;
    cddp_status status;

    CDDPI_ENTER(&model->handle, cddpi_infer_enter(model, "model_generate"));
    if (prompt == NULL || fn == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model_generate: %s is NULL",
                          prompt == NULL ? "prompt" : "fn");
    }
    if (model->kind != CDDPI_INFER_TOKENS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "model_generate: only language models write text, but this one's data "
                          "are images");
    }
    CDDPI_TRY(read_options(model, options, &read));
    team = cddpi_infer_begin(model);
    status = write_text(model, prompt, &read, &pieces);
    cddpi_infer_end(team);
    return status;
}
