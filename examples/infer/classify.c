/* classify.c - the classes of images, by a model that cddp-train has trained:
 * ./classify runs/NAME a.png b.jpg ... */
#include <cddp/model.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    cddp_model_options options = {CDDP_SIZED(cddp_model_options), .probabilities = true};
    cddp_model_value in = CDDP_MODEL_VALUE_INIT, out = CDDP_MODEL_VALUE_INIT;
    cddp_model *model = NULL;
    int failed = argc < 3 || cddp_model_open(argv[1], &options, &model) ||
                 cddp_model_get_input(model, 0, &in) || cddp_model_get_output(model, 0, &out);
    size_t bytes = failed ? 1 : (size_t)(in.shape[1] * in.shape[2] * in.shape[3]);
    size_t classes = failed ? 1 : (size_t)out.shape[1];
    uint8_t *image = malloc(bytes);
    float *row = malloc(classes * sizeof *row);
    cddp_tensor input = {.type = CDDP_U8,
                         .dims = 4,
                         .data = image,
                         .shape = {1, in.shape[1], in.shape[2], in.shape[3]}};
    cddp_param output = {.type = CDDP_F32, .dims = 2, .data = row, .shape = {1, out.shape[1]}};

    for (int i = 2; i < argc && !failed; i++) {
        size_t best = 0;

        failed = cddp_model_read_image(model, argv[i], image, bytes) ||
                 cddp_model_forward(model, &input, 1, &output, 1);
        for (size_t c = 1; c < classes && !failed; c++) {
            best = row[c] > row[best] ? c : best;
        }
        failed = failed ||
                 printf("%s: class %zu, probability %.4f\n", argv[i], best, row[best]) < 0;
    }
    if (failed) {
        fprintf(stderr, "%s\n", argc < 3 ? "usage: classify RUN IMAGE ..." : cddp_last_error());
    }
    cddp_model_close(model);
    free(image);
    free(row);
    return failed ? 1 : 0;
}
