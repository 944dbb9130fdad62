/* trainer_alone.c - a GPT-2 over bytes in one file of plain C: all parameters in one block, all
 * gradients in another, activations in a third; forward, backward and AdamW. cddp.patch makes it
 * data-parallel.
 *
 *     trainer_alone [CHANNELS [BATCH [STEPS]]] */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 4, HEADS = 4, CONTEXT = 32, VOCAB = 256, PRINTED = 10, STRIDE = 7919 };
static const float LEARNING_RATE = 1e-3f;
static const char *const TEXT = "/usr/share/common-licenses/GPL-3";

static int channels = 48, batch_size = 8, steps = 40;

/* One layer's tensors lie side by side, in the order in which forward uses them. Weights are
 * in x out. */
struct layer {
    float *ln1_scale, *ln1_shift, *qkv, *qkv_bias, *proj, *proj_bias;
    float *ln2_scale, *ln2_shift, *up, *up_bias, *down, *down_bias;
};
enum { LAYER_TENSORS = sizeof(struct layer) / sizeof(float *) };

struct tensors {
    float *tokens, *positions; /* VOCAB x channels, CONTEXT x channels; tokens also give logits */
    struct layer layers[LAYERS];
    float *end_scale, *end_shift;
};
enum { TENSORS = sizeof(struct tensors) / sizeof(float *) };

/* What forward leaves for backward: one of these a layer. */
struct kept {
    float *in, *ln1, *qkv, *attention, *mixed, *middle, *ln2, *up, *gelu;
    float *ln1_stats, *ln2_stats; /* mean and 1 / deviation of each row */
};

struct model {
    struct tensors params, grads;
    float *param_block, *grad_block, *moments; /* moments: twice as long */
    size_t count;
    struct kept kept[LAYERS];
    float *last, *end, *end_stats, *logits;
    float *d, *d_wide, *d_qkv, *transposed; /* backward's */
};

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* Uniform in [-1, 1). */
static float next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

/* --- the text --- */

static size_t read_text(unsigned char **out)
{
    static const char *const words[] = {"the ", "rank ", "sends ", "a ", "gradient ", "and "};
    enum { MOST = 1 << 16 };
    FILE *file = fopen(TEXT, "rb");
    uint64_t state = 3;
    size_t length = 0;

    *out = allocate(MOST + 16);
    if (file != NULL) {
        length = fread(*out, 1, MOST, file);
        fclose(file);
    }
    while (length < MOST / 2) { /* no such file here */
        const char *word = words[(int)((next_random(&state) + 1.0f) * 3.0f) % 6];

        memcpy(*out + length, word, strlen(word));
        length += strlen(word);
    }
    return length;
}

/* --- arithmetic on rows --- */

/* out[r][:] += sum over k of a[r * a_row + k * a_column] * b[k][:]. */
static void multiply(float *out, const float *a, size_t a_row, size_t a_column, const float *b,
                     int rows, int inner, int columns)
{
    for (int r = 0; r < rows; r++) {
        float *restrict to = out + (size_t)r * (size_t)columns;
        int k = 0;

        for (; k + 4 <= inner; k += 4) {
            const float *from = a + (size_t)r * a_row + (size_t)k * a_column;
            const float *restrict b0 = b + (size_t)k * (size_t)columns;
            float a0 = from[0], a1 = from[a_column], a2 = from[2 * a_column];
            float a3 = from[3 * a_column];

            for (int c = 0; c < columns; c++) {
                to[c] += a0 * b0[c] + a1 * b0[c + columns] + a2 * b0[c + 2 * columns] +
                         a3 * b0[c + 3 * columns];
            }
        }
        for (; k < inner; k++) {
            float factor = a[(size_t)r * a_row + (size_t)k * a_column];

            for (int c = 0; c < columns; c++) {
                to[c] += factor * b[(size_t)k * (size_t)columns + (size_t)c];
            }
        }
    }
}

static void transpose(float *out, const float *in, int rows, int columns)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            out[(size_t)c * (size_t)rows + (size_t)r] = in[(size_t)r * (size_t)columns + (size_t)c];
        }
    }
}

static void linear(float *out, const float *in, const float *weight, const float *bias, int rows,
                   int from, int to)
{
    for (int r = 0; r < rows; r++) {
        memcpy(out + (size_t)r * (size_t)to, bias, sizeof(float) * (size_t)to);
    }
    multiply(out, in, (size_t)from, 1, weight, rows, from, to);
}

