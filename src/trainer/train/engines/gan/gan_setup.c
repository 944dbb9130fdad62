/* gan_setup.c - owns the generator of a trainer with a discriminator, and the memory that they
 * share. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/streams.h"
#include "ddp/copies.h"
#include "group/group_info.h"
#include "train/batch_sizes.h"
#include "train/checkpoint.h"
#include "train/engines/gan/gan_state.h"
#include "train/engines/single/single.h"
#include "train/setup_model.h"

static cddp_status create_part(struct cddpi_trainer *out, const struct cddpi_model_spec *spec,
                               struct cddpi_layer_range part)
{
    struct cddpi_model_spec of_part = *spec;

    of_part.part = part;
    return cddpi_single_create_model(out, &of_part);
}

static cddp_status build_models(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    struct cddpi_gan *gan = cddpi_zalloc(sizeof *gan);
    struct cddpi_trainer *generator = cddpi_zalloc(sizeof *generator);
    struct cddpi_layer_range range = {0, 0};

    if (gan == NULL || generator == NULL) {
        cddpi_free(gan);
        cddpi_free(generator);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    trainer->engine_state = gan;
    trainer->next = generator;
    gan->generator = generator;
    generator->engine = trainer->engine;
    generator->engine_state = gan;
    generator->config = trainer->config;
    generator->group = trainer->group;
    generator->rank = trainer->rank;
    generator->world_size = trainer->world_size;
    generator->device = trainer->device;
    generator->replicas.group = trainer->replicas.group;
    generator->replicas.rank = trainer->replicas.rank;
    generator->replicas.count = trainer->replicas.count;
    generator->models.predictions = 1;
    CDDPI_TRY(cddpi_model_find_layers(spec, "discriminator", &range));
    CDDPI_TRY(create_part(trainer, spec, range));
    return create_part(generator, spec, (struct cddpi_layer_range){0, range.first});
}

static cddp_status build(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    return cddpi_config_name_file(trainer->config, build_models(trainer, spec));
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

/* Make @p count labels, all equal to @p value. */
static cddp_status make_labels(const struct cddpi_trainer *trainer, size_t count, int32_t value,
                               int32_t **out)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    int32_t *values = cddpi_zalloc_array(count, sizeof *values);
    void *memory = NULL;
    cddp_status status;

    CDDPI_TRY_MEMORY(values != NULL, "trainer: no memory for %zu labels", count);
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
    CDDPI_TRY_GOTO(end, status,
                   ops->alloc(trainer->device, count * sizeof *values, "labels", &memory));
    *out = memory;
    CDDPI_TRY_GOTO(
        end, status,
        ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, memory, values, count * sizeof *values));
    status = ops->finish(trainer->device, cddpi_group_timeout_ms(trainer->group));
end:
    cddpi_free(values);
    return status;
}

/* Give each gradient its own memory, because backward reads some of them again. */
static cddp_status make_unwanted(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    size_t elements = 0;
    float *next;

    for (size_t i = 0; i < trainer->params.count; i++) {
        elements += elements_of(&trainer->params.list[i]);
    }
    gan->unwanted_grads = cddpi_zalloc_array(trainer->params.count, sizeof *gan->unwanted_grads);
    CDDPI_TRY_MEMORY(gan->unwanted_grads != NULL, "trainer: no memory for %zu parameters",
                     trainer->params.count);
    CDDPI_TRY(make_floats(trainer, elements, &gan->unwanted));
    next = gan->unwanted;
    for (size_t i = 0; i < trainer->params.count; i++) {
        gan->unwanted_grads[i] = next;
        next += elements_of(&trainer->params.list[i]);
    }
    return CDDP_OK;
}

/* Make room to remember a step's micro-batches, of @p samples each. */
static cddp_status make_kept(const struct cddpi_trainer *trainer, size_t samples,
                             struct cddpi_gan *gan)
{
    size_t count = (size_t)cddpi_trainer_micro_batches(trainer->config, trainer->replicas.count);

    gan->kept_room = samples;
    gan->kept = cddpi_zalloc_array(count, sizeof *gan->kept);
    gan->kept_ids = cddpi_zalloc_array(count * samples, sizeof *gan->kept_ids);
    CDDPI_TRY_MEMORY(gan->kept != NULL && gan->kept_ids != NULL,
                     "trainer: no memory for %zu micro-batches", count);
    return CDDP_OK;
}

