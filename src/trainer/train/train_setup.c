/* train_setup.c - builds a trainer from its configuration, and destroys it. */
#include "train/train_setup.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/folder.h"
#include "data/normalization.h"
#include "ddp/copies.h"
#include "group/device/group_device.h"
#include "group/watch/dump.h"
#include "group/watch/group_trace.h"
#include "report/run_generations.h"
#include "train/batch_sizes.h"
#include "train/device/device_step.h"
#include "train/device/host_copy.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"
#include "train/generate/generate_model.h"
#include "train/normalize.h"
#include "train/resume.h"
#include "train/same_config.h"
#include "train/same_kernels.h"
#include "train/setup_data.h"
#include "train/setup_model.h"
#include "train/statistics.h"
#include "train/telemetry/train_report.h"

/* Check the syntax of train.trace. */
static cddp_status check_trace(const struct cddpi_config *config)
{
    uint64_t first;
    uint64_t last;

    if (config->train.trace[0] != '\0' &&
        cddpi_trace_parse(config->train.trace, &first, &last) != CDDP_OK) {
        return cddpi_config_fail(config, "train.trace", "\"%.40s\" are not steps: \"10-20\" is",
                                 config->train.trace);
    }
    return CDDP_OK;
}

/* The memory of other models is not estimated. */
static cddp_status check_auto(const struct cddpi_config *config, const struct cddpi_engine *engine)
{
    return config->train.micro_batch == CDDPI_AUTO && !engine->has_one_model
               ? cddpi_config_fail(config, "train.micro_batch",
                                   "\"auto\" is for one model on one device of each rank: give a "
                                   "number of samples")
               : CDDP_OK;
}

cddp_status cddpi_trainer_validate(const struct cddpi_config *config, int world_size)
{
    const struct cddpi_engine *engine = cddpi_engine_of(config);

    CDDPI_TRY(engine->check(config, world_size));
    CDDPI_TRY(check_auto(config, engine));
    CDDPI_TRY(engine->check_batch(config, world_size / config->parallel.pipeline));
    CDDPI_TRY(check_trace(config));
    CDDPI_TRY(cddpi_trainer_check_files(config));
    return cddpi_trainer_check_model(config);
}

/* Create the group from @p options on the configured device, or where the engine needs it. */
static cddp_status join(struct cddpi_trainer *trainer, cddp_group_options *options)
{
    options->device = trainer->config->train.device == CDDPI_TRAIN_ON_AUTO
                          ? NULL /* decided by $CDDP_DEVICE */
                          : cddpi_config_word(trainer->config, "train.device");
    if (trainer->engine->owns_devices) {
        options->device = "cpu"; /* for exchanges between ranks, whatever train.devices are */
    }
    options->deterministic = trainer->config->ddp.deterministic;
    CDDPI_TRY(cddp_group_create(options, &trainer->group));
    trainer->device = cddpi_group_on_device(trainer->group);
    trainer->rank = cddp_group_rank(trainer->group);
    trainer->world_size = cddp_group_world_size(trainer->group);
    trainer->replicas.group = trainer->group;
    trainer->replicas.rank = trainer->rank;
    trainer->replicas.count = trainer->world_size;
    trainer->data.reads_samples = true;
    return CDDP_OK;
}

/* Check that rank and world size come from only one source. */
static cddp_status check_init_method(const struct cddpi_config *config)
{
    int size = config->train.world_size;

    if (size > 0 && config->train.init_method[0] == '\0') {
        return cddpi_config_fail(config, "train.world_size",
                                 "needs train.init_method, which says where the %d ranks meet",
                                 size);
    }
    if (size > 0 && cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return cddpi_config_fail(config, "train.world_size",
                                 "cddp-run has given this process its rank, %s: start cddp-train "
                                 "itself, or leave train.world_size and train.rank out",
                                 cddpi_env(CDDPI_ENV_RANK));
    }
    return config->train.rank < size || config->train.rank == 0
               ? CDDP_OK
               : cddpi_config_fail(config, "train.rank", "%d is not below train.world_size, %d",
                                   config->train.rank, size);
}

