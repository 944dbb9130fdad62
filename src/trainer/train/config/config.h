/* config.h - owns the configuration: train.conf and the command line's changes to it, read through
 * the table of keys in schema.h. */
#ifndef CDDPI_TRAIN_CONFIG_CONFIG_H
#define CDDPI_TRAIN_CONFIG_CONFIG_H

#include "base/choices.h"

#include <cddp/sampler.h>

#include <stdbool.h>
#include <stdio.h>

struct cddpi_layer; /* nn/model.h: what an element of model.layers becomes */

struct cddpi_int_list {
    int *values; /* never NULL after loading */
    int count;
};

struct cddpi_real_list {
    double values[4];
    int count;
};

struct cddpi_text_list {
    char **values;
    int count;
};

/* Either ["fc2"], the first layer of each stage after the first one, or ( ["input", "layer2"],
 * ["layer3", "fc"] ), the first and the last layer of each stage. */
struct cddpi_stage_names {
    char **values;
    int count;
    bool pairs; /* values are the first and last layers of count / 2 stages, in turn */
};

struct cddpi_config_layers {
    struct cddpi_layer *values;
    int count;
};

/* The choices of keys: X(value, its word in train.conf). */
#define CDDPI_MODEL_KIND_MAP(X)                                                                    \
    X(CDDPI_MODEL_MLP, "mlp")                                                                      \
    X(CDDPI_MODEL_CNN, "cnn")                                                                      \
    X(CDDPI_MODEL_RESNET20, "resnet20")                                                            \
    X(CDDPI_MODEL_RESNET50, "resnet50")                                                            \
    X(CDDPI_MODEL_GPT2, "gpt2")                                                                    \
    X(CDDPI_MODEL_LAYERS, "layers")                                                                \
    X(CDDPI_MODEL_ALEXNET, "alexnet")                                                              \
    X(CDDPI_MODEL_VGG11, "vgg11")                                                                  \
    X(CDDPI_MODEL_LSTM_LM, "lstm_lm")                                                              \
    X(CDDPI_MODEL_DCGAN, "dcgan")                                                                  \
    X(CDDPI_MODEL_RESNET18, "resnet18")                                                            \
    X(CDDPI_MODEL_RESNET34, "resnet34")
