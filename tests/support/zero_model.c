/* zero_model.c - a model of tokens whose weights are zeros, and calls with its structs. */
#include "support/zero_model.h"

static cddp_model *model;

cddp_status use_model_options(const void *from)
{
    cddp_model *opened = NULL;
    cddp_status status = cddp_model_open("there is no such run", from, &opened);

    cddp_model_close(opened);
    return status == CDDP_ERR_NOT_FOUND ? CDDP_OK : status; /* it was read */
}

static cddp_status no_text(void *state, const char *piece, size_t bytes)
{
    (void)state, (void)piece, (void)bytes;
    return CDDP_OK;
}

cddp_status use_generate_options(const void *from)
{
    return cddp_model_generate(model, "", from, no_text, NULL);
}

void open_zero_model(const char *folder)
{
    static const float zeros[257 * 2];
    const cddp_tensor tensors[] = {
        {.name = "embedding1.weight",
         .type = CDDP_F32,
         .dims = 2,
         .shape = {257, 2},
         .data = zeros},
        {.name = "linear2.weight", .type = CDDP_F32, .dims = 2, .shape = {257, 2}, .data = zeros},
        {.name = "linear2.bias", .type = CDDP_F32, .dims = 1, .shape = {257}, .data = zeros}};
    const cddp_model_options options = {
        CDDP_SIZED(cddp_model_options),
        .config_text =
            "data = { type = \"text\"; train = \"x\"; }; optimizer = { lr = 0.1; };"
            "model = { type = \"layers\"; context = 4; layers = ("
            "{ type = \"embedding\"; units = 2; }, { type = \"linear\"; units = 257; }); };"
            "train = { generate_tokens = 2; };"};
    char path[4300];

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(cddp_safetensors_write(path, tensors, 3, NULL), CDDP_OK);
    if (cddp_model_open(path, &options, &model) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

cddp_status fill_model_value(void *out)
{
    return cddp_model_get_input(model, 0, out);
}

cddp_status fill_model_info(void *out)
{
    return cddp_model_get_info(model, out);
}

void close_zero_model(void)
{
    cddp_model_close(model);
    model = NULL;
}