/* d_in is written; the weight's and the bias's gradients are added to. */
static void linear_back(struct model *model, float *d_in, const float *d_out, const float *in,
                        const float *weight, float *d_weight, float *d_bias, int rows, int from,
                        int to)
{
    memset(d_in, 0, sizeof(float) * (size_t)rows * (size_t)from);
    transpose(model->transposed, weight, from, to);
    multiply(d_in, d_out, (size_t)to, 1, model->transposed, rows, to, from);
    multiply(d_weight, in, 1, (size_t)from, d_out, from, rows, to);
    for (int r = 0; r < rows; r++) {
        for (int o = 0; o < to; o++) {
            d_bias[o] += d_out[(size_t)r * (size_t)to + (size_t)o];
        }
    }
}

static void normalize(float *out, float *stats, const float *in, const float *scale,
                      const float *shift, int rows)
{
    for (int r = 0; r < rows; r++, in += channels, out += channels) {
        float mean = 0, variance = 0;

        for (int c = 0; c < channels; c++) {
            mean += in[c];
        }
        mean /= (float)channels;
        for (int c = 0; c < channels; c++) {
            variance += (in[c] - mean) * (in[c] - mean);
        }
        stats[2 * r] = mean;
        stats[2 * r + 1] = 1.0f / sqrtf(variance / (float)channels + 1e-5f);
        for (int c = 0; c < channels; c++) {
            out[c] = (in[c] - mean) * stats[2 * r + 1] * scale[c] + shift[c];
        }
    }
}

/* d_in is added to. */
static void normalize_back(float *d_in, const float *d_out, const float *in, const float *stats,
                           const float *scale, float *d_scale, float *d_shift, int rows)
{
    for (int r = 0; r < rows; r++, in += channels, d_in += channels, d_out += channels) {
        float sum = 0, sum_in = 0;

        for (int c = 0; c < channels; c++) {
            float x = (in[c] - stats[2 * r]) * stats[2 * r + 1];

            d_scale[c] += d_out[c] * x;
            d_shift[c] += d_out[c];
            sum += d_out[c] * scale[c];
            sum_in += d_out[c] * scale[c] * x;
        }
        for (int c = 0; c < channels; c++) {
            float x = (in[c] - stats[2 * r]) * stats[2 * r + 1];

            d_in[c] += (d_out[c] * scale[c] - (sum + x * sum_in) / (float)channels) *
                       stats[2 * r + 1];
        }
    }
}

/* One head of one sequence: probabilities over what was before, and what they mix. qkv points to
 * the head's first number in the sequence's rows of 3 * channels. */
static void attend(float *mixed, float *attention, const float *qkv, int size)
{
    float factor = 1.0f / sqrtf((float)size);

    for (int t = 0; t < CONTEXT; t++) {
        const float *query = qkv + (size_t)t * 3 * (size_t)channels;
        float *row = attention + t * CONTEXT;
        float *out = mixed + (size_t)t * (size_t)channels;
        float most = -INFINITY, sum = 0;

        for (int s = 0; s <= t; s++) {
            const float *key = qkv + (size_t)s * 3 * (size_t)channels + channels;

            row[s] = 0;
            for (int c = 0; c < size; c++) {
                row[s] += query[c] * key[c] * factor;
            }
            most = fmaxf(most, row[s]);
        }
        for (int s = 0; s <= t; s++) {
            row[s] = expf(row[s] - most);
            sum += row[s];
        }
        memset(out, 0, sizeof(float) * (size_t)size);
        for (int s = 0; s <= t; s++) {
            const float *value = qkv + (size_t)s * 3 * (size_t)channels + 2 * channels;

            row[s] /= sum;
            for (int c = 0; c < size; c++) {
                out[c] += row[s] * value[c];
            }
        }
    }
}

/* d_qkv, laid out as qkv, is added to. */
static void attend_back(float *d_qkv, const float *d_mixed, const float *attention,
                        const float *qkv, int size)
{
    float factor = 1.0f / sqrtf((float)size);
    size_t wide = 3 * (size_t)channels;

    for (int t = 0; t < CONTEXT; t++) {
        const float *row = attention + t * CONTEXT;
        const float *d_out = d_mixed + (size_t)t * (size_t)channels;
        float d_row[CONTEXT];
        float sum = 0;

        for (int s = 0; s <= t; s++) {
            const float *value = qkv + (size_t)s * wide + 2 * channels;
            float *d_value = d_qkv + (size_t)s * wide + 2 * channels;

            d_row[s] = 0;
            for (int c = 0; c < size; c++) {
                d_row[s] += d_out[c] * value[c];
                d_value[c] += row[s] * d_out[c];
            }
            sum += row[s] * d_row[s];
        }
        for (int s = 0; s <= t; s++) {
            float d = row[s] * (d_row[s] - sum) * factor;

            for (int c = 0; c < size; c++) {
                d_qkv[(size_t)t * wide + (size_t)c] +=
                    d * qkv[(size_t)s * wide + (size_t)(channels + c)];
                d_qkv[(size_t)s * wide + (size_t)(channels + c)] +=
                    d * qkv[(size_t)t * wide + (size_t)c];
            }
        }
    }
}

