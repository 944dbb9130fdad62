/* both_libraries.c - a program that links libcddp.so and libcddp-model.so: a rank of a job computes
 * with a model, whose failures, warnings and memory are those of the one runtime. Prints "good" and
 * what both have counted. */
#include <cddp/cddp.h>
#include <cddp/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int warned; /* lines of the log about a model */

static void count_line(void *state, const cddp_log_record *record)
{
    (void)state;
    warned += strstr(record->line, "model_close") != NULL;
}

static cddp_status close_inside(void *of_model, const char *piece, size_t bytes)
{
    (void)piece;
    (void)bytes;
    cddp_model_close(of_model); /* is refused with a warning */
    return CDDP_ERR_CLOSED;
}

static int fail(const char *what)
{
    printf("%s: %s\n", what, cddp_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    cddp_failure failure = CDDP_FAILURE_INIT;
    cddp_model_info info = CDDP_MODEL_INFO_INIT;
    cddp_group *group = NULL;
    cddp_model *model = NULL;
    int32_t tokens[4] = {'a', 'b', 'c', 'd'};
    float *logits;
    float sum[2] = {0, 0};
    cddp_tensor in = {.type = CDDP_I32, .dims = 2, .shape = {1, 4}, .data = tokens};
    cddp_param out = {.type = CDDP_F32, .dims = 3, .shape = {1, 4, 0}};

    if (argc != 2 || cddp_group_create(NULL, &group) != CDDP_OK) {
        return fail("group");
    }
    if (cddp_model_open("no-such-run", NULL, &model) != CDDP_ERR_NOT_FOUND ||
        strstr(cddp_last_error(), "no-such-run") == NULL ||
        cddp_last_failure(&failure) != CDDP_OK || failure.status != CDDP_ERR_NOT_FOUND) {
        return fail("the failure of a model is not the runtime's");
    }
    if (cddp_model_open(argv[1], NULL, &model) != CDDP_OK ||
        cddp_model_get_info(model, &info) != CDDP_OK) {
        return fail("open");
    }
    out.shape[2] = (int64_t)info.classes;
    logits = calloc(4 * info.classes, sizeof *logits);
    out.data = logits;
    if (logits == NULL || cddp_model_forward(model, &in, 1, &out, 1) != CDDP_OK) {
        return fail("forward");
    }
    for (size_t i = 0; i < 4 * info.classes; i++) {
        sum[0] += logits[i];
    }
    if (cddp_all_reduce(group, sum, sum + 1, 1, CDDP_F32, CDDP_OP_MEAN, NULL) != CDDP_OK) {
        return fail("all_reduce");
    }
    cddp_log_set_sink(count_line, NULL);
    if (cddp_model_generate(model, "abcd ", NULL, close_inside, model) != CDDP_ERR_CLOSED ||
        warned != 1) {
        return fail("the log of a model is not the runtime's");
    }
    cddp_log_set_sink(NULL, NULL);
    cddp_model_close(model);
    cddp_group_destroy(group);
    free(logits);
    printf("%s\n", sum[0] == sum[1] ? "good" : "ranks differ");
    return sum[0] == sum[1] ? 0 : 1;
}
