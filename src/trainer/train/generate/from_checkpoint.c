/* from_checkpoint.c - implements cddp-train --generate: one process generates text with a run's
 * model. */
#include "train/generate/from_checkpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/device/host_copy.h"
#include "train/engines/engine.h"
#include "train/generate/generate_model.h"
#include "train/resume.h"
#include "train/setup_data.h"
#include "train/setup_model.h"
#include "train/train_setup.h"

#include <string.h>

static cddp_status be_alone(struct cddpi_trainer *trainer)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.backend = "solo";
    options.world_size = 1;
    return cddpi_trainer_join(trainer, &options);
}

/* Load only the model: the optimizer's state, which is twice as large, is not needed. */
static cddp_status load_model(struct cddpi_trainer *trainer, const char *path)
{
    char *file = cddpi_format("%s/model.safetensors", path);
    cddp_param *tensors = NULL;
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, cddpi_trainer_create_host_copy(trainer));
    CDDPI_TRY_GOTO(end, status, cddp_snapshot_read_state(path, NULL, &trainer->cursor.step));
    tensors = cddpi_trainer_model_tensors(trainer);
    if (tensors == NULL || file == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "generate: no memory");
        goto end;
    }
    CDDPI_TRY_GOTO(end, status,
                   cddp_safetensors_load(file, tensors, cddpi_trainer_model_tensor_count(trainer)));
    status = cddpi_trainer_copy_to_device(trainer);
end:
    cddpi_free(tensors);
    cddpi_free(file);
    return status;
}

/* Load the checkpoint that train.resume names, else the newest one of the run, if it has one;
 * otherwise keep model.weights, which are loaded already. */
static cddp_status load_newest(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const char *wanted = config->train.resume;
    char *path = NULL;
    cddp_status status;

    CDDPI_TRY(strcmp(wanted, "none") == 0 || strcmp(wanted, "auto") == 0
                  ? cddpi_trainer_find_newest_in(trainer, trainer->folder.checkpoints, &path)
                  : cddpi_trainer_find_named(trainer, &path));
    if (path == NULL) {
        return config->model.weights[0] != '\0'
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_NOT_FOUND,
                                "%s has no checkpoint, and model.weights names no file: there is "
                                "nothing to generate from",
                                trainer->folder.checkpoints);
    }
    status = load_model(trainer, path);
    cddpi_free(path);
    return status;
}

/* Set what the model must know of the data. Text files need not exist: their vocabulary is
 * enough. */
static cddp_status describe_data(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_dataset *data = &trainer->data.train.data;

    if (config->data.type != CDDPI_DATA_TOKENS && config->data.type != CDDPI_DATA_TEXT) {
        return cddpi_config_fail(
            config, "data.type", "only models of tokens write text, but the data are %s",
            config->data.type == CDDPI_DATA_SYNTHETIC ? "synthetic" : "images");
    }
    if (config->data.type == CDDPI_DATA_TOKENS) {
        CDDPI_TRY(cddpi_trainer_open_data(config, NULL, data, &trainer->data.test.data));
        return cddpi_trainer_open_tokenizer(trainer);
    }
    CDDPI_TRY(cddpi_trainer_open_tokenizer(trainer));
    data->kind = CDDPI_DATASET_TOKENS;
    data->context = config->model.context;
    data->classes = config->model.vocab > 0 ? config->model.vocab
                                            : cddpi_tokenizer_vocabulary(trainer->data.tokenizer);
    return CDDP_OK;
}

static cddp_status print_text(struct cddpi_trainer *trainer, const char *prompt, FILE *file)
{
    struct cddpi_generated generated = {0};

    CDDPI_TRY(cddpi_trainer_continue(trainer, prompt, 0, &generated));
    fprintf(file, "%s%s%s\n", generated.prompt,
            trainer->data.tokenizer == NULL && prompt[0] != '\0' ? " " : "", generated.text);
    cddpi_generated_fini(&generated);
    return CDDP_OK;
}

cddp_status cddpi_trainer_generate(const struct cddpi_config *config, const char *prompt,
                                   FILE *file)
{
    static cddp_status (*const parts[])(struct cddpi_trainer *) = {
        be_alone, describe_data, cddpi_trainer_check_text, cddpi_trainer_build_model, load_newest};
    struct cddpi_trainer *trainer = cddpi_zalloc(sizeof *trainer);
    cddp_status status = CDDP_OK;

    if (trainer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "generate: no memory");
    }
    trainer->config = config;
    trainer->engine = &cddpi_engine_single; /* whatever engine trained it */
    status = cddpi_run_folder_init(&trainer->folder, config->train.run_dir, cddpi_now_ns());
    for (size_t i = 0; status == CDDP_OK && i < sizeof parts / sizeof parts[0]; i++) {
        status = parts[i](trainer);
    }
    if (status == CDDP_OK) {
        status = print_text(trainer, prompt, file);
    }
    cddpi_trainer_destroy(trainer);
    return status;
}
