/* config.c - reads train.conf and overrides into struct cddpi_config, by the table of schema.c. */
#include "train/config/config.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/folder.h"
#include "nn/model.h"
#include "train/config/config_file.h"
#include "train/config/take_file.h"
#include "train/config/value.h"

#include <ctype.h>
#include <string.h>

/* Parse @p value as if the file had it after "key =", and store it. */
static cddp_status read_scalar(const struct cddpi_config_source *source,
                               const struct cddpi_key *key, const char *value,
                               struct cddpi_config *config)
{
    bool is_word = key->type == CDDPI_KEY_TEXT || key->type == CDDPI_KEY_ENUM ||
                   (key->type == CDDPI_KEY_AUTO && isalpha((unsigned char)value[0])) ||
                   ((key->type == CDDPI_KEY_TEXTS || key->type == CDDPI_KEY_STAGES) &&
                    value[0] != '[' && value[0] != '(');
    bool bare = is_word && value[0] != '"';
    char *text = bare ? cddpi_strdup("value = \"\";") : cddpi_format("value = %s;", value);
    config_setting_t *root;
    config_setting_t *setting;
    config_t parsed;
    cddp_status status;

    CDDPI_TRY_MEMORY(text != NULL, "configuration: no memory for %s", key->path);
    config_init(&parsed);
    root = cddpi_config_parse(&parsed, text) == CONFIG_TRUE ? config_root_setting(&parsed) : NULL;
    setting = root != NULL && config_setting_length(root) == 1 ? config_setting_get_elem(root, 0)
                                                               : NULL;
    if (setting == NULL) {
        status = cddpi_config_fail_at(source, NULL, "%s expects %s", key->path,
                                      cddpi_key_expects(key));
    } else if (bare && config_setting_set_string(setting, value) != CONFIG_TRUE) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    } else {
        status = cddpi_config_store(source, setting, key, config);
    }
    config_destroy(&parsed);
    cddpi_free(text);
    return status;
}

static cddp_status read_override(const char *argument, struct cddpi_config *config)
{
    struct cddpi_config_source source = {NULL, argument, CDDPI_LEVEL_ARGUMENT};
    const char *equals = strchr(argument, '=');
    const struct cddpi_key *key;
    char path[256];

    if (equals == NULL || equals == argument || (size_t)(equals - argument) >= sizeof path) {
        return cddpi_fail(CDDP_ERR_CONFIG, "argument %s: expected key=value", argument);
    }
    snprintf(path, sizeof path, "%.*s", (int)(equals - argument), argument);
    key = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count, path);
    if (key == NULL && cddpi_config_is_group(path)) {
        return cddpi_config_fail_at(&source, NULL, "%s is a group of keys: name one of its keys",
                                    path);
    }
    if (key == NULL) {
        return cddpi_config_fail_unknown(&source, NULL, path);
    }
    return read_scalar(&source, key, equals + 1, config);
}

static cddp_status read_defaults(struct cddpi_config *config)
{
    struct cddpi_config_source source = {NULL, NULL, 0};

    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const struct cddpi_key *key = &cddpi_config_keys[i];

        if (key->fallback != NULL) {
            CDDPI_TRY(read_scalar(&source, key, key->fallback, config));
        }
    }
    return CDDP_OK;
}

/* Set the run folder: $CDDP_RUN_DIR, else the configured one, else runs/NAME. */
static cddp_status resolve_run_dir(struct cddpi_config *config)
{
    const char *forced = cddpi_env(CDDPI_ENV_RUN_DIR);
    const char *slash = strrchr(config->path, '/');
    const char *name = slash != NULL ? slash + 1 : config->path;
    const char *dot = strrchr(name, '.');
    char *folder = NULL;

    if (forced == NULL && config->train.run_dir[0] != '\0') {
        return CDDP_OK;
    }
    if (forced == NULL) {
        folder = cddpi_format(
            "runs/%.*s", dot != NULL && dot > name ? (int)(dot - name) : (int)strlen(name), name);
    } else if (cddpi_user_path(forced, &folder) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_CONFIG, "CDDP_RUN_DIR");
    }
    CDDPI_TRY_MEMORY(folder != NULL, "configuration: no memory");
    cddpi_free(config->train.run_dir);
    config->train.run_dir = folder;
    return CDDP_OK;
}

