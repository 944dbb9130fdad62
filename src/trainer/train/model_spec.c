/* model_spec.c - turns a configuration into the description of a model and of what happens to an
 * image before it. */
#include "train/model_spec.h"

#include "train/batch_sizes.h"

struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data)
{
    bool tokens = data->kind == CDDPI_DATASET_TOKENS;

    return (struct cddpi_model_spec){
        .preset = config->model.type == CDDPI_MODEL_LAYERS
                      ? NULL
                      : cddpi_config_word(config, "model.type"),
        .hidden = config->model.hidden.values,
        .hidden_count = config->model.hidden.count,
        .dropout = config->model.dropout,
        .sync_batch_norm = config->model.sync_batch_norm,
        .layers = config->model.layers.values,
        .layer_count = (size_t)config->model.layers.count,
        .loss = (enum cddpi_loss)config->model.loss,
        .channels = data->channels,
        .height = data->height,
        .width = data->width,
        .classes = data->classes,
        .real_targets = data->target_count > 0,
        .context = tokens ? data->context : 0,
        .vocab = tokens ? data->classes : 0,
        .precision = (enum cddpi_precision)config->train.precision,
        .matmul = (enum cddpi_matmul_mode)config->train.products,
        .size = config->model.size,
        .blocks = config->model.blocks,
        .heads = config->model.heads,
        .embed = config->model.embed,
        .recompute = config->model.recompute,
        .tied = config->model.tied,
        .any_order = !config->ddp.deterministic,
        .invariant = cddpi_trainer_by_position(config),
        .latent = config->model.latent,
        .generator_units = config->model.generator_units,
        .discriminator_units = config->model.discriminator_units,
        .towers = config->model.towers,
    };
}

struct cddpi_transform cddpi_trainer_transform(const struct cddpi_config *config)
{
    int size = config->data.size;
    int resize = config->data.resize; /* the shorter side before the centre is cut out */
    struct cddpi_transform transform = {
        .crop_padding = config->data.crop_padding,
        .flip = config->data.flip,
        .crop_area = {config->data.crop_area.values[0], config->data.crop_area.values[1]},
        .resize = resize > 0 ? resize : size + (size + 7) / 8};

    for (int c = 0; c < 4; c++) {
        const struct cddpi_real_list *mean = &config->data.mean;
        const struct cddpi_real_list *std = &config->data.std;

        transform.mean[c] = (float)mean->values[c < mean->count ? c : 0];
        transform.std[c] = (float)std->values[c < std->count ? c : 0];
    }
    return transform;
}

struct cddpi_npy_options cddpi_trainer_npy_options(const struct cddpi_config *config, bool test)
{
    const struct cddpi_text_list *inputs = test ? &config->data.test : &config->data.train;
    const struct cddpi_text_list *targets = test ? &config->data.test_targets
                                                 : &config->data.train_targets;

    return (struct cddpi_npy_options){
        .inputs = inputs->values,
        .input_count = (size_t)inputs->count,
        .targets = targets->values,
        .target_count = (size_t)targets->count,
        .input_name = config->data.npz_inputs,
        .target_name = config->data.npz_targets,
        .real_targets = config->model.loss == CDDPI_LOSS_MSE || config->model.loss == CDDPI_LOSS_L1,
        .classes = config->data.classes,
        .input_key = test ? "data.test" : "data.train",
        .target_key = test ? "data.test_targets" : "data.train_targets"};
}

cddp_status cddpi_trainer_fit_vocabulary(const struct cddpi_config *config, const char *what,
                                         int tokens, int *out)
{
    if (config->model.vocab > 0 && config->model.vocab < tokens) {
        return cddpi_config_fail(config, "model.vocab",
                                 "%d, but the vocabulary of %s has %d tokens", config->model.vocab,
                                 what, tokens);
    }
    *out = config->model.vocab > 0 ? config->model.vocab : tokens;
    return CDDP_OK;
}

cddp_status cddpi_trainer_check_image(const struct cddpi_config *config)
{
    return config->data.image.count == 3
               ? CDDP_OK
               : cddpi_config_fail(config, "data.image",
                                   "%d numbers, but an image has channels, height and width",
                                   config->data.image.count);
}

cddp_status cddpi_trainer_check_channels(const struct cddpi_config *config, int channels)
{
    const struct cddpi_real_list *lists[] = {&config->data.mean, &config->data.std};

    for (int i = 0; i < 2; i++) {
        if (lists[i]->count != 1 && lists[i]->count != channels) {
            return cddpi_config_fail(config, i == 0 ? "data.mean" : "data.std",
                                     "%d numbers, but the images have %d channels", lists[i]->count,
                                     channels);
        }
    }
    return CDDP_OK;
}
