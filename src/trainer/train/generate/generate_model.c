/* generate_model.c - generates text with a trainer's model, which is the generator's source of
 * logits; also during training. */
#include "train/generate/generate_model.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group_info.h"
#include "group/watch/stop.h"

cddp_status cddpi_trainer_open_tokenizer(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;

    if (config->data.type != CDDPI_DATA_TEXT && config->data.vocabulary[0] == '\0') {
        return CDDP_OK;
    }
    return cddpi_tokenizer_open(config->data.vocabulary, &trainer->tokenizer);
}

cddp_status cddpi_trainer_check_text(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int vocabulary = trainer->train.data.classes;

    if (config->train.generate_top_k > vocabulary) {
        return cddpi_config_fail(config, "train.generate_top_k",
                                 "%d, but the vocabulary has only %d tokens",
                                 config->train.generate_top_k, vocabulary);
    }
    return CDDP_OK;
}

/* The arguments of a model call. Tokens and labels are in the model's memory. */
struct reader {
    struct cddpi_model *model;
    struct cddpi_device *device;
    int32_t *tokens; /* on a device; NULL: use the generator's own */
    int32_t *labels; /* zeros: the loss is not used */
    float *logits;
    int context, vocabulary;
    uint64_t step;
};

static cddp_status read_logits(void *context, const int32_t *tokens, int last, const float **out)
{
    struct reader *reader = context;
    uint64_t id = 0;
    struct cddpi_batch batch = {.tokens = reader->tokens != NULL ? reader->tokens : tokens,
                                .label = reader->labels,
                                .count = 1,
                                .step = reader->step,
                                .sample_ids = &id};
    struct cddpi_loss_result result = {0};

    if (reader->tokens != NULL) {
        CDDPI_TRY(reader->device->ops->copy(reader->device, CDDPI_STREAM_COMPUTE, reader->tokens,
                                            tokens, (size_t)reader->context * sizeof *tokens));
    }
    CDDPI_TRY(cddpi_model_forward(reader->model, &batch, false, &result));
    CDDPI_TRY(cddpi_model_read_outputs(reader->model, (size_t)last, 1, reader->logits));
    *out = reader->logits;
    return CDDP_OK;
}

static cddp_status reader_init(const struct cddpi_trainer *trainer, struct reader *out)
{
    struct cddpi_device *device = trainer->device;
    size_t bytes = (size_t)trainer->predictions * sizeof *out->tokens;
    void *memory = NULL;

    *out = (struct reader){.model = trainer->model,
                           .device = device,
                           .context = trainer->predictions,
                           .vocabulary = trainer->train.data.classes,
                           .step = trainer->cursor.step};
    out->logits = cddpi_zalloc_array((size_t)out->vocabulary, sizeof *out->logits);
    if (out->logits == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "generate: no memory");
    }
    CDDPI_TRY(device->ops->alloc(device, bytes, "labels of a text", &memory));
    out->labels = memory;
    CDDPI_TRY(device->ops->clear(device, CDDPI_STREAM_COMPUTE, memory, bytes));
    if (cddpi_device_is_async(device)) {
        CDDPI_TRY(device->ops->alloc(device, bytes, "tokens of a text", &memory));
        out->tokens = memory;
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_continue(const struct cddpi_trainer *trainer, const char *prompt,
                                   int64_t deadline_ns, struct cddpi_generated *out)
{
    const struct cddpi_config *config = trainer->config;
    struct reader reader;
    cddp_status status = reader_init(trainer, &reader);
    struct cddpi_generator generator = {
        .logits = read_logits,
        .model = &reader,
        .context = trainer->predictions,
        .vocabulary = reader.vocabulary,
        .tokenizer = trainer->tokenizer,
        .sampling = {.temperature = config->train.generate_temperature,
                     .top_k = config->train.generate_top_k,
                     .seed = (uint64_t)config->train.seed,
                     .step = trainer->cursor.step},
        .count = config->train.generate_tokens,
        .deadline_ns = deadline_ns,
        .must_stop = cddpi_stop_requested,
    };
    cddp_status ended;

    if (status == CDDP_OK) {
        status = cddpi_generate(&generator, prompt, out);
    }
    ended = cddpi_model_reset_sums(reader.model); /* they must not include generated text */
    reader.device->ops->release(reader.device, reader.labels);
    reader.device->ops->release(reader.device, reader.tokens);
    cddpi_free(reader.logits);
    return status == CDDP_OK ? ended : status;
}

cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer)
{
    if (trainer->config->train.generate_steps == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_check_text(trainer));
    return trainer->rank == 0 ? cddpi_trainer_open_tokenizer(trainer) : CDDP_OK;
}

/* Write the line of metrics. */
static void record(struct cddpi_trainer *trainer, const struct cddpi_generated *generated,
                   double took_ms)
{
    if (trainer->records.metrics == NULL) {
        return;
    }
    cddpi_metrics_add_object(
        trainer->records.metrics,
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:f}", "kind", "sample", "step",
                  (json_int_t)trainer->cursor.step, "epoch",
                  (json_int_t)(trainer->cursor.epoch + (trainer->cursor.position > 0)), "prompt",
                  generated->prompt, "text", generated->text, "tokens", generated->count, "ms",
                  took_ms));
}

cddp_status cddpi_trainer_write_text(struct cddpi_trainer *trainer)
{
    const char *prompt = trainer->config->train.generate_prompt;
    int64_t began = cddpi_now_ns();
    int64_t half_ms = cddpi_group_timeout_ms(trainer->group) / 2;
    struct cddpi_generated generated = {0};
    char heading[96];
    char *text;

    CDDPI_TRY(cddpi_config_name_key(
        trainer->config, "train.generate_prompt",
        cddpi_trainer_continue(trainer, prompt, began + half_ms * 1000000, &generated)));
    if (generated.late && cddpi_stop_requested()) {
        cddpi_generated_fini(&generated); /* asked to stop: the checkpoint comes first */
        return CDDP_OK;
    }
    record(trainer, &generated, (double)(cddpi_now_ns() - began) * 1e-6);
    snprintf(heading, sizeof heading, "step %llu: a text of %d tokens",
             (unsigned long long)trainer->cursor.step, generated.count);
    text = cddpi_format("%s%s%s", generated.prompt, trainer->tokenizer == NULL ? " " : "",
                        generated.text);
    if (text != NULL) {
        cddpi_progress_text(&trainer->records.progress, heading, text);
    }
    if (generated.late) {
        cddpi_trainer_warn(trainer,
                           "train.generate_tokens: the text ends after %d of %d tokens, which took "
                           "half of the time that the other ranks wait for it",
                           generated.count, trainer->config->train.generate_tokens);
    }
    cddpi_free(text);
    cddpi_generated_fini(&generated);
    return CDDP_OK;
}