/* The choices @p choices of @p key, quoted: "a", "b" or "c". */
static void quote_choices(const struct cddpi_key *key, const int *choices, char *out, size_t bytes)
{
    size_t used = 0;

    for (int i = 0; choices[i] != CDDPI_NO_CHOICE && used < bytes; i++) {
        const char *between = choices[i + 1] == CDDPI_NO_CHOICE ? " or " : ", ";

        used += (size_t)snprintf(out + used, bytes - used, "%s\"%s\"", i == 0 ? "" : between,
                                 cddpi_key_word(key, choices[i]));
    }
}

/* A key without an effect is an error. But if the command line chose another type, or a file
 * another one than it includes, keys that were given for the first type are ignored. */
static cddp_status check_meaning(const struct cddpi_config *config, const struct cddpi_key *key)
{
    const struct cddpi_key *type = cddpi_key_without(key, config);
    char quoted[160] = "";

    if (type == NULL ||
        config->level[type - cddpi_config_keys] > config->level[key - cddpi_config_keys]) {
        return CDDP_OK;
    }
    quote_choices(type, key->of_choices, quoted, sizeof quoted);
    return cddpi_config_fail(config, key->path, "is used only with %s = %s", type->path, quoted);
}

/* Check that every required key was given, and no key of other data, models or optimizers. */
static cddp_status check_given(const struct cddpi_config *config)
{
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const struct cddpi_key *key = &cddpi_config_keys[i];

        if (config->where[i] != NULL) {
            CDDPI_TRY(check_meaning(config, key));
        } else if (key->needed != NULL && cddpi_choices_have(key->needed, config->data.type)) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "%s: the key %s is missing, which data.type = \"%s\" needs",
                              config->path, key->path, cddpi_config_word(config, "data.type"));
        } else if (key->fallback == NULL) {
            return cddpi_fail(CDDP_ERR_CONFIG, "%s: the key %s is missing", config->path,
                              key->path);
        }
    }
    return CDDP_OK;
}

/* Refuse sizes that cannot be built here, with the line of the file, before data are opened. */
static cddp_status check_gpt2(const struct cddpi_config *config)
{
    struct cddpi_model_spec spec = {.preset = "gpt2",
                                    .size = config->model.size,
                                    .heads = config->model.heads,
                                    .embed = config->model.embed};
    const char *key = config->model.heads > 0 ? "model.heads" : "model.embed";

    if (cddpi_model_spec_complete(&spec) != CDDP_OK) {
        return cddpi_config_prefix(config, "model.size", CDDP_ERR_CONFIG);
    }
    if (spec.heads > 0 && spec.embed % spec.heads != 0) {
        return cddpi_config_fail(config, key, "an embed of %d cannot be divided among %d heads",
                                 spec.embed, spec.heads);
    }
    return CDDP_OK;
}

/* Refuse what dcgan does not support yet. The check looks at values, not at whether a key was
 * given: a run writes all keys to RUN_DIR/train.conf, which must load again. */