static const float GELU = 0.7978845608f; /* the root of 2 / pi */

static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(GELU * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(GELU * (x + 0.044715f * x * x * x));

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU * (1.0f + 0.134145f * x * x);
}

/* --- the model --- */

/* How many numbers tensor @p index has. */
static size_t tensor_count(int index)
{
    size_t c = (size_t)channels;
    const size_t of_layer[LAYER_TENSORS] = {c, c, 3 * c * c, 3 * c, c * c,     c,
                                            c, c, 4 * c * c, 4 * c, 4 * c * c, c};

    if (index < 2) {
        return (index == 0 ? VOCAB : CONTEXT) * c;
    }
    return index < TENSORS - 2 ? of_layer[(index - 2) % LAYER_TENSORS] : c;
}

/* Point into a block. */
static void spread(struct tensors *tensors, float *block)
{
    float **each = &tensors->tokens; /* a struct of nothing but pointers to float */

    for (int i = 0; i < TENSORS; i++) {
        each[i] = block;
        block += tensor_count(i);
    }
}

static void make_model(struct model *model, int sequences)
{
    size_t c = (size_t)channels;
    size_t rows = (size_t)sequences * CONTEXT;
    size_t per_layer = rows * (c * 16 + HEADS * CONTEXT + 4);
    float *at = allocate(sizeof(float) * (LAYERS * per_layer + rows * (c * 10 + 2 + VOCAB)));
    uint64_t state = 1;

    for (int i = 0; i < TENSORS; i++) {
        model->count += tensor_count(i);
    }
    model->param_block = allocate(sizeof(float) * model->count);
    model->grad_block = allocate(sizeof(float) * model->count);
    model->moments = allocate(sizeof(float) * model->count * 2);
    model->transposed = allocate(sizeof(float) * c * (4 * c + VOCAB));
    spread(&model->params, model->param_block);
    spread(&model->grads, model->grad_block);
    for (int i = 0; i < TENSORS; i++) {
        int in_layer = i < TENSORS - 2 ? (i - 2) % LAYER_TENSORS : i - TENSORS + 2;
        int is_matrix = i < 2 || tensor_count(i) > 4 * c;
        float *tensor = (&model->params.tokens)[i];

        for (size_t k = 0; k < tensor_count(i); k++) { /* matrices, scales, shifts and biases */
            tensor[k] = is_matrix ? 0.035f * next_random(&state) : in_layer % 6 == 0 ? 1.0f : 0.0f;
        }
    }
#define TAKE(pointer, numbers) ((pointer) = at, at += (numbers))
    for (int l = 0; l < LAYERS; l++) {
        struct kept *kept = &model->kept[l];

        TAKE(kept->in, rows * c), TAKE(kept->ln1, rows * c), TAKE(kept->qkv, rows * c * 3);
        TAKE(kept->attention, rows * HEADS * CONTEXT), TAKE(kept->mixed, rows * c);
        TAKE(kept->middle, rows * c), TAKE(kept->ln2, rows * c), TAKE(kept->up, rows * c * 4);
        TAKE(kept->gelu, rows * c * 4), TAKE(kept->ln1_stats, rows * 2);
        TAKE(kept->ln2_stats, rows * 2);
    }
    TAKE(model->last, rows * c), TAKE(model->end, rows * c), TAKE(model->end_stats, rows * 2);
    TAKE(model->logits, rows * VOCAB), TAKE(model->d, rows * c), TAKE(model->d_wide, rows * c * 4);
    TAKE(model->d_qkv, rows * c * 3);
}