/* Allocate for the largest batch of training, of evaluation, and for a sheet. */
static cddp_status allocate_gan(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    const struct cddpi_config *config = trainer->config;
    size_t sheet = CDDPI_GAN_SHEET_SIDE * CDDPI_GAN_SHEET_SIDE;
    size_t trained = (size_t)cddpi_trainer_micro_batch(config, trainer->replicas.count);
    size_t room = trained > sheet ? trained : sheet;
    size_t labels = room + (size_t)config->train.eval_batch_size;

    gan->ids = cddpi_zalloc_array(labels, sizeof *gan->ids);
    CDDPI_TRY_MEMORY(gan->ids != NULL, "trainer: no memory for %zu samples", labels);
    for (size_t i = 0; i < labels; i++) {
        gan->ids[i] = i;
    }
    for (int i = 0; i < CDDPI_GAN_SLOTS; i++) {
        CDDPI_TRY(pin_floats(trainer, room * gan->latent, &gan->slots[i].noise));
        CDDPI_TRY(pin_floats(trainer, room, &gan->slots[i].logits));
    }
    CDDPI_TRY(make_floats(trainer, room * gan->latent, &gan->noise));
    CDDPI_TRY(make_floats(trainer, room * gan->image, &gan->fake));
    CDDPI_TRY(make_floats(trainer, room * gan->image, &gan->fake_grad));
    CDDPI_TRY(make_labels(trainer, labels, 0, &gan->zeros));
    CDDPI_TRY(make_labels(trainer, labels, 1, &gan->ones));
    CDDPI_TRY(make_kept(trainer, trained, gan));
    return make_unwanted(trainer, gan);
}

static void release_gan(const struct cddpi_trainer *trainer, struct cddpi_gan *gan)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;

    for (int i = 0; i < CDDPI_GAN_SLOTS; i++) {
        ops->unpin(trainer->device, gan->slots[i].noise);
        ops->unpin(trainer->device, gan->slots[i].logits);
    }
    ops->release(trainer->device, gan->noise);
    ops->release(trainer->device, gan->fake);
    ops->release(trainer->device, gan->fake_grad);
    ops->release(trainer->device, gan->zeros);
    ops->release(trainer->device, gan->ones);
    ops->release(trainer->device, gan->unwanted);
    cddpi_free(gan->unwanted_grads);
    cddpi_free(gan->kept_ids);
    cddpi_free(gan->kept);
    cddpi_free(gan->ids);
    cddpi_free(gan);
}

static cddp_status complete(struct cddpi_trainer *trainer)
{
    const struct cddpi_dataset *data = &trainer->data.train.data;
    struct cddpi_gan *gan = cddpi_gan_of(trainer);

    gan->latent = (size_t)trainer->config->model.latent;
    gan->image = cddpi_dataset_elements(data);
    CDDPI_TRY(allocate_gan(trainer, gan));
    CDDPI_TRY(cddpi_statistics_create(trainer, &gan->fake_statistics));
    CDDPI_TRY(cddpi_trainer_build_ddp(gan->generator));
    CDDPI_TRY(cddpi_statistics_create(gan->generator, &gan->generator->step.statistics));
    CDDPI_TRY(cddpi_trainer_build_optimizer(gan->generator));
    return cddpi_trainer_build_device(gan->generator);
}

/* Start the generator at the same step. */
static void begin(struct cddpi_trainer *trainer)
{
    struct cddpi_trainer *generator = cddpi_gan_of(trainer)->generator;
    double of_discriminator = trainer->config->optimizer.discriminator_lr;

    generator->cursor = trainer->cursor;
    generator->plan.first_step = trainer->plan.first_step;
    generator->plan.schedule = trainer->plan.schedule;
    if (of_discriminator > 0) {
        trainer->plan.schedule.lr = of_discriminator;
    }
    if (trainer->cursor.step > 0) { /* the optimizer has state already */
        cddpi_ddp_keep_plan(generator->ddp);
    }
}

