/* schema_layers.c - owns the table of the keys of a layer in model.layers. */
#include "train/config/schema.h"

#include "base/choices.h"
#include "nn/model.h"

#define CHOICE(id, word) {id, word},
#define CHOICES(MAP) .choices = ((const struct cddpi_choice[]){MAP(CHOICE){0, NULL}})
#define LAYER(name, member) name, offsetof(struct cddpi_layer, member)

/* Left out means the layer's own default, which is stored as zero. */
const struct cddpi_key cddpi_layer_keys[] = {
    {LAYER("type", type), CDDPI_KEY_ENUM, NULL, CHOICES(CDDPI_LAYER_MAP),
     .text = "The kind of layer."},
    {LAYER("name", name), CDDPI_KEY_TEXT, "",
     .text = "Its name; default: its type and number, such as linear3."},
    {LAYER("input", input), CDDPI_KEY_TEXT, "",
     .text = "Name of the layer that it reads, or *input* for the data; default: the layer "
             "before."},
    {LAYER("input2", input2), CDDPI_KEY_TEXT, "", .text = "add: the second summand."},
    {LAYER("units", units), CDDPI_KEY_INT, "", 1, 1 << 20,
     .text = "linear, lstm: outputs; conv2d, conv_transpose2d: output channels; embedding: "
             "features of a token."},
    {LAYER("kernel", kernel), CDDPI_KEY_INT, "", 1, 1024,
     .text = "conv2d, conv_transpose2d, pools: height and width of the window; default of pools: "
             "2. local_response_norm: number of channels in a window, default 5."},
    {LAYER("stride", stride), CDDPI_KEY_INT, "", 1, 1024,
     .text = "conv2d, conv_transpose2d: default 1; pools: default: the kernel."},
    {LAYER("padding", padding), CDDPI_KEY_INT, "", 0, 1024,
     .text = "conv2d, conv_transpose2d, pools: default 0. conv_transpose2d cuts this many pixels "
             "from each side of its output, which then has (side - 1) x stride + kernel - 2 x "
             "padding pixels."},
    {LAYER("bias", no_bias), CDDPI_KEY_BOOL, "", .negated = true,
     .text = "linear, conv2d, conv_transpose2d, lstm: whether the layer has a bias; default "
             "true."},
    {LAYER("sync", sync), CDDPI_KEY_BOOL, "",
     .text = "batch_norm: statistics over all ranks; default false."},
    {LAYER("epsilon", epsilon), CDDPI_KEY_REAL, "", 1e-30, 1,
     .text = "batch_norm, layer_norm: default 1e-5."},
    {LAYER("momentum", momentum), CDDPI_KEY_REAL, "", 1e-9, 1,
     .text = "batch_norm: weight of the new batch in the running statistics; default 0.1."},
    {LAYER("probability", probability), CDDPI_KEY_REAL, "", 1e-9, 0.999,
     .text = "dropout: probability that an element is zeroed; default 0.5."},
    {LAYER("heads", heads), CDDPI_KEY_INT, "", 1, 4096,
     .text = "attention: number of heads, which divide the channels of queries, keys and values "
             "among them."},
    {LAYER("exact", exact), CDDPI_KEY_BOOL, "",
     .text = "gelu: *true*: the error function; *false* (default): the tanh formula, as in "
             "GPT-2."},
    {LAYER("tied", tied), CDDPI_KEY_TEXT, "",
     .text = "linear: name of the embedding whose table is also the weight of this layer; "
             "default: a weight of its own."},
    {LAYER("positions", positions), CDDPI_KEY_TEXT, "",
     .text = "embedding: name of a table of positions to add; default: none."},
    {LAYER("deviation", deviation), CDDPI_KEY_REAL, "", 0, 1e3,
     .text = "linear, embedding, conv2d, conv_transpose2d, batch_norm: the initial weights are "
             "normally distributed around 0 (batch_norm: around 1) with this standard deviation, "
             "and biases are 0. Default: linear and convolutions: uniform, as in PyTorch; "
             "embedding: 1; batch_norm: 0."},
    {LAYER("groups", groups), CDDPI_KEY_INT, "", 1, 1 << 20,
     .text = "conv2d: number of groups into which input and output channels are divided, each "
             "with filters of its own; default 1."},
    {LAYER("alpha", alpha), CDDPI_KEY_REAL, "", 1e-12, 1e3,
     .text = "local_response_norm: each value is divided by (offset + alpha / kernel x the sum "
             "of squares in the window)^beta; default 1e-4."},
    {LAYER("beta", beta), CDDPI_KEY_REAL, "", 1e-6, 10,
     .text = "local_response_norm: see alpha; default 0.75."},
    {LAYER("offset", offset), CDDPI_KEY_REAL, "", 1e-6, 1e6,
     .text = "local_response_norm: see alpha; default 1."},
    {LAYER("slope", slope), CDDPI_KEY_REAL, "", 1e-9, 1,
     .text = "leaky_relu: factor of values below 0; default 0.01."},
};
const size_t cddpi_layer_key_count = sizeof cddpi_layer_keys / sizeof cddpi_layer_keys[0];
