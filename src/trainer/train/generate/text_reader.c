/* text_reader.c - owns the calls of a model that generating text makes, and their memory. */
#include "train/generate/text_reader.h"

#include "base/alloc.h"
#include "base/error.h"

cddp_status cddpi_text_reader_logits(void *of_reader, const int32_t *tokens, int last,
                                     const float **out)
{
    struct cddpi_text_reader *reader = of_reader;
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

cddp_status cddpi_text_reader_init(struct cddpi_text_reader *out, struct cddpi_model *model,
                                   struct cddpi_device *device, int context, int vocabulary,
                                   uint64_t step)
{
    size_t bytes = (size_t)context * sizeof *out->tokens;
    void *memory = NULL;

    *out = (struct cddpi_text_reader){.model = model,
                                      .device = device,
                                      .context = context,
                                      .vocabulary = vocabulary,
                                      .step = step};
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

void cddpi_text_reader_fini(struct cddpi_text_reader *reader)
{
    reader->device->ops->release(reader->device, reader->labels);
    reader->device->ops->release(reader->device, reader->tokens);
    cddpi_free(reader->logits);
}
