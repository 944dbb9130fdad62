/* preset_lstm_lm.c - owns the word-level language model of PyTorch's examples
 * (word_language_model): an embedding, LSTM layers one after the other, and a linear layer that can
 * share the embedding's table. Parameters have the names of its RNNModel, so its load_state_dict()
 * accepts a checkpoint of this preset. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

static void append_dropout(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list,
                           int number)
{
    if (spec->dropout != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = spec->dropout},
            "drop%d", number);
    }
}

cddp_status cddpi_preset_lstm_lm(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    static const int usual[] = {512, 512};
    const double deviation = 0.057735027; /* of uniform numbers up to 0.1, which the example uses */
    const int *hidden = spec->hidden != NULL ? spec->hidden : usual;
    int count = spec->hidden != NULL ? spec->hidden_count : 2;
    int embed;

    if (spec->vocab == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG, "lstm_lm takes tokens, but the data are images");
    }
    if (count < 1 || count > 100) {
        return cddpi_fail(CDDP_ERR_CONFIG, "lstm_lm: %d LSTM layers; 1 to 100 are possible", count);
    }
    embed = spec->embed != 0 ? spec->embed : hidden[count - 1];
    if (spec->tied && embed != hidden[count - 1]) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "lstm_lm: a tied embedding has as many features as the last LSTM layer "
                          "has outputs, but embed is %d and that layer's hidden is %d",
                          embed, hidden[count - 1]);
    }
    cddpi_layer_list_append(
        list,
        (struct cddpi_layer){.type = CDDPI_LAYER_EMBEDDING, .units = embed, .deviation = deviation},
        "encoder");
    append_dropout(spec, list, 0);
    for (int i = 0; i < count; i++) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_LSTM, .units = hidden[i]}, "rnn_l%d", i);
        append_dropout(spec, list, i + 1);
    }
    cddpi_layer_list_append(list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR,
                                                 .units = spec->vocab,
                                                 .tied = spec->tied ? "encoder" : NULL,
                                                 .deviation = deviation},
                            "decoder");
    return CDDP_OK;
}
