/* config.h - train.conf and what was given beside it, read by the table of keys of schema.h. */
#ifndef CDDPI_TRAIN_CONFIG_CONFIG_H
#define CDDPI_TRAIN_CONFIG_CONFIG_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>

struct cddpi_layer; /* nn/model.h: what the elements of model.layers become */

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

/* ["fc2"]: the layers at which a stage begins; or ( ["input", "layer2"], ["layer3", "fc"] ): the
 * first and the last layer of each. */
struct cddpi_stage_names {
    char **values;
    int count;
    bool pairs; /* values are those of count / 2 stages, first and last in turn */
};

struct cddpi_config_layers {
    struct cddpi_layer *values;
    int count;
};

enum cddpi_model_kind {
    CDDPI_MODEL_MLP,
    CDDPI_MODEL_CNN,
    CDDPI_MODEL_RESNET20,
    CDDPI_MODEL_RESNET50,
    CDDPI_MODEL_GPT2,
    CDDPI_MODEL_LAYERS,
    CDDPI_MODEL_ALEXNET,
    CDDPI_MODEL_VGG11,
    CDDPI_MODEL_LSTM_LM,
    CDDPI_MODEL_DCGAN
};
enum cddpi_data_type {
    CDDPI_DATA_IDX,
    CDDPI_DATA_TOKENS,
    CDDPI_DATA_TEXT,
    CDDPI_DATA_SYNTHETIC,
    CDDPI_DATA_IMAGE_FOLDER
};
enum cddpi_data_on_error { CDDPI_DATA_FAIL, CDDPI_DATA_SKIP };
enum cddpi_data_order { CDDPI_DATA_RANDOM, CDDPI_DATA_TORCH, CDDPI_DATA_SEQUENTIAL };
enum cddpi_train_device { CDDPI_TRAIN_ON_AUTO, CDDPI_TRAIN_ON_CPU, CDDPI_TRAIN_ON_CUDA };
enum cddpi_resume_data { CDDPI_RESUME_DATA_SAME, CDDPI_RESUME_DATA_ANY };
enum cddpi_cuda_graph { CDDPI_GRAPH_AUTO, CDDPI_GRAPH_ALWAYS, CDDPI_GRAPH_NEVER };
enum cddpi_parallel_type { CDDPI_PARALLEL_RANKS, CDDPI_PARALLEL_MODEL, CDDPI_PARALLEL_DATA };
enum cddpi_wire { CDDPI_WIRE_F32, CDDPI_WIRE_BF16, CDDPI_WIRE_F16 };

enum { CDDPI_KEYS_MAX = 128, CDDPI_TRAINER_CHUNKS = 64 };

/* One member for each key; see schema.c for what they mean. */
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
    } data;
    struct {
        int64_t epochs;
        int64_t max_steps;
        int64_t batch_size;
        int64_t accumulate;
        int64_t eval_batch_size;
        int64_t seed;
        char *run_dir;
        char *resume;
        int resume_data; /* enum cddpi_resume_data */
        int64_t checkpoint_steps;
        double checkpoint_seconds;
        bool checkpoint_at_end;
        int keep;
        double full_disk_seconds;
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

    char *path;                  /* the file, as it was named */
    char *where[CDDPI_KEYS_MAX]; /* per row of the table: "file:line" or the argument; NULL: its
                                    default */
};

/** Read @p path, then apply @p overrides ("key=value").
 *  @param out  Release with cddpi_config_fini(). @return CDDP_OK or CDDP_ERR_CONFIG: the text names
 * file and line, or the argument. */
CDDP_CHECKED cddp_status cddpi_config_load(const char *path, char *const *overrides,
                                           int override_count, struct cddpi_config *out);
void cddpi_config_fini(struct cddpi_config *config); /* accepts a zeroed one */

/** Whether the model is one of the presets that take tokens. */
static inline bool cddpi_config_is_language_model(const struct cddpi_config *config)
{
    return config->model.type == CDDPI_MODEL_GPT2 || config->model.type == CDDPI_MODEL_LSTM_LM;
}

/** Fail with CDDP_ERR_CONFIG and "WHERE: KEY: ...", WHERE being where @p key was given. */
cddp_status cddpi_config_fail(const struct cddpi_config *config, const char *key,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
