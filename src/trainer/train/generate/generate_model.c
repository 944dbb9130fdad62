/* generate_model.c - generates text with a trainer's model, which is the generator's source of
 * logits; also during training. */
#include "train/generate/generate_model.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group_info.h"
#include "train/generate/text_reader.h"

#include <cddp/process.h>

/* Open the configured tokenizer, if there is one. */
static cddp_status open_tokenizer(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;

    if (config->data.type != CDDPI_DATA_TEXT && config->data.vocabulary[0] == '\0') {
        return CDDP_OK;
    }
    return cddpi_tokenizer_open(config->data.vocabulary, &trainer->data.tokenizer);
}

/* Check that the model can generate text with this configuration. */
static cddp_status check_text(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int vocabulary = trainer->data.train.data.classes;

    if (config->train.generate_top_k > vocabulary) {
        return cddpi_config_fail(config, "train.generate_top_k",
                                 "%d, but the vocabulary has only %d tokens",
                                 config->train.generate_top_k, vocabulary);
    }
    return CDDP_OK;
}

/* Continue @p prompt as the train.generate_... keys say. Local: no other rank takes part. */
static cddp_status continue_text(const struct cddpi_trainer *trainer, const char *prompt,
                                 int64_t deadline_ns, struct cddpi_generated *out)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_text_reader reader;
    cddp_status status = cddpi_text_reader_init(
        &reader, trainer->model, trainer->device, trainer->models.predictions,
        trainer->data.train.data.classes, trainer->cursor.step);
    struct cddpi_generator generator = {
        .logits = cddpi_text_reader_logits,
        .model = &reader,
        .context = trainer->models.predictions,
        .vocabulary = reader.vocabulary,
        .tokenizer = trainer->data.tokenizer,
        .sampling = {.temperature = config->train.generate_temperature,
                     .top_k = config->train.generate_top_k,
                     .seed = (uint64_t)config->train.seed,
                     .step = trainer->cursor.step},
        .count = config->train.generate_tokens,
        .deadline_ns = deadline_ns,
        .must_stop = cddp_stop_requested,
    };
    cddp_status ended;

    if (status == CDDP_OK) {
        status = cddpi_generate(&generator, prompt, out);
    }
    ended = cddpi_model_reset_sums(reader.model); /* they must not include generated text */
    cddpi_text_reader_fini(&reader);
    if (status == CDDP_OK && ended != CDDP_OK) {
        cddpi_generated_fini(out);
    }
    return status == CDDP_OK ? ended : status;
}

cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer)
{
    if (trainer->config->train.generate_steps == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_text(trainer));
    return trainer->rank == 0 ? open_tokenizer(trainer) : CDDP_OK;
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
        continue_text(trainer, prompt, began + half_ms * 1000000, &generated)));
    if (generated.late && cddp_stop_requested()) {
        cddpi_generated_fini(&generated); /* asked to stop: the checkpoint comes first */
        return CDDP_OK;
    }
    record(trainer, &generated, (double)(cddpi_now_ns() - began) * 1e-6);
    snprintf(heading, sizeof heading, "step %llu: a text of %d tokens",
             (unsigned long long)trainer->cursor.step, generated.count);
    text = cddpi_format("%s%s%s", generated.prompt, trainer->data.tokenizer == NULL ? " " : "",
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