enum cddpi_model_kind { CDDPI_MODEL_KIND_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_DATA_TYPE_MAP(X)                                                                     \
    X(CDDPI_DATA_IDX, "idx")                                                                       \
    X(CDDPI_DATA_TOKENS, "tokens")                                                                 \
    X(CDDPI_DATA_TEXT, "text")                                                                     \
    X(CDDPI_DATA_SYNTHETIC, "synthetic")                                                           \
    X(CDDPI_DATA_IMAGE_FOLDER, "image_folder")                                                     \
    X(CDDPI_DATA_NPY, "npy")                                                                       \
    X(CDDPI_DATA_CSV, "csv")
enum cddpi_data_type { CDDPI_DATA_TYPE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_DATA_ON_ERROR_MAP(X)                                                                 \
    X(CDDPI_DATA_FAIL, "error")                                                                    \
    X(CDDPI_DATA_SKIP, "skip")
enum cddpi_data_on_error { CDDPI_DATA_ON_ERROR_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_DATA_MISSING_MAP(X)                                                                  \
    X(CDDPI_DATA_MISSING_FAIL, "error")                                                            \
    X(CDDPI_DATA_MISSING_MEAN, "mean")
enum cddpi_data_missing { CDDPI_DATA_MISSING_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_DATA_ORDER_MAP(X)                                                                    \
    X(CDDP_ORDER_RANDOM, "random")                                                                 \
    X(CDDP_ORDER_TORCH, "torch")                                                                   \
    X(CDDP_ORDER_SEQUENTIAL, "sequential")

#define CDDPI_TRAIN_DEVICE_MAP(X)                                                                  \
    X(CDDPI_TRAIN_ON_AUTO, "auto")                                                                 \
    X(CDDPI_TRAIN_ON_CPU, "cpu")                                                                   \
    X(CDDPI_TRAIN_ON_CUDA, "cuda")
enum cddpi_train_device { CDDPI_TRAIN_DEVICE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_RESUME_DATA_MAP(X)                                                                   \
    X(CDDPI_RESUME_DATA_SAME, "same")                                                              \
    X(CDDPI_RESUME_DATA_ANY, "any")
enum cddpi_resume_data { CDDPI_RESUME_DATA_MAP(CDDPI_CHOICE_ID) };

/* The words true and false are written without quotes, too. */
#define CDDPI_CHECKPOINT_ASYNC_MAP(X)                                                              \
    X(CDDPI_ASYNC_AUTO, "auto")                                                                    \
    X(CDDPI_ASYNC_TRUE, "true")                                                                    \
    X(CDDPI_ASYNC_FALSE, "false")
enum cddpi_checkpoint_async { CDDPI_CHECKPOINT_ASYNC_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_RECOVERY_MAP(X)                                                                      \
    X(CDDPI_RECOVERY_AUTO, "auto")                                                                 \
    X(CDDPI_RECOVERY_MEMORY, "memory")                                                             \
    X(CDDPI_RECOVERY_CHECKPOINT, "checkpoint")
enum cddpi_recovery { CDDPI_RECOVERY_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_CUDA_GRAPH_MAP(X)                                                                    \
    X(CDDPI_GRAPH_AUTO, "auto")                                                                    \
    X(CDDPI_GRAPH_ALWAYS, "always")                                                                \
    X(CDDPI_GRAPH_NEVER, "never")
enum cddpi_cuda_graph { CDDPI_CUDA_GRAPH_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_WIRE_MAP(X)                                                                          \
    X(CDDPI_WIRE_F32, "f32")                                                                       \
    X(CDDPI_WIRE_BF16, "bf16")                                                                     \
    X(CDDPI_WIRE_F16, "f16")
enum cddpi_wire { CDDPI_WIRE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_PARALLEL_TYPE_MAP(X)                                                                 \
    X(CDDPI_PARALLEL_RANKS, "ranks")                                                               \
    X(CDDPI_PARALLEL_MODEL, "model_parallel")                                                      \
    X(CDDPI_PARALLEL_DATA, "data_parallel")
enum cddpi_parallel_type { CDDPI_PARALLEL_TYPE_MAP(CDDPI_CHOICE_ID) };

#define CDDPI_BALANCE_MAP(X)                                                                       \
    X(CDDPI_BALANCE_TIME, "time")                                                                  \
    X(CDDPI_BALANCE_MEMORY, "memory")
enum cddpi_balance { CDDPI_BALANCE_MAP(CDDPI_CHOICE_ID) };

enum { CDDPI_KEYS_MAX = 160, CDDPI_TRAINER_CHUNKS = 64 };

/* One member for each key; schema.c says what each key means. */
enum { CDDPI_AUTO = -1 }; /* of a number: "auto"; the trainer chooses it */

struct cddpi_config {
    struct {
        int type;
        struct cddpi_int_list hidden;
        double dropout;
        bool sync_batch_norm;
        struct cddpi_config_layers layers;
        int context, vocab;
        char *size;
        int blocks, heads, embed;
        bool recompute;
        bool tied;
        int loss;
        char *weights;
        int latent, generator_units, discriminator_units;
        int towers;
    } model;
    struct {
        int type;
        char *train_images, *train_labels, *test_images, *test_labels;
        int classes;
        int64_t samples;
        struct cddpi_int_list image;
        struct cddpi_text_list train, test;
        struct cddpi_text_list train_targets, test_targets;
        char *npz_inputs, *npz_targets;
        char *vocabulary;
        double test_fraction;
        struct cddpi_real_list mean, std;
        int crop_padding;
        bool flip;
        int threads;
        int prefetch;
        int order;
        int size, resize;
        struct cddpi_real_list crop_area;
        int on_error;
        struct cddpi_text_list target, features, ignore, categories;
        char *delimiter;
        int missing;   /* enum cddpi_data_missing */
        int normalize; /* enum cddpi_normalize */
    } data;
    struct {
        int64_t epochs;
        int64_t max_steps;
        int64_t batch_size;
        int64_t accumulate;
        int64_t micro_batch; /* samples; 0: each rank's share is cut instead; CDDPI_AUTO */
        int64_t eval_batch_size;
        int64_t seed;
        char *run_dir;
        char *resume;
        int resume_data; /* enum cddpi_resume_data */
        int64_t checkpoint_steps;
        double checkpoint_seconds;
        bool checkpoint_at_end;
        int checkpoint_async; /* enum cddpi_checkpoint_async */
        int recovery;         /* enum cddpi_recovery */
        int keep;
        double full_disk_seconds;
        int64_t check_replicas; /* steps; 0: only at the end */
        int64_t eval_epochs;
        int device;
        struct cddpi_text_list devices;
        bool offload_optimizer;
        char *init_method;
        int rank, world_size;
        int precision;
        int products;
        int cuda_graph;
        int64_t eval_steps;
        int64_t eval_batches;
        int64_t generate_steps;
        char *generate_prompt;
        int generate_tokens;
        double generate_temperature;
        int generate_top_k;
        double clip_norm;
        int64_t log_steps;
        double timeout;
        bool tensorboard;
        char *sample_log;
        char *trace;
        char *prometheus;
    } train;
    struct {
        int64_t first_bucket_bytes;
        int64_t bucket_bytes;
        int64_t part_bytes;
        int wire;
        bool allow_unused;
        bool deterministic;
        bool shard_optimizer;
    } ddp;
    struct {
        int type;
        int pipeline;
        int schedule;
        int chunks;
        int64_t micro_batches;
        struct cddpi_stage_names stages;
        char *placement;
        struct cddpi_text_list devices;
        char *output_device;
        struct cddpi_text_list layers;
        int balance;
        int64_t memory_bytes;
        struct cddpi_int_list recompute;
    } parallel;
    struct {
        int type;
        double lr;
        double momentum;
        bool nesterov;
        double weight_decay;
        bool decay_all;
        double beta1, beta2, epsilon;
        double discriminator_lr;
        struct {
            int type;
            int64_t warmup_steps;
            double final_lr;
            int64_t step_size;
            double gamma;
            int64_t total_steps;
            int64_t decay_steps;
            int decay;
        } schedule;
    } optimizer;

