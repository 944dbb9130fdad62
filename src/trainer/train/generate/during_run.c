/* during_run.c - generates sample texts during training, which show users how training progresses.
 * Rank 0 generates while the other ranks wait, so it must end before their deadline. */
#include "train/generate/during_run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/watch/stop.h"
#include "train/generate/generate_model.h"

cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer)
{
    cddp_status status = CDDP_OK;

    if (trainer->config->train.generate_steps == 0) {
        return CDDP_OK;
    }
    status = cddpi_trainer_check_text(trainer);
    return status == CDDP_OK && trainer->rank == 0 ? cddpi_trainer_open_tokenizer(trainer) : status;
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
    int64_t half_ms = cddp_group_timeout_ms(trainer->group) / 2;
    struct cddpi_generated generated = {0};
    char heading[96];
    char *text;
    cddp_status status = cddpi_trainer_continue(trainer, prompt, began + half_ms * 1000000,
                                                &generated);

    if (status != CDDP_OK) {
        return status == CDDP_ERR_CONFIG
                   ? cddpi_config_fail(trainer->config, "train.generate_prompt", "%s",
                                       cddp_last_error())
                   : status;
    }
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