/* Refuse what makes bits depend on the number of ranks, if they must not; and train.micro_batch
 * where it would promise nothing, but for a model that is whole and on one device. */
static cddp_status check_positions(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const char *products = cddpi_env(CDDPI_ENV_PRODUCTS);

    if (!cddpi_trainer_by_position(config)) {
        return CDDP_OK;
    }
    if (!cddpi_trainer_has_same_bits(trainer)) {
        return trainer->engine->has_one_model
                   ? CDDP_OK
                   : cddpi_config_fail(config, "train.micro_batch",
                                       "dcgan has it on GPUs only with ddp.deterministic = true");
    }
    CDDPI_TRY(cddpi_config_check_same_bits(config));
    return cddpi_device_is_async(trainer->device) && products != NULL &&
                   strcmp(products, "fast") == 0
               ? cddpi_config_fail(config, "train.micro_batch",
                                   "CDDP_PRODUCTS=fast chooses products by measured times, so bits "
                                   "would depend on them: unset it")
               : CDDP_OK;
}

static cddp_status join_group(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.timeout_ms = (uint32_t)(config->train.timeout * 1000.0);
    if (options.timeout_ms == 0 && config->train.timeout > 0.0) {
        options.timeout_ms = 1;
    }
    CDDPI_TRY(check_init_method(config));
    if (config->train.init_method[0] != '\0') {
        options.rendezvous = config->train.init_method;
        options.rank = config->train.rank;
        options.world_size = config->train.world_size;
    }
    CDDPI_TRY(join(trainer, &options));
    cddpi_dump_set_folder(trainer->group, NULL); /* until the run has a folder */
    cddpi_progress_init(&trainer->records.progress, trainer->rank != 0);
    CDDPI_TRY(cddpi_config_agree(config, trainer->group));
    CDDPI_TRY(trainer->engine->check(config, trainer->world_size));
    CDDPI_TRY(check_auto(config, trainer->engine));
    CDDPI_TRY(cddpi_engine_call(trainer->engine->join, trainer));
    CDDPI_TRY(trainer->engine->check_batch(config, trainer->replicas.count));
    CDDPI_TRY(check_positions(trainer));
    CDDPI_TRY(check_trace(config));
    /* At once, so that what watches the folder sees the run before it has its data and model. */
    return trainer->rank == 0 ? cddpi_run_dir_hold(config->train.run_dir, &trainer->folder.held)
                              : CDDP_OK;
}

static cddp_status open_data(struct cddpi_trainer *trainer)
{
    char note[2048] = "";

    CDDPI_TRY(cddpi_trainer_open_data(trainer->config, trainer->group, &trainer->data.train.data,
                                      &trainer->data.test.data));
    if (trainer->rank == 0) {
        cddpi_trainer_note_classes(trainer->config, &trainer->data.train.data, note, sizeof note);
    }
    if (note[0] != '\0') {
        cddpi_trainer_warn(trainer, "%s", note);
    }
    return CDDP_OK;
}

static void plan_steps(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    uint64_t total = trainer->cursor.step + cddpi_trainer_steps_left(config,
                                                                     trainer->data.train.data.count,
                                                                     &trainer->cursor);
    uint64_t most = (uint64_t)config->train.max_steps;
    int64_t of_schedule = config->optimizer.schedule.total_steps;

    trainer->plan.schedule = (struct cddpi_lr_schedule){
        .type = (enum cddpi_schedule_type)config->optimizer.schedule.type,
        .lr = config->optimizer.lr,
        .final_lr = config->optimizer.schedule.final_lr,
        .warmup_steps = config->optimizer.schedule.warmup_steps,
        .total_steps = of_schedule > 0 ? of_schedule : (int64_t)total,
        .step_size = config->optimizer.schedule.step_size,
        .gamma = config->optimizer.schedule.gamma,
        .decay_steps = config->optimizer.schedule.decay_steps,
        .decay = (enum cddpi_schedule_decay)config->optimizer.schedule.decay,
    };
    trainer->plan.last_step = most > 0 && most < total ? most : total;
    trainer->plan.first_step = trainer->cursor.step;
}