    char *path;                  /* the file, as the user named it */
    char *where[CDDPI_KEYS_MAX]; /* where each key was given, by row of the table: "file:line" or
                                    the argument; NULL: default */
    int level[CDDPI_KEYS_MAX];   /* which source gave it: later ones replace what earlier ones gave,
                                    and have a higher number; 0: default */
};

/** Read @p path, then apply @p overrides ("key=value").
 *  @param out  Release with cddpi_config_fini().
 *  @return CDDP_OK, or CDDP_ERR_CONFIG with a text that names file and line, or the argument. */
CDDP_CHECKED cddp_status cddpi_config_load(const char *path, char *const *overrides,
                                           int override_count, struct cddpi_config *out);
/** The same for who does not train: $CDDP_RUN_DIR is not read, and train.run_dir has no default.
 *  @param path  NULL: only the text.
 *  @param text  The text of a train.conf, whose keys replace the file's. NULL: only the file.
 *               Errors call it "config_text". */
CDDP_CHECKED cddp_status cddpi_config_load_model(const char *path, const char *text,
                                                 struct cddpi_config *out);
void cddpi_config_fini(struct cddpi_config *config); /* accepts a zeroed one */

/** All keys and their values, in a form from which cddpi_config_load() reads the same
 *  configuration. NULL: no memory.
 *  @param shared_only  Leave out the keys that may differ between ranks. */
char *cddpi_config_text(const struct cddpi_config *config, bool shared_only);

/** The word that @p config has for the key @p path, whose value is a choice. */
const char *cddpi_config_word(const struct cddpi_config *config, const char *path);

/** Whether the model is one of the language model presets, which take tokens. */
static inline bool cddpi_config_is_language_model(const struct cddpi_config *config)
{
    return config->model.type == CDDPI_MODEL_GPT2 || config->model.type == CDDPI_MODEL_LSTM_LM;
}

/** Check the conditions on several keys of data. */
CDDP_CHECKED cddp_status cddpi_config_check_data(const struct cddpi_config *config);

/** Whether samples of CSV files have real targets; else each has a class. */
bool cddpi_config_has_real_targets(const struct cddpi_config *config);

/** What stands between two fields of CSV files. */
char cddpi_config_delimiter(const struct cddpi_config *config);

/** Whether the model takes tokens, which then the data are. */
static inline bool cddpi_config_takes_tokens(const struct cddpi_config *config)
{
    return config->data.type == CDDPI_DATA_TOKENS || config->data.type == CDDPI_DATA_TEXT ||
           (config->data.type == CDDPI_DATA_SYNTHETIC &&
            (cddpi_config_is_language_model(config) || config->model.vocab > 0));
}

/** Whether parallel.stages names layers; if not, the division into stages is chosen. */
bool cddpi_config_names_stages(const struct cddpi_config *config);

/** Refuse what makes bits depend on the number of ranks, where train.micro_batch promises that they
 *  do not. */
CDDP_CHECKED cddp_status cddpi_config_check_same_bits(const struct cddpi_config *config);

/** Whether a layer computes its statistics over all ranks (batch_norm with sync). */
bool cddpi_config_has_sync(const struct cddpi_config *config);

/** Fail with CDDP_ERR_CONFIG and the text "WHERE: KEY: ...", where WHERE is the place that set @p
 *  key. */
cddp_status cddpi_config_fail(const struct cddpi_config *config, const char *key,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));
/** Put "WHERE: KEY: " before the stored failure's text; it keeps its errno. Returns @p status,
 * which becomes its status. */
cddp_status cddpi_config_prefix(const struct cddpi_config *config, const char *key,
                                cddp_status status);
/* What a configuration must not have. */
struct cddpi_config_rule {
    bool is_broken;
    const char *key, *text;
};
/** Fail as cddpi_config_fail() with the key and the text of the first broken one of @p count
 *  rules. */
CDDP_CHECKED cddp_status cddpi_config_check_rules(const struct cddpi_config *config,
                                                  const struct cddpi_config_rule *rules,
                                                  size_t count);
/** If @p status is CDDP_ERR_CONFIG, begin its text with the configuration file's name. Returns
 *  @p status. */
CDDP_CHECKED cddp_status cddpi_config_name_file(const struct cddpi_config *config,
                                                cddp_status status);
/** If @p status is CDDP_ERR_CONFIG, begin its text with the place that set @p key, and the key.
 *  Returns @p status. */
CDDP_CHECKED cddp_status cddpi_config_name_key(const struct cddpi_config *config, const char *key,
                                               cddp_status status);

#endif
