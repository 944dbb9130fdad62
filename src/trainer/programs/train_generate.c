/* train_generate.c - implements cddp-train --generate, and finds the model for --predict, too. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/utf8.h"
#include "infer/infer.h"
#include "programs/train_infer.h"
#include "train/resume.h"

#include <errno.h>
#include <string.h>

/* The checkpoint that train.resume names, else the newest one of the run; NULL: there is none, but
 * model.weights. */
static cddp_status find_checkpoint(struct cddpi_trainer *trainer, char **out)
{
    const struct cddpi_config *config = trainer->config;
    const char *wanted = config->train.resume;

    *out = NULL;
    CDDPI_TRY(cddpi_run_folder_init(&trainer->folder, config->train.run_dir, cddpi_now_ns()));
    CDDPI_TRY(strcmp(wanted, "none") == 0 || strcmp(wanted, "auto") == 0
                  ? cddpi_trainer_find_newest_in(trainer, trainer->folder.checkpoints, false, out)
                  : cddpi_trainer_find_named(trainer, false, out));
    return *out != NULL || config->model.weights[0] != '\0'
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NOT_FOUND,
                            "%s has no checkpoint, and model.weights names no file: there is "
                            "no model to use",
                            trainer->folder.checkpoints);
}

cddp_status cddpi_train_open_model(const struct cddpi_config *config, bool probabilities,
                                   cddp_model **out)
{
    cddp_model_options options = CDDP_MODEL_OPTIONS_INIT;
    struct cddpi_trainer *trainer = cddpi_zalloc(sizeof *trainer); /* for its run folder */
    char *checkpoint = NULL;
    cddp_status status;

    if (trainer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory");
    }
    trainer->config = config;
    options.device = config->train.device == CDDPI_TRAIN_ON_AUTO
                         ? cddpi_env(CDDPI_ENV_DEVICE)
                         : cddpi_config_word(config, "train.device");
    options.probabilities = probabilities && config->model.loss != CDDPI_LOSS_MSE &&
                            config->model.loss != CDDPI_LOSS_L1;
    status = find_checkpoint(trainer, &checkpoint);
    if (status == CDDP_OK) {
        status = cddpi_infer_open(config, checkpoint, config->model.weights, &options, out);
    }
    cddpi_free(checkpoint);
    cddpi_run_folder_fini(&trainer->folder);
    cddpi_free(trainer);
    return status;
}

/* Check that the model can generate text with this configuration. */
static cddp_status check_text(const struct cddpi_config *config)
{
    return config->data.type == CDDPI_DATA_TOKENS || config->data.type == CDDPI_DATA_TEXT
               ? CDDP_OK
               : cddpi_config_fail(
                     config, "data.type", "only language models write text, but the data are %s",
                     config->data.type == CDDPI_DATA_SYNTHETIC ? "synthetic"
                     : config->data.type == CDDPI_DATA_CSV || config->data.type == CDDPI_DATA_NPY
                         ? "numbers"
                         : "images");
}

/* A text on its way to a file, behind its prompt. */
struct printed {
    FILE *file;
    const char *prompt;  /* as it is shown */
    const char *between; /* it and the continuation */
    bool begun;          /* nothing is printed if the text fails before that */
};

static cddp_status put_piece(void *state, const char *piece, size_t bytes)
{
    struct printed *out = state;

    (void)bytes;
    if (!out->begun) {
        fprintf(out->file, "%s%s", out->prompt, out->between);
    }
    out->begun = true;
    return fputs(piece, out->file) != EOF && fflush(out->file) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, errno, "generate: the text");
}

static cddp_status print_text(const struct cddpi_config *config, cddp_model *model,
                              const char *prompt, FILE *file)
{
    const cddp_generate_options options = {
        .struct_size = sizeof options,
        .temperature = config->train.generate_temperature,
        .seed = (uint64_t)config->train.seed,
        .max_tokens = (uint32_t)config->train.generate_tokens,
        .top_k = (uint32_t)config->train.generate_top_k,
    };
    bool has_words = config->data.type == CDDPI_DATA_TEXT || config->data.vocabulary[0] != '\0';
    char *shown = cddpi_utf8_clean(prompt, strlen(prompt));
    struct printed out = {file, shown, !has_words && prompt[0] != '\0' ? " " : "", false};
    cddp_status status;

    CDDPI_TRY_MEMORY(shown != NULL, "generate: no memory");
    status = cddp_model_generate(model, prompt, &options, put_piece, &out);
    status = status == CDDP_OK ? put_piece(&out, "\n", 1) : status;
    cddpi_free(shown);
    return status;
}

cddp_status cddpi_train_generate(const struct cddpi_config *config, const char *prompt, FILE *file)
{
    cddp_model_info info = CDDP_MODEL_INFO_INIT;
    cddp_model *model = NULL;
    cddp_status status;

    CDDPI_TRY(check_text(config));
    CDDPI_TRY(cddpi_train_open_model(config, false, &model));
    CDDPI_TRY_GOTO(end, status, cddp_model_get_info(model, &info));
    if (config->train.generate_top_k > (int)info.classes) {
        status = cddpi_config_fail(config, "train.generate_top_k",
                                   "%d, but the vocabulary has only %d tokens",
                                   config->train.generate_top_k, (int)info.classes);
        goto end;
    }
    status = print_text(config, model, prompt, file);
end:
    cddp_model_close(model);
    return status;
}