static cddp_status open_sample_log(struct cddpi_trainer *trainer)
{
    const char *base = trainer->config->train.sample_log;
    int replicas = trainer->replicas.count;
    size_t most = (size_t)(cddpi_trainer_micro_batches(trainer->config, replicas) *
                           cddpi_trainer_micro_batch(trainer->config, replicas));

    return base[0] != '\0' && trainer->data.reads_samples
               ? cddpi_sample_log_open(base, trainer->rank, most, &trainer->records.sample_log)
               : CDDP_OK;
}

static cddp_status open_arrivals(struct cddpi_trainer *trainer)
{
    const char *path = cddpi_env(CDDPI_ENV_ARRIVALS);
    char *expanded = NULL;
    cddp_status status;

    if (path == NULL) {
        return CDDP_OK;
    }
    if (cddpi_device_is_async(trainer->device)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "CDDP_ARRIVALS: when gradients are ready on a device is not known here; "
                          "unset it, or train on the CPU");
    }
    if (trainer->engine->refuses_arrivals != NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "CDDP_ARRIVALS: %s: unset it",
                          trainer->engine->refuses_arrivals);
    }
    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    status = cddpi_user_path(path, &expanded);
    if (status == CDDP_OK) {
        status = cddpi_arrivals_open(expanded, trainer->params.list, trainer->params.count,
                                     &trainer->records.arrivals);
    }
    cddpi_free(expanded);
    return status;
}

static cddp_status open_records(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_prometheus *prometheus = NULL;

    cddpi_dump_set_folder(trainer->group, config->train.run_dir);
    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_metrics_open(config->train.run_dir, trainer->cursor.step,
                                 config->train.tensorboard, &trainer->records.metrics));
    if (config->train.prometheus[0] != '\0') {
        CDDPI_TRY(cddpi_prometheus_open(config->train.prometheus, config->train.run_dir,
                                        trainer->world_size, cddpi_generation(), &prometheus));
    }
    cddpi_metrics_export(trainer->records.metrics, prometheus);
    return CDDP_OK;
}

/* Prepare to trace the configured steps. The run has its folder. */
static cddp_status open_trace(struct cddpi_trainer *trainer)
{
    const char *text = trainer->config->train.trace;
    uint64_t first;
    uint64_t last;
    cddp_status status;

    if (text[0] == '\0') {
        text = cddpi_env(CDDPI_ENV_TRACE);
    }
    if (text == NULL) {
        return CDDP_OK;
    }
    status = cddpi_trace_parse(text, &first, &last);
    return status == CDDP_OK ? cddpi_trace_open(trainer->group, first, last)
                             : cddpi_fail_prefix(status, "CDDP_TRACE");
}

/* Warn if a batch_norm of the trainer's models will normalise a single value: the variance is 0, so
 * the output is the bias for any input, and no gradient passes. PyTorch refuses that. */
static void warn_lone_norm(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int64_t batch = config->train.batch_size;
    int64_t rest = (int64_t)(trainer->data.train.data.count % (uint64_t)batch);
    bool always = cddpi_trainer_smallest_micro_batch(config, trainer->replicas.count, batch) == 1;
    bool at_end = rest > 0 &&
                  cddpi_trainer_smallest_micro_batch(config, trainer->replicas.count, rest) == 1;

    /* The ranks of one replica together have all layers. */
    if ((!always && !at_end) || trainer->replicas.rank != 0) {
        return;
    }
    for (int m = 0; m < trainer->models.count; m++) {
        const char *name = cddpi_model_lone_norm(trainer->models.list[m].model);

        if (name != NULL) {
            cddpi_trainer_warn(
                trainer,
                "batch_norm \"%s\" has one value per channel in a sample, and %s micro-batches of "
                "one sample: normalised, only the bias is left of them, so the layers before learn "
                "nothing from them (PyTorch refuses them). %s",
                name, always ? "each step has" : "the last step of an epoch has",
                cddpi_trainer_by_position(config)
                    ? "Choose a train.micro_batch that leaves none of one sample"
                    : "Let train.batch_size give each rank at least two samples, or normalise over "
                      "all ranks (sync)");
            return;
        }
    }
}

