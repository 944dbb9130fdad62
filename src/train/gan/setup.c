/* setup.c - owns the generator beside a trainer's discriminator, and the memory between them. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "ddp/copies.h"
#include "train/batch_sizes.h"
#include "train/gan/state.h"
#include "train/setup_model.h"

static cddp_status make_part(const struct cddpi_trainer *trainer,
                             const struct cddpi_model_spec *spec, struct cddpi_layer_range part,
                             struct cddpi_trainer *out)
{
    struct cddpi_model_spec of_part = *spec;
    cddp_status status;

    of_part.part = part;
    status = cddpi_model_create(&of_part, (uint64_t)trainer->config->train.seed, trainer->group,
                                &out->model);
    if (status != CDDP_OK) {
        return status;
    }
    out->models[0] = (struct cddpi_trainer_model){out->model, 0, out};
    out->model_count = 1;
    out->params = cddpi_model_params(out->model, &out->param_count);
    out->buffers = cddpi_model_buffers(out->model, &out->buffer_count);
    return CDDP_OK;
}

cddp_status cddpi_gan_build_models(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec)
{
    struct cddpi_trainer *generator = cddpi_zalloc(sizeof *generator);
    struct cddpi_layer_range range = {0, 0};
    cddp_status status;

    if (generator == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    if (trainer->device->ops->kind != CDDPI_DEVICE_CPU) {
        cddpi_free(generator);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "the steps of dcgan's two networks are not on a GPU yet: train.device = "
                          "\"cpu\" has them");
    }
    trainer->generator = generator;
    generator->config = trainer->config;
    generator->group = trainer->group;
    generator->rank = trainer->rank;
    generator->world_size = trainer->world_size;
    generator->device = trainer->device;
    generator->replicas = trainer->replicas;
    generator->replica = trainer->replica;
    generator->replica_count = trainer->replica_count;
    generator->predictions = 1;
    status = cddpi_model_find_layers(spec, "discriminator", &range);
    if (status == CDDP_OK) {
        status = make_part(trainer, spec, range, trainer);
    }
    return status == CDDP_OK
               ? make_part(trainer, spec, (struct cddpi_layer_range){0, range.first}, generator)
               : status;
}

static size_t elements_of(const cddp_param *param)
{
    return cddpi_elements(param->dims, param->shape);
}

/* For the largest batch of training and of evaluation, and for a sheet. */
static bool allocate(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    const struct cddpi_config *config = trainer->config;
    size_t sheet = CDDPI_GAN_SHEET_SIDE * CDDPI_GAN_SHEET_SIDE;
    size_t trained = (size_t)cddpi_trainer_micro_batch(config, trainer->replica_count);
    size_t room = trained > sheet ? trained : sheet;
    size_t labels = room + (size_t)config->train.eval_batch_size;
    size_t params = 0;
    float *unwanted;

    for (size_t i = 0; i < trainer->param_count; i++) {
        params += elements_of(&trainer->params[i]);
    }
    gan->noise = cddpi_alloc_aligned(room * gan->latent * sizeof *gan->noise);
    gan->fake = cddpi_alloc_aligned(room * gan->image * sizeof *gan->fake);
    gan->fake_grad = cddpi_alloc_aligned(room * gan->image * sizeof *gan->fake_grad);
    gan->zeros = cddpi_zalloc_array(labels, sizeof *gan->zeros);
    gan->ones = cddpi_zalloc_array(labels, sizeof *gan->ones);
    gan->ids = cddpi_zalloc_array(labels, sizeof *gan->ids);
    gan->unwanted = cddpi_alloc_aligned(params * sizeof *gan->unwanted);
    gan->unwanted_grads = cddpi_zalloc_array(trainer->param_count, sizeof *gan->unwanted_grads);
    if (gan->noise == NULL || gan->fake == NULL || gan->fake_grad == NULL || gan->zeros == NULL ||
        gan->ones == NULL || gan->ids == NULL || gan->unwanted == NULL ||
        gan->unwanted_grads == NULL) {
        return false;
    }
    for (size_t i = 0; i < labels; i++) {
        gan->ones[i] = 1;
        gan->ids[i] = i;
    }
    unwanted = gan->unwanted;
    for (size_t i = 0; i < trainer->param_count;
         i++) { /* apart: backward reads some of them again */
        gan->unwanted_grads[i] = unwanted;
        unwanted += elements_of(&trainer->params[i]);
    }
    return true;
}

cddp_status cddpi_gan_build(struct cddpi_trainer *trainer)
{
    const struct cddpi_dataset *data = &trainer->train_data;
    struct cddpi_gan *gan;
    cddp_status status;

    if (trainer->generator == NULL) {
        return CDDP_OK;
    }
    gan = cddpi_zalloc(sizeof *gan);
    trainer->gan = gan;
    if (gan == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    gan->latent = (size_t)trainer->config->model.latent;
    gan->image = (size_t)data->channels * (size_t)data->height * (size_t)data->width;
    if (!allocate(trainer, gan)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "trainer: no memory for generated images of %zu numbers", gan->image);
    }
    status = cddpi_trainer_build_ddp(trainer->generator);
    return status == CDDP_OK ? cddpi_trainer_build_optimizer(trainer->generator) : status;
}

void cddpi_gan_begin(struct cddpi_trainer *trainer)
{
    struct cddpi_trainer *generator = trainer->generator;
    double of_discriminator = trainer->config->optimizer.discriminator_lr;

    if (generator == NULL) {
        return;
    }
    generator->cursor = trainer->cursor;
    generator->first_step = trainer->first_step;
    generator->schedule = trainer->schedule;
    if (of_discriminator > 0) {
        trainer->schedule.lr = of_discriminator;
    }
    if (trainer->cursor.step > 0) { /* the optimizer has state already */
        cddpi_ddp_keep_plan(generator->ddp);
    }
}

void cddpi_gan_destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = trainer->gan;
    struct cddpi_trainer *generator = trainer->generator;

    if (generator != NULL) {
        cddpi_optim_destroy(generator->optim);
        cddp_ddp_destroy(generator->ddp);
        cddpi_free(generator->grads);
        cddpi_model_destroy(generator->model);
        cddpi_free(generator);
    }
    if (gan != NULL) {
        cddpi_free(gan->noise);
        cddpi_free(gan->fake);
        cddpi_free(gan->fake_grad);
        cddpi_free(gan->zeros);
        cddpi_free(gan->ones);
        cddpi_free(gan->ids);
        cddpi_free(gan->unwanted);
        cddpi_free(gan->unwanted_grads);
        cddpi_free(gan);
    }
}