static cddp_status check_dcgan(const struct cddpi_config *config)
{
    const char *whole = "dcgan has both of its networks whole on every rank, on one device: leave "
                        "this out";
    const struct cddpi_config_rule rules[] = {
        {config->model.loss != 0, "model.loss",
         "dcgan has a loss of its own, binary cross-entropy: leave this out"},
        {config->train.precision != 0, "train.precision", "dcgan is computed in f32 only"},
        {config->train.accumulate > 1, "train.accumulate",
         "dcgan computes a rank's share of a step at once: leave this out, or let "
         "train.micro_batch cut the batch"},
        {config->train.cuda_graph == CDDPI_GRAPH_ALWAYS, "train.cuda_graph",
         "steps of dcgan are not replayed: leave this out"},
        {config->parallel.pipeline > 1, "parallel.pipeline", whole},
        {config->parallel.type != CDDPI_PARALLEL_RANKS, "parallel.type", whole},
    };

    if (config->data.type == CDDPI_DATA_TOKENS || config->data.type == CDDPI_DATA_TEXT ||
        config->data.type == CDDPI_DATA_NPY || config->data.type == CDDPI_DATA_CSV) {
        return cddpi_config_fail(config, "model.type",
                                 "\"dcgan\" takes images, but data.type = \"%s\" has none",
                                 cddpi_config_word(config, "data.type"));
    }
    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

bool cddpi_config_has_sync(const struct cddpi_config *config)
{
    bool sync = config->model.sync_batch_norm;

    for (int i = 0; i < config->model.layers.count; i++) {
        sync = sync || config->model.layers.values[i].sync;
    }
    return sync;
}

cddp_status cddpi_config_check_same_bits(const struct cddpi_config *config)
{
    const struct cddpi_config_rule rules[] = {
        {config->ddp.wire != CDDPI_WIRE_F32, "ddp.wire",
         "rounds what each rank sends, so bits depend on their number: leave out this or "
         "train.micro_batch"},
        {config->train.cuda_graph == CDDPI_GRAPH_ALWAYS, "train.cuda_graph",
         "steps are not replayed with train.micro_batch: leave this out"},
    };

    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

/* Refuse what does not go together with batches that are cut by position. Whether bits must not
 * depend on the number of ranks may be known only with the device. */
static cddp_status check_positions(const struct cddpi_config *config)
{
    const char *sync = "takes statistics over all ranks, so bits depend on their number, and each "
                       "needs equally many micro-batches: leave out this or train.micro_batch";
    const struct cddpi_config_rule rules[] = {
        {config->train.micro_batch > config->train.batch_size, "train.micro_batch",
         "is more than train.batch_size, the samples of a step: use at most as many"},
        {config->train.accumulate > 1, "train.accumulate",
         "cuts each rank's share, and train.micro_batch the whole batch: leave out one of the two"},
        {config->parallel.micro_batches > 1, "parallel.micro_batches",
         "cuts each replica's share, and train.micro_batch the whole batch: leave out one of the "
         "two"},
        {config->ddp.allow_unused &&
             (config->parallel.pipeline > 1 || config->parallel.type == CDDPI_PARALLEL_MODEL),
         "ddp.allow_unused",
         "with train.micro_batch, a model that is divided has a gradient of each parameter in each "
         "micro-batch: leave this out"},
        {cddpi_config_has_sync(config),
         config->model.sync_batch_norm ? "model.sync_batch_norm" : "model.layers", sync},
    };

    if (config->train.micro_batch == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules));
    return config->ddp.deterministic ? cddpi_config_check_same_bits(config) : CDDP_OK;
}

static cddp_status check_together(const struct cddpi_config *config)
{
    CDDPI_TRY(check_given(config));
    if (config->model.type == CDDPI_MODEL_LAYERS && config->model.layers.count == 0) {
        return cddpi_config_fail(config, "model.type", "\"layers\" needs model.layers");
    }
    if (cddpi_config_is_language_model(config) && !cddpi_config_takes_tokens(config)) {
        return cddpi_config_fail(
            config, "model.type", "\"%s\" takes tokens, but data.type = \"%s\" are %s",
            cddpi_config_word(config, "model.type"), cddpi_config_word(config, "data.type"),
            config->data.type == CDDPI_DATA_CSV || config->data.type == CDDPI_DATA_NPY ? "numbers"
                                                                                       : "images");
    }
    CDDPI_TRY(cddpi_config_check_data(config));
    if (config->model.type == CDDPI_MODEL_GPT2) {
        CDDPI_TRY(check_gpt2(config));
    }
    if (config->model.recompute && config->model.sync_batch_norm) {
        return cddpi_config_fail(config, "model.recompute",
                                 "ranks exchange statistics of batch_norm (model.sync_batch_norm) "
                                 "once a batch, and could not again: leave one of the two out");
    }
    if (config->model.type == CDDPI_MODEL_DCGAN) {
        CDDPI_TRY(check_dcgan(config));
    }
    CDDPI_TRY(check_positions(config));
    if (config->optimizer.nesterov && config->optimizer.momentum == 0.0) {
        return cddpi_config_fail(config, "optimizer.nesterov", "needs optimizer.momentum");
    }
    return CDDP_OK;
}

/* What errors call a configuration that is no file. */
static const char config_text[] = "config_text";

/* @p path and @p text: NULL: not given. */
static cddp_status load(const char *path, const char *text, char *const *overrides,
                        int override_count, struct cddpi_config *out)
{
    struct cddpi_config config = {0};
    cddp_status status;

    config.path = cddpi_strdup(path != NULL ? path : config_text);
    CDDPI_TRY_MEMORY(config.path != NULL, "configuration: no memory");
    CDDPI_TRY_GOTO(fail, status, read_defaults(&config));
    if (path != NULL) {
        CDDPI_TRY_GOTO(fail, status, cddpi_config_take_file(path, &config));
    }
    if (text != NULL) {
        CDDPI_TRY_GOTO(fail, status, cddpi_config_take_text(config_text, text, &config));
    }
    for (int i = 0; i < override_count; i++) {
        CDDPI_TRY_GOTO(fail, status, read_override(overrides[i], &config));
    }
    CDDPI_TRY_GOTO(fail, status, check_together(&config));
    *out = config;
    return CDDP_OK;

fail:
    cddpi_config_fini(&config);
    return status;
}

cddp_status cddpi_config_load(const char *path, char *const *overrides, int override_count,
                              struct cddpi_config *out)
{
    cddp_status status;

    CDDPI_TRY(load(path, NULL, overrides, override_count, out));
    status = resolve_run_dir(out);
    if (status != CDDP_OK) {
        cddpi_config_fini(out);
    }
    return status;
}

cddp_status cddpi_config_load_model(const char *path, const char *text, struct cddpi_config *out)
{
    return load(path, text, NULL, 0, out);
}

void cddpi_config_fini(struct cddpi_config *config)
{
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        void *member = (char *)config + cddpi_config_keys[i].offset;

        switch (cddpi_config_keys[i].type) {
        case CDDPI_KEY_TEXT:
            cddpi_free(*(char **)member);
            break;
        case CDDPI_KEY_INTS:
            cddpi_free(((struct cddpi_int_list *)member)->values);
            break;
        case CDDPI_KEY_TEXTS:
            cddpi_config_texts_fini(member);
            break;
        case CDDPI_KEY_STAGES:
            cddpi_config_stages_fini(member);
            break;
        case CDDPI_KEY_LAYERS:
            cddpi_config_layers_fini(member);
            break;
        case CDDPI_KEY_BOOL:
        case CDDPI_KEY_INT:
        case CDDPI_KEY_LONG:
        case CDDPI_KEY_AUTO:
        case CDDPI_KEY_REAL:
        case CDDPI_KEY_ENUM:
        case CDDPI_KEY_REALS:
            break; /* these own no memory */
        }
        cddpi_free(config->where[i]);
    }
    cddpi_free(config->path);
    memset(config, 0, sizeof *config);
}

bool cddpi_config_names_stages(const struct cddpi_config *config)
{
    const struct cddpi_stage_names *stages = &config->parallel.stages;

    return stages->count > 0 && !(stages->count == 1 && strcmp(stages->values[0], "auto") == 0);
}
