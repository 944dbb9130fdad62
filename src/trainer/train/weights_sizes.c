/* weights_sizes.c - takes the sizes of a gpt2 from the file of its first weights. */
#include "train/weights_sizes.h"

#include "base/alloc.h"
#include "base/error.h"
#include "nn/model.h"
#include "nn/weights/weights.h"
#include "train/config/schema.h"

/* A size of the model: its key, and what the file has; 0: the file does not say. */
struct size {
    const char *key, *what;
    int *value;  /* the configuration's; 0: not given, except for the context */
    int of_size; /* what model.size says; 0: nothing */
    int64_t of_file;
};

static size_t row_of(const char *key)
{
    return (size_t)(cddpi_key_find(cddpi_config_keys, cddpi_config_key_count, key) -
                    cddpi_config_keys);
}

/* Set the size, and note its place for errors: the weights at @p path. */
static cddp_status take_size(struct cddpi_config *config, const char *path, const struct size *size)
{
    size_t row = row_of(size->key);
    char *where = cddpi_strdup(path);

    CDDPI_TRY_MEMORY(where != NULL, "configuration: no memory for %s", size->key);
    if ((double)size->of_file > cddpi_config_keys[row].high) {
        cddpi_free(where);
        return cddpi_config_fail(config, "model.weights",
                                 "%s has %lld %s; at most %.0f are possible", path,
                                 (long long)size->of_file, size->what, cddpi_config_keys[row].high);
    }
    cddpi_free(config->where[row]);
    config->where[row] = where;
    *size->value = (int)size->of_file;
    return CDDP_OK;
}

/* Compare blocks, heads, embed or vocab with the file, or take it from there. */
static cddp_status settle(struct cddpi_config *config, const char *path, const struct size *size)
{
    int given = *size->value != 0 ? *size->value : size->of_size;
    const char *key = *size->value != 0 ? size->key : "model.size";

    if (size->of_file == 0) {
        return given != 0 ? CDDP_OK
                          : cddpi_config_fail(config, size->key,
                                              "must be given: the weights in %s (model.weights) do "
                                              "not tell how many %s they were made with",
                                              path, size->what);
    }
    if (given == 0) {
        return take_size(config, path, size);
    }
    return given == size->of_file
               ? CDDP_OK
               : cddpi_config_fail(config, key,
                                   "%d %s, but the weights in %s (model.weights) have %lld: leave "
                                   "%s out to take theirs",
                                   given, size->what, path, (long long)size->of_file, key);
}

/* A model may use fewer positions than its weights have. */
static cddp_status settle_context(struct cddpi_config *config, const char *path, int64_t of_file)
{
    const struct size size = {"model.context", "positions", &config->model.context, 0, of_file};

    if (config->model.context <= of_file) {
        return CDDP_OK;
    }
    return config->where[row_of(size.key)] == NULL
               ? take_size(config, path, &size)
               : cddpi_config_fail(config, size.key,
                                   "%d positions, but the weights in %s (model.weights) have only "
                                   "%lld",
                                   config->model.context, path, (long long)of_file);
}

static cddp_status settle_all(struct cddpi_config *config, const char *path,
                              const struct cddpi_gpt2_shape *shape)
{
    struct cddpi_model_spec spec = {.preset = "gpt2", .size = config->model.size};
    cddp_status status = cddpi_model_spec_complete(&spec);
    const struct size sizes[] = {
        {"model.blocks", "blocks", &config->model.blocks, spec.blocks, shape->blocks},
        {"model.embed", "features of a token", &config->model.embed, spec.embed, shape->embed},
        {"model.heads", "heads", &config->model.heads, spec.heads, shape->heads},
        {"model.vocab", "tokens in the vocabulary", &config->model.vocab, 0, shape->vocab}};

    CDDPI_TRY(cddpi_config_name_file(config, status));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CDDPI_TRY(settle(config, path, &sizes[i]));
    }
    return settle_context(config, path, shape->context);
}

cddp_status cddpi_config_take_sizes(struct cddpi_config *config, const char *path)
{
    bool has_sizes = config->model.size[0] != '\0' ||
                     (config->model.blocks > 0 && config->model.heads > 0 &&
                      config->model.embed > 0);
    struct cddpi_weights *weights = NULL;
    cddp_status status;

    if (config->model.type != CDDPI_MODEL_GPT2 || path[0] == '\0') {
        return CDDP_OK;
    }
    status = cddpi_weights_open(path, &weights);
    if (status != CDDP_OK) {
        return has_sizes ? CDDP_OK : cddpi_fail_prefix(status, "model.weights");
    }
    status = settle_all(config, path, cddpi_weights_shape(weights));
    cddpi_weights_close(weights);
    return status;
}
