/* continue.c - continues a text with a language model that cddp-train has trained:
 * ./continue runs/NAME "And the king" */
#include <cddp/model.h>

#include <stdio.h>

static cddp_status print_piece(void *state, const char *piece, size_t bytes)
{
    (void)state;
    return fwrite(piece, 1, bytes, stdout) == bytes && fflush(stdout) == 0 ? CDDP_OK : CDDP_ERR_IO;
}

int main(int argc, char **argv)
{
    cddp_generate_options options = {CDDP_SIZED(cddp_generate_options), .temperature = 0.8,
                                     .seed = 1};
    cddp_model *model = NULL;
    int failed = argc != 3 || cddp_model_open(argv[1], NULL, &model);

    failed = failed || printf("%s", argv[2]) < 0 ||
             cddp_model_generate(model, argv[2], &options, print_piece, NULL);
    if (failed) {
        fprintf(stderr, "%s\n", argc != 3 ? "usage: continue RUN TEXT" : cddp_last_error());
    }
    cddp_model_close(model);
    return failed || printf("\n") < 0 ? 1 : 0;
}
