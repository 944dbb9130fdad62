/* graph_layers.h - the table of layer types: their names in train.conf and the fields that each
 * accepts. */
#ifndef CDDPI_NN_GRAPH_LAYERS_H
#define CDDPI_NN_GRAPH_LAYERS_H

#include "nn/model.h"

/* Fields of struct cddpi_layer besides type, name and input. */
enum cddpi_layer_field {
    CDDPI_TAKES_INPUT2 = 1,
    CDDPI_TAKES_UNITS = 2,
    CDDPI_TAKES_KERNEL = 4,
    CDDPI_TAKES_STRIDE = 8,
    CDDPI_TAKES_PADDING = 16,
    CDDPI_TAKES_BIAS = 32,
    CDDPI_TAKES_NORM = 64, /* sync, momentum */
    CDDPI_TAKES_PROBABILITY = 128,
    CDDPI_TAKES_EPSILON = 256,
    CDDPI_TAKES_HEADS = 512,
    CDDPI_TAKES_EXACT = 1024,
    CDDPI_TAKES_TIED = 2048,
    CDDPI_TAKES_POSITIONS = 4096,
    CDDPI_TAKES_DEVIATION = 8192,
    CDDPI_TAKES_GROUPS = 1 << 20,
    CDDPI_TAKES_RESPONSE = 1 << 21, /* alpha, beta, offset */
    CDDPI_TAKES_SLOPE = 1 << 22
};

struct cddpi_op_ops;

struct cddpi_layer_row {
    unsigned takes; /* of enum cddpi_layer_field */
    const char *text;
    const struct cddpi_op_ops *ops;
};

extern const char *const cddpi_layer_words[CDDPI_LAYER_COUNT]; /* the names in train.conf */
extern const struct cddpi_layer_row cddpi_layer_rows[CDDPI_LAYER_COUNT];

enum { CDDPI_LAYER_NAME_BYTES = 200 }; /* with the terminating zero */

/* A description that owns its strings. Presets build it, and the graph is built from it. */
struct cddpi_layer_list {
    struct cddpi_layer *layers;
    size_t count, capacity;
    bool no_memory; /* an append failed, so the list is incomplete */
    bool he_normal; /* convolutions are initialised as in He et al., with fan_out */
};

/** Append a copy of @p layer. @p format gives its name (NULL: the copy keeps layer->name). */
void cddpi_layer_list_append(struct cddpi_layer_list *list, struct cddpi_layer layer,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));
/** The name of the last layer; NULL: memory has run out. */
const char *cddpi_layer_list_last(const struct cddpi_layer_list *list);
void cddpi_layer_list_fini(struct cddpi_layer_list *list);

/** Fill @p list with the layers of the preset that @p spec names, or with a copy of the layers in
 *  @p spec. */
CDDP_CHECKED cddp_status cddpi_layers_expand(const struct cddpi_model_spec *spec,
                                             struct cddpi_layer_list *list);

/** The same for presets alone. When this fails, @p list holds what was built so far. */
CDDP_CHECKED cddp_status cddpi_preset_expand(const struct cddpi_model_spec *spec,
                                             struct cddpi_layer_list *list);

/** Presets with files of their own. */
CDDP_CHECKED cddp_status cddpi_preset_alexnet(const struct cddpi_model_spec *spec,
                                              struct cddpi_layer_list *list);
CDDP_CHECKED cddp_status cddpi_preset_gpt2(const struct cddpi_model_spec *spec,
                                           struct cddpi_layer_list *list);

/** Preset dcgan, and its change to the spec: the data's shape becomes the shape of the images, the
 *  input becomes latent vectors, with one output and its own loss. */
CDDP_CHECKED cddp_status cddpi_preset_dcgan(const struct cddpi_model_spec *spec,
                                            struct cddpi_layer_list *list);
CDDP_CHECKED cddp_status cddpi_dcgan_complete(struct cddpi_model_spec *spec);

/** Check that @p layer sets only fields that its type accepts, and fill in defaults. */
CDDP_CHECKED cddp_status cddpi_layer_complete(struct cddpi_layer *layer);

#endif