static void destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_gan *gan = cddpi_gan_of(trainer);

    cddpi_model_destroy(trainer->model);
    if (gan != NULL) {
        struct cddpi_trainer *generator = gan->generator;

        cddpi_device_step_destroy(generator->step.device);
        cddpi_optim_destroy(generator->step.optim);
        cddpi_statistics_destroy(generator->step.statistics);
        cddp_ddp_destroy(generator->ddp);
        cddpi_free(generator->step.grads);
        cddpi_statistics_destroy(gan->fake_statistics);
        cddpi_model_destroy(generator->model);
        cddpi_free(generator);
        release_gan(trainer, gan);
    }
    trainer->next = NULL;
    trainer->engine_state = NULL;
}

static bool fits(const struct cddpi_config *config)
{
    return config->model.type == CDDPI_MODEL_DCGAN;
}

static cddp_status describe(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                            int replicas, int samples, FILE *file)
{
    (void)config;
    (void)spec;
    (void)replicas;
    (void)samples;
    fputs("what follows is of one pass through both networks: a step goes three times through the "
          "discriminator, once through the generator\n",
          file);
    return CDDP_OK;
}

static cddp_status show_evaluation(struct cddpi_trainer *trainer, uint64_t epoch)
{
    cddpi_progress_line(
        &trainer->records.progress, "epoch %llu/%lld  step %llu  test images judged real: %.2f %%",
        (unsigned long long)epoch, (long long)trainer->config->train.epochs,
        (unsigned long long)trainer->cursor.step, trainer->evaluation.accuracy * 100);
    return cddpi_gan_write_sheet(trainer);
}

static void print_result(const struct cddpi_trainer *trainer, FILE *file)
{
    const char *dir = cddpi_trainer_run_dir(trainer);

    cddpi_say(file, "generated images after %llu steps are in %s/images; results: %s\n",
              (unsigned long long)trainer->cursor.step, dir, dir);
}

/* The model for the loader. A discriminator does not read the data's labels, so they are not
 * checked. */
static struct cddpi_model *reader(const struct cddpi_trainer *trainer)
{
    return trainer->next->model;
}

/* List the discriminator's optimizer first, then the generator's, whose counters need other names.
 * There is no loss scale: both are computed in f32. */
static cddp_status list_tensors(struct cddpi_trainer *trainer, struct cddpi_snapshot_params *out)
{
    static const char *const counters[] = {"generator.step", "generator.param_steps"};
    struct cddpi_optim *optim = trainer->next->step.optim;
    size_t count = 0;
    const cddp_param *tensors = cddpi_optim_tensors(optim, &count);
    size_t first;
    cddp_status status;

    CDDPI_TRY(cddpi_single_list_tensors(trainer, out));
    first = out->optimizer_count;
    status = cddpi_checkpoint_add_optimizer(out, tensors, count);
    if (status != CDDP_OK) {
        cddpi_checkpoint_release(out);
        return status;
    }
    for (size_t i = 0; i < cddpi_optim_counters(optim); i++) {
        ((cddp_param *)(uintptr_t)out->optimizer)[first + i].name = counters[i];
    }
    return CDDP_OK;
}

const struct cddpi_engine cddpi_engine_gan = {
    .fits = fits,
    .check = cddpi_single_check,
    .check_batch = cddpi_single_check_batch,
    .describe = describe,
    .forwards = 2,
    .refuses_arrivals = "a step of dcgan has several backwards",
    .build = build,
    .load_weights = cddpi_single_load_weights,
    .complete = complete,
    .begin = begin,
    .destroy = destroy,
    .bind_grads = cddpi_single_bind_grads,
    .bind_params = cddpi_single_bind_params,
    .param_decays = cddpi_single_param_decays,
    .ready_order = cddpi_single_ready_order,
    .remakes_shards = true,
    .compute = cddpi_gan_compute,
    .update = cddpi_gan_update,
    .square_sum = cddpi_single_square_sum,
    .update_finds_squares = true,
    .take_result = cddpi_gan_take_result,
    .evaluate = cddpi_gan_evaluate,
    .show_evaluation = show_evaluation,
    .add_metrics = cddpi_gan_add_metrics,
    .print_result = print_result,
    .reader = reader,
    .device_count = cddpi_single_device_count,
    .name_device = cddpi_single_name_device,
    .add_memory = cddpi_single_add_memory,
    .list_tensors = list_tensors,
    .load = cddpi_single_load,
    .keep_sums = cddpi_gan_keep_sums,
};