static cddp_status create_statistics(struct cddpi_trainer *trainer)
{
    return cddpi_statistics_create(trainer, &trainer->step.statistics);
}

static cddp_status complete_engine(struct cddpi_trainer *trainer)
{
    return cddpi_engine_call(trainer->engine->complete, trainer);
}

cddp_status cddpi_trainer_create(struct cddpi_config *config, struct cddpi_trainer **out)
{
    /* The order is fixed, so that all ranks call collectives in the same order. */
    static cddp_status (*const parts[])(struct cddpi_trainer *) = {
        join_group,
        open_data,
        cddpi_trainer_build_model,
        cddpi_trainer_compare_kernels,
        cddpi_trainer_prepare_text,
        cddpi_trainer_build_ddp,
        create_statistics,
        cddpi_trainer_build_optimizer,
        cddpi_trainer_build_device,
        complete_engine,
        cddpi_trainer_find_peak_flops,
        cddpi_trainer_build_data,
        cddpi_trainer_resume,
        cddpi_trainer_normalize,
        open_sample_log,
        open_arrivals,
        open_records,
        open_trace,
    };
    struct cddpi_trainer *trainer = cddpi_zalloc(sizeof *trainer);

    *out = trainer;
    CDDPI_TRY_MEMORY(trainer != NULL, "trainer: no memory");
    trainer->config = config;
    trainer->choices = config;
    trainer->engine = cddpi_engine_of(config);
    trainer->evaluation.step = ~(uint64_t)0;
    trainer->records.began_ns = cddpi_now_ns();
    CDDPI_TRY(
        cddpi_run_folder_init(&trainer->folder, config->train.run_dir, trainer->records.began_ns));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        CDDPI_TRY(parts[i](trainer));
    }
    if (trainer->cursor.step > 0) { /* the optimizer has state already */
        cddpi_ddp_keep_plan(trainer->ddp);
    }
    plan_steps(trainer);
    warn_lone_norm(trainer);
    if (trainer->engine->begin != NULL) {
        trainer->engine->begin(trainer);
    }
    return CDDP_OK;
}

static void destroy_feed(struct cddpi_trainer_set *set)
{
    cddpi_prefetcher_destroy(set->prefetcher);
    cddpi_data_loader_destroy(set->loader);
    cddp_sampler_destroy(set->sampler);
}

bool cddpi_trainer_destroy(struct cddpi_trainer *trainer)
{
    bool is_alone;

    if (trainer == NULL) {
        return true;
    }
    is_alone = cddpi_save_behind_fini(trainer);
    cddpi_kept_state_close(&trainer->kept);
    cddpi_arrivals_close(trainer->records.arrivals);
    cddpi_sample_log_close(trainer->records.sample_log);
    cddpi_metrics_close(trainer->records.metrics);
    cddpi_free(trainer->records.devices.named);
    cddpi_tokenizer_close(trainer->data.tokenizer);
    destroy_feed(&trainer->data.test);
    destroy_feed(&trainer->data.train);
    cddpi_step_graphs_destroy(trainer->step.graphs);
    cddpi_device_step_destroy(trainer->step.device);
    cddpi_trainer_destroy_host_copy(trainer);
    cddpi_optim_destroy(trainer->step.optim);
    cddpi_agreement_fini(&trainer->step.agreement);
    cddpi_statistics_destroy(trainer->step.statistics);
    cddp_ddp_destroy(trainer->ddp);
    cddpi_free(trainer->step.grads);
    trainer->engine->destroy(trainer);
    cddpi_dataset_close(&trainer->data.test.data);
    cddpi_dataset_close(&trainer->data.train.data);
    cddpi_normalization_destroy(trainer->data.normalization);
    cddp_group_destroy(trainer->group);
    cddpi_run_folder_fini(&trainer->folder);
    if (is_alone) {
        cddpi_free(trainer);
    }
    return is_alone;
}