/* The sum of the losses of @p sequences sequences, whose tokens lie in rows of CONTEXT + 1. */
static double forward(struct model *model, const unsigned char *tokens, int sequences)
{
    const struct tensors *params = &model->params;
    int rows = sequences * CONTEXT;
    size_t size = (size_t)(channels / HEADS);
    size_t c = (size_t)channels;
    float *x = model->kept[0].in;
    double loss = 0;

    for (int r = 0; r < rows; r++) {
        int token = tokens[r / CONTEXT * (CONTEXT + 1) + r % CONTEXT];

        for (size_t k = 0; k < c; k++) {
            x[(size_t)r * c + k] = params->tokens[(size_t)token * c + k] +
                                   params->positions[(size_t)(r % CONTEXT) * c + k];
        }
    }
    for (int l = 0; l < LAYERS; l++) {
        const struct layer *layer = &params->layers[l];
        struct kept *kept = &model->kept[l];
        float *next = l < LAYERS - 1 ? model->kept[l + 1].in : model->last;

        normalize(kept->ln1, kept->ln1_stats, kept->in, layer->ln1_scale, layer->ln1_shift, rows);
        linear(kept->qkv, kept->ln1, layer->qkv, layer->qkv_bias, rows, channels, 3 * channels);
        for (size_t i = 0; i < (size_t)sequences * HEADS; i++) {
            size_t first = i / HEADS * CONTEXT;

            attend(kept->mixed + first * c + i % HEADS * size,
                   kept->attention + i * CONTEXT * CONTEXT,
                   kept->qkv + first * 3 * c + i % HEADS * size, (int)size);
        }
        linear(kept->middle, kept->mixed, layer->proj, layer->proj_bias, rows, channels, channels);
        for (size_t i = 0; i < (size_t)rows * c; i++) {
            kept->middle[i] += kept->in[i];
        }
        normalize(kept->ln2, kept->ln2_stats, kept->middle, layer->ln2_scale, layer->ln2_shift,
                  rows);
        linear(kept->up, kept->ln2, layer->up, layer->up_bias, rows, channels, 4 * channels);
        for (size_t i = 0; i < (size_t)rows * c * 4; i++) {
            kept->gelu[i] = gelu(kept->up[i]);
        }
        linear(next, kept->gelu, layer->down, layer->down_bias, rows, 4 * channels, channels);
        for (size_t i = 0; i < (size_t)rows * c; i++) {
            next[i] += kept->middle[i];
        }
    }
    normalize(model->end, model->end_stats, model->last, params->end_scale, params->end_shift,
              rows);
    transpose(model->transposed, params->tokens, VOCAB, channels);
    memset(model->logits, 0, sizeof(float) * (size_t)rows * VOCAB);
    multiply(model->logits, model->end, c, 1, model->transposed, rows, channels, VOCAB);
    for (int r = 0; r < rows; r++) { /* logits become the derivative of the mean loss */
        float *row = model->logits + (size_t)r * VOCAB;
        int target = tokens[r / CONTEXT * (CONTEXT + 1) + r % CONTEXT + 1];
        float most = -INFINITY, sum = 0;

        for (int v = 0; v < VOCAB; v++) {
            most = fmaxf(most, row[v]);
        }
        for (int v = 0; v < VOCAB; v++) {
            row[v] = expf(row[v] - most);
            sum += row[v];
        }
        loss -= log((double)row[target] / sum);
        for (int v = 0; v < VOCAB; v++) {
            row[v] = (row[v] / sum - (v == target ? 1.0f : 0.0f)) / (float)rows;
        }
    }
    return loss / CONTEXT;
}

static void layer_back(struct model *model, int l, int sequences)
{
    const struct layer *layer = &model->params.layers[l];
    struct layer *grads = &model->grads.layers[l];
    struct kept *kept = &model->kept[l];
    int rows = sequences * CONTEXT;
    size_t size = (size_t)(channels / HEADS);
    size_t c = (size_t)channels;
    float *d = model->d; /* of what came out, then of what came in */
    float *d_normal = model->d_qkv;

    linear_back(model, model->d_wide, d, kept->gelu, layer->down, grads->down, grads->down_bias,
                rows, 4 * channels, channels);
    for (size_t i = 0; i < (size_t)rows * c * 4; i++) {
        model->d_wide[i] *= gelu_slope(kept->up[i]);
    }
    linear_back(model, d_normal, model->d_wide, kept->ln2, layer->up, grads->up, grads->up_bias,
                rows, channels, 4 * channels);
    normalize_back(d, d_normal, kept->middle, kept->ln2_stats, layer->ln2_scale, grads->ln2_scale,
                   grads->ln2_shift, rows);
    linear_back(model, model->d_wide, d, kept->mixed, layer->proj, grads->proj, grads->proj_bias,
                rows, channels, channels);
    memset(model->d_qkv, 0, sizeof(float) * (size_t)rows * c * 3);
    for (size_t i = 0; i < (size_t)sequences * HEADS; i++) {
        size_t first = i / HEADS * CONTEXT;

        attend_back(model->d_qkv + first * 3 * c + i % HEADS * size,
                    model->d_wide + first * c + i % HEADS * size,
                    kept->attention + i * CONTEXT * CONTEXT,
                    kept->qkv + first * 3 * c + i % HEADS * size, (int)size);
    }
    linear_back(model, model->d_wide, model->d_qkv, kept->ln1, layer->qkv, grads->qkv,
                grads->qkv_bias, rows, channels, 3 * channels);
    normalize_back(d, model->d_wide, kept->in, kept->ln1_stats, layer->ln1_scale, grads->ln1_scale,
                   grads->ln1_shift, rows);
}

