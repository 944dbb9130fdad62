/* model_batch.c - owns the checks of a batch. */
#include "base/error.h"
#include "nn/model_state.h"

cddp_status cddpi_check_count(int count, int low)
{
    if (count < low || count > 1 << 20) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model: a batch of %d samples is not possible", count);
    }
    return CDDP_OK;
}

static cddp_status check_labels(const struct cddpi_model *model, const struct cddpi_batch *batch)
{
    bool binary = model->loss == CDDPI_LOSS_BINARY_CROSS_ENTROPY && model->classes == 1;
    int end = binary ? 2 : model->classes;

    for (int i = 0; i < batch->count; i++) {
        if (batch->label[i] < 0 || batch->label[i] >= end) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "model: the label of sample %d is %d, outside the %d classes", i,
                              batch->label[i], end);
        }
    }
    return CDDP_OK;
}

static cddp_status check_tokens(const struct cddpi_model *model, const int32_t *tokens, int count,
                                const char *what)
{
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < model->predictions; t++) {
            int32_t token = tokens[(size_t)i * (size_t)model->predictions + (size_t)t];

            if (token < 0 || token >= model->classes) {
                return cddpi_fail(CDDP_ERR_ARGUMENT,
                                  "model: %s %d of sample %d is %d, outside the vocabulary of %d",
                                  what, t, i, token, model->classes);
            }
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_check_batch_kind(const struct cddpi_model *model, const struct cddpi_batch *batch)
{
    if (batch->count > 0 && cddpi_model_reads_data(model) &&
        model->tokens_in != (batch->tokens != NULL)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model: it takes %s",
                          model->tokens_in ? "tokens, which the batch does not have"
                                           : "images or numbers, not tokens");
    }
    return cddpi_check_count(batch->count, 0);
}

cddp_status cddpi_model_check_batch(const struct cddpi_model *model,
                                    const struct cddpi_batch *batch)
{
    cddp_status status = cddpi_check_batch_kind(model, batch);

    if (status != CDDP_OK || batch->count == 0) {
        return status;
    }
    if (!model->tokens_in) {
        return cddpi_model_has_loss(model) && !model->real_targets ? check_labels(model, batch)
                                                                   : CDDP_OK;
    }
    if (cddpi_model_reads_data(model)) {
        status = check_tokens(model, batch->tokens, batch->count, "token");
    }
    return status == CDDP_OK && cddpi_model_has_loss(model)
               ? check_tokens(model, batch->label, batch->count, "label")
               : status;
}
