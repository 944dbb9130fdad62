/* gan_setup.c - owns the generator beside a trainer's discriminator, and the memory between them.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "ddp/copies.h"
#include "train/batch_sizes.h"
#include "train/engines/gan/gan_state.h"
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

static cddp_status make_floats(const struct cddpi_trainer *trainer, size_t count, float **out)
{
    void *memory = NULL;
    cddp_status status = trainer->device->ops->alloc(trainer->device, count * sizeof **out,
                                                     "generated images", &memory);

    *out = memory;
    return status;
}

static cddp_status pin_floats(const struct cddpi_trainer *trainer, size_t count, float **out)
{
    void *memory = NULL;
    cddp_status status = trainer->device->ops->pin(trainer->device, count * sizeof **out, &memory);

    *out = memory;
    return status;
}

static cddp_status make_slot(const struct cddpi_trainer *trainer, size_t room,
                             struct cddpi_gan_slot *slot)
{
    cddp_status status = pin_floats(trainer, room * trainer->gan->latent, &slot->noise);

    for (int pass = 0; status == CDDP_OK && pass < CDDPI_GAN_CONVINCE; pass++) {
        status = pin_floats(trainer, room, &slot->logits[pass]);
    }
    return status;
}

/* @p count labels that are all @p value. */
static cddp_status make_labels(const struct cddpi_trainer *trainer, size_t count, int32_t value,
                               int32_t **out)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    int32_t *values = cddpi_zalloc_array(count, sizeof *values);
    void *memory = NULL;
    cddp_status status;

    if (values == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory for %zu labels", count);
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
    status = ops->alloc(trainer->device, count * sizeof *values, "labels", &memory);
    *out = memory;
    if (status == CDDP_OK) {
        status = ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, memory, values,
                           count * sizeof *values);
    }
    if (status == CDDP_OK) {
        status = ops->finish(trainer->device, cddp_group_timeout_ms(trainer->group));
    }
    cddpi_free(values);
    return status;
}

/* Apart, for backward reads some of them again. */
static cddp_status make_unwanted(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    size_t elements = 0;
    float *next;
    cddp_status status;

    for (size_t i = 0; i < trainer->param_count; i++) {
        elements += elements_of(&trainer->params[i]);
    }
    gan->unwanted_grads = cddpi_zalloc_array(trainer->param_count, sizeof *gan->unwanted_grads);
    if (gan->unwanted_grads == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory for %zu parameters",
                          trainer->param_count);
    }
    status = make_floats(trainer, elements, &gan->unwanted);
    next = gan->unwanted;
    for (size_t i = 0; status == CDDP_OK && i < trainer->param_count; i++) {
        gan->unwanted_grads[i] = next;
        next += elements_of(&trainer->params[i]);
    }
    return status;
}

/* For the largest batch of training and of evaluation, and for a sheet. */
static cddp_status allocate(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    const struct cddpi_config *config = trainer->config;
    size_t sheet = CDDPI_GAN_SHEET_SIDE * CDDPI_GAN_SHEET_SIDE;
    size_t trained = (size_t)cddpi_trainer_micro_batch(config, trainer->replica_count);
    size_t room = trained > sheet ? trained : sheet;
    size_t labels = room + (size_t)config->train.eval_batch_size;
    cddp_status status = CDDP_OK;

    gan->ids = cddpi_zalloc_array(labels, sizeof *gan->ids);
    if (gan->ids == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory for %zu samples", labels);
    }
    for (size_t i = 0; i < labels; i++) {
        gan->ids[i] = i;
    }
    for (int i = 0; status == CDDP_OK && i < CDDPI_GAN_SLOTS; i++) {
        status = make_slot(trainer, room, &gan->slots[i]);
    }
    if (status == CDDP_OK) {
        status = make_floats(trainer, room * gan->latent, &gan->noise);
    }
    if (status == CDDP_OK) {
        status = make_floats(trainer, room * gan->image, &gan->fake);
    }
    if (status == CDDP_OK) {
        status = make_floats(trainer, room * gan->image, &gan->fake_grad);
    }
    if (status == CDDP_OK) {
        status = make_labels(trainer, labels, 0, &gan->zeros);
    }
    if (status == CDDP_OK) {
        status = make_labels(trainer, labels, 1, &gan->ones);
    }
    return status == CDDP_OK ? make_unwanted(trainer, gan) : status;
}

static void release(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;

    for (int i = 0; i < CDDPI_GAN_SLOTS; i++) {
        ops->unpin(trainer->device, gan->slots[i].noise);
        for (int pass = 0; pass < CDDPI_GAN_CONVINCE; pass++) {
            ops->unpin(trainer->device, gan->slots[i].logits[pass]);
        }
    }
    ops->release(trainer->device, gan->noise);
    ops->release(trainer->device, gan->fake);
    ops->release(trainer->device, gan->fake_grad);
    ops->release(trainer->device, gan->zeros);
    ops->release(trainer->device, gan->ones);
    ops->release(trainer->device, gan->unwanted);
    cddpi_free(gan->unwanted_grads);
    cddpi_free(gan->ids);
    cddpi_free(gan);
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
    trainer->generator->gan = gan;
    if (gan == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    gan->latent = (size_t)trainer->config->model.latent;
    gan->image = (size_t)data->channels * (size_t)data->height * (size_t)data->width;
    status = allocate(trainer, gan);
    if (status == CDDP_OK) {
        status = cddpi_trainer_build_ddp(trainer->generator);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_build_optimizer(trainer->generator);
    }
    return status == CDDP_OK ? cddpi_trainer_build_device(trainer->generator) : status;
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
    struct cddpi_trainer *generator = trainer->generator;

    if (generator != NULL) {
        cddpi_device_step_destroy(generator->device_step);
        cddpi_optim_destroy(generator->optim);
        cddp_ddp_destroy(generator->ddp);
        cddpi_free(generator->grads);
        cddpi_model_destroy(generator->model);
        cddpi_free(generator);
    }
    if (trainer->gan != NULL) {
        release(trainer, trainer->gan);
    }
}
