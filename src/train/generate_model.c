/* generate_model.c - owns the way from a trainer's model to the generator's logits. */
#include "train/generate_model.h"

#include "base/alloc.h"
#include "base/error.h"

/* What a call of the model needs. */
struct reader {
    struct cddpi_model *model;
    int32_t *labels; /* zeros: the loss is not looked at */
    int vocabulary;
    uint64_t step;
};

static cddp_status read_logits(void *context, const int32_t *tokens, int last, const float **out)
{
    struct reader *reader = context;
    uint64_t id = 0;
    struct cddpi_batch batch = {.tokens = tokens,
                                .label = reader->labels,
                                .count = 1,
                                .step = reader->step,
                                .sample_ids = &id};
    struct cddpi_result result = {0};
    cddp_status status = cddpi_model_forward(reader->model, &batch, false, &result);

    if (status == CDDP_OK) {
        *out = cddpi_model_outputs(reader->model) + (size_t)last * (size_t)reader->vocabulary;
    }
    return status;
}

cddp_status cddpi_trainer_continue(const struct cddpi_trainer *trainer, const char *prompt,
                                   int64_t deadline_ns, struct cddpi_generated *out)
{
    const struct cddpi_config *config = trainer->config;
    struct reader reader = {
        .model = trainer->model,
        .labels = cddpi_zalloc_array((size_t)trainer->predictions, sizeof *reader.labels),
        .vocabulary = trainer->train_data.classes,
        .step = trainer->at.step};
    struct cddpi_generator generator = {
        .logits = read_logits,
        .model = &reader,
        .context = trainer->predictions,
        .vocabulary = reader.vocabulary,
        .tokenizer = trainer->tokenizer,
        .choice = {.temperature = config->train.generate_temperature,
                   .top_k = config->train.generate_top_k,
                   .seed = (uint64_t)config->train.seed,
                   .step = trainer->at.step},
        .count = config->train.generate_tokens,
        .deadline_ns = deadline_ns,
    };
    cddp_status status;

    if (reader.labels == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "generate: no memory");
    }
    status = cddpi_generate(&generator, prompt, out);
    cddpi_free(reader.labels);
    return status;
}
