/* gpt_logits.c - writes the logits of a GPT-2 for tokens, and prints nothing: `gpt_logits WEIGHTS
 * HEADS TOKENS OUT`. WEIGHTS is any file that cddp's model.weights accepts. TOKENS holds int32,
 * samples of the model's whole context. OUT gets float32, tokens x vocabulary. For
 * scripts/check_weights.py. */
#include "base/alloc.h"
#include "nn/model.h"
#include "nn/weights/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 20 };

static int fail(const char *what)
{
    fprintf(stderr, "gpt_logits: %s: %s\n", what, cddp_last_error());
    return 1;
}

static cddp_status build(const char *path, int heads, struct cddpi_model_spec *spec,
                         struct cddpi_model **out)
{
    struct cddpi_weights *weights;
    const struct cddpi_gpt2_shape *shape;
    const cddp_param *params;
    size_t count;
    cddp_status status = cddpi_weights_open(path, &weights);

    if (status != CDDP_OK) {
        return status;
    }
    shape = cddpi_weights_shape(weights);
    *spec = (struct cddpi_model_spec){.preset = "gpt2",
                                      .classes = (int)shape->vocab,
                                      .blocks = (int)shape->blocks,
                                      .heads = heads,
                                      .embed = (int)shape->embed,
                                      .context = (int)shape->context,
                                      .vocab = (int)shape->vocab};
    cddpi_weights_close(weights);
    status = cddpi_model_create(spec, 1, NULL, out);
    if (status != CDDP_OK) {
        return status;
    }
    params = cddpi_model_params(*out, &count);
    return cddpi_weights_load(path, heads, params, count);
}

/* Run the tokens of @p in through the model, all samples at once. */
static int run(struct cddpi_model *model, const struct cddpi_model_spec *spec, FILE *in, FILE *out)
{
    int32_t *tokens = calloc(MOST_TOKENS, sizeof *tokens);
    size_t read = fread(tokens, sizeof *tokens, MOST_TOKENS, in);
    size_t samples = read / (size_t)spec->context;
    uint64_t *ids = calloc(samples + 1, sizeof *ids);
    struct cddpi_batch batch = {.tokens = tokens,
                                .label = tokens, /* any: nobody looks at the loss */
                                .count = (int)samples,
                                .sample_ids = ids};
    struct cddpi_loss_result result;
    size_t logits = read * (size_t)spec->vocab;
    int status = 0;

    if (samples == 0 || read != samples * (size_t)spec->context) {
        fprintf(stderr, "gpt_logits: %zu tokens are no samples of %d\n", read, spec->context);
        status = 1;
    } else if (cddpi_model_forward(model, &batch, false, &result) != CDDP_OK) {
        status = fail("forward");
    } else if (fwrite(cddpi_model_outputs(model), sizeof(float), logits, out) != logits) {
        perror("gpt_logits: write");
        status = 1;
    }
    free(tokens);
    free(ids);
    return status;
}

int main(int argc, char **argv)
{
    struct cddpi_model_spec spec;
    struct cddpi_model *model = NULL;
    FILE *in;
    FILE *out;
    int result;

    if (argc != 5) {
        fprintf(stderr, "usage: gpt_logits WEIGHTS HEADS TOKENS OUT\n");
        return 2;
    }
    in = fopen(argv[3], "rbe");
    out = fopen(argv[4], "wbe");
    if (in == NULL || out == NULL) {
        perror("gpt_logits: open");
        return 1;
    }
    if (build(argv[1], atoi(argv[2]), &spec, &model) != CDDP_OK) {
        result = fail(argv[1]);
    } else {
        result = run(model, &spec, in, out);
    }
    cddpi_model_destroy(model);
    fclose(in);
    return fclose(out) == 0 ? result : 1;
}