/* Fills the gradients: of the end, of the layers from the last to the first, of the embedding. */
static void backward(struct model *model, const unsigned char *tokens, int sequences)
{
    struct tensors *grads = &model->grads;
    int rows = sequences * CONTEXT;
    size_t c = (size_t)channels;
    float *d_end = model->d_wide;

    memset(model->grad_block, 0, sizeof(float) * model->count);
    memset(d_end, 0, sizeof(float) * (size_t)rows * c);
    memset(model->d, 0, sizeof(float) * (size_t)rows * c);
    multiply(d_end, model->logits, VOCAB, 1, model->params.tokens, rows, VOCAB, channels);
    multiply(grads->tokens, model->logits, 1, VOCAB, model->end, VOCAB, rows, channels);
    normalize_back(model->d, d_end, model->last, model->end_stats, model->params.end_scale,
                   grads->end_scale, grads->end_shift, rows);
    for (int l = LAYERS - 1; l >= 0; l--) {
        layer_back(model, l, sequences);
    }
    for (int r = 0; r < rows; r++) {
        int token = tokens[r / CONTEXT * (CONTEXT + 1) + r % CONTEXT];

        for (size_t k = 0; k < c; k++) {
            grads->tokens[(size_t)token * c + k] += model->d[(size_t)r * c + k];
            grads->positions[(size_t)(r % CONTEXT) * c + k] += model->d[(size_t)r * c + k];
        }
    }
}

static void update(struct model *model, int step) /* AdamW */
{
    float fix1 = 1.0f - powf(0.9f, (float)step + 1.0f);
    float fix2 = 1.0f - powf(0.99f, (float)step + 1.0f);

    for (size_t i = 0; i < model->count; i++) {
        float *m = &model->moments[2 * i];
        float g = model->grad_block[i];

        m[0] = 0.9f * m[0] + 0.1f * g;
        m[1] = 0.99f * m[1] + 0.01f * g * g;
        model->param_block[i] -= LEARNING_RATE * (m[0] / fix1 / (sqrtf(m[1] / fix2) + 1e-4f) +
                                                  0.01f * model->param_block[i]);
    }
}

/* FNV-1a over all parameters: equal bits, equal sums. */
static uint64_t checksum(const struct model *model)
{
    const unsigned char *bytes = (const unsigned char *)model->param_block;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof(float) * model->count; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    struct model model = {0};
    unsigned char *text, *tokens;
    size_t length = read_text(&text);
    double began = 0;

    channels = argc > 1 ? atoi(argv[1]) : channels;
    batch_size = argc > 2 ? atoi(argv[2]) : batch_size;
    steps = argc > 3 ? atoi(argv[3]) : steps;
    if (channels < 8 || channels > 4096 || channels % HEADS != 0 || batch_size < 1 ||
        batch_size > 4096 || steps < 1) {
        fprintf(stderr, "%s [CHANNELS [BATCH [STEPS]]]\n", argv[0]);
        return 2;
    }
    make_model(&model, batch_size);
    tokens = allocate((size_t)batch_size * (CONTEXT + 1));
    for (int step = 0; step < steps; step++) {
        uint64_t first = (uint64_t)step * (uint64_t)batch_size;
        int sequences = batch_size;
        double loss;

        began = step == 1 ? seconds() : began; /* the first step warms up */
        for (int n = 0; n < sequences; n++) {
            size_t at = (size_t)(first + (uint64_t)n) * STRIDE % (length - CONTEXT - 1);

            memcpy(tokens + n * (CONTEXT + 1), text + at, CONTEXT + 1);
        }
        loss = forward(&model, tokens, sequences);
        backward(&model, tokens, sequences);
        update(&model, step);
        if (step % ((steps + PRINTED - 1) / PRINTED) == 0 || step == steps - 1) {
            printf("step %d loss %.9g\n", step, loss / batch_size);
        }
    }
    printf("%zu parameters, %.2f ms a step\n", model.count,
           1e3 * (seconds() - began) / (steps > 1 ? steps - 1 : 1));
    printf("weights %016llx\n", (unsigned long long)checksum(&model));
    free(model.kept[0].in); /* the block of activations */
    free(model.param_block);
    free(model.grad_block);
    free(model.moments);
    free(model.transposed);
    free(tokens);
    free(text);
    return 0;
}
