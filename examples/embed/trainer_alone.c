/* trainer_alone.c - two interleaved spirals, learned by a small network in plain C: its own memory,
 * forward, backward and SGD. cddp.patch makes it data-parallel. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 1000, BATCH = 50, STEPS = 200, LAYERS = 3, CLASSES = 2, STRIDE = 617 };
static const float LEARNING_RATE = 0.5f;

/* A dense layer; all but the last are followed by tanh. */
struct layer {
    int in, out;
    float *weight, *bias; /* weight is out x in */
    float *weight_grad, *bias_grad;
    float *x; /* BATCH x in: what came in at the last forward */
    float *d; /* BATCH x out: activations, then the loss's derivative before the activation */
};

static float data[SAMPLES][2];
static int labels[SAMPLES];

static float *floats(size_t count)
{
    float *memory = calloc(count, sizeof *memory);

    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu floats\n", count);
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

static void make_spirals(void)
{
    uint64_t state = 1;

    for (int i = 0; i < SAMPLES; i++) {
        float turn = (float)(i / 2) / (SAMPLES / 2);
        float angle = 6.0f * turn + (i % 2 == 0 ? 0.0f : 3.14159265f);

        labels[i] = i % 2;
        data[i][0] = turn * cosf(angle) + 0.02f * next_random(&state);
        data[i][1] = turn * sinf(angle) + 0.02f * next_random(&state);
    }
}

static void make_layer(struct layer *layer, int in, int out, uint64_t *state)
{
    layer->in = in;
    layer->out = out;
    layer->weight = floats((size_t)in * (size_t)out);
    layer->bias = floats((size_t)out);
    layer->weight_grad = floats((size_t)in * (size_t)out);
    layer->bias_grad = floats((size_t)out);
    layer->x = floats((size_t)BATCH * (size_t)in);
    layer->d = floats((size_t)BATCH * (size_t)out);
    for (int i = 0; i < in * out; i++) {
        layer->weight[i] = next_random(state) * sqrtf(3.0f / (float)in);
    }
}

static void forward(struct layer *layer, int batch, int is_last)
{
    for (int n = 0; n < batch; n++) {
        for (int o = 0; o < layer->out; o++) {
            float sum = layer->bias[o];

            for (int i = 0; i < layer->in; i++) {
                sum += layer->weight[o * layer->in + i] * layer->x[n * layer->in + i];
            }
            layer->d[n * layer->out + o] = is_last ? sum : tanhf(sum);
        }
    }
}

/* From d of this layer: its gradients, and d of the layer below (which holds activations). */
static void backward(struct layer *layer, struct layer *below, int batch)
{
    memset(layer->weight_grad, 0, sizeof(float) * (size_t)layer->in * (size_t)layer->out);
    memset(layer->bias_grad, 0, sizeof(float) * (size_t)layer->out);
    for (int n = 0; n < batch; n++) {
        for (int o = 0; o < layer->out; o++) {
            float d = layer->d[n * layer->out + o];

            layer->bias_grad[o] += d;
            for (int i = 0; i < layer->in; i++) {
                layer->weight_grad[o * layer->in + i] += d * layer->x[n * layer->in + i];
            }
        }
        for (int i = 0; below != NULL && i < layer->in; i++) {
            float a = below->d[n * layer->in + i];
            float sum = 0;

            for (int o = 0; o < layer->out; o++) {
                sum += layer->weight[o * layer->in + i] * layer->d[n * layer->out + o];
            }
            below->d[n * layer->in + i] = sum * (1.0f - a * a);
        }
    }
}

/* Cross-entropy, summed over the batch; d becomes the derivative of its mean. */
static double softmax_loss(struct layer *last, uint64_t first, int batch)
{
    double loss = 0;

    for (int n = 0; n < batch; n++) {
        float *d = last->d + n * CLASSES;
        int label = labels[(first + (uint64_t)n) * STRIDE % SAMPLES];
        float p = 1.0f / (1.0f + expf(d[1 - label] - d[label])); /* of the right one of two */

        loss -= log(p);
        d[label] = (p - 1.0f) / (float)batch;
        d[1 - label] = (1.0f - p) / (float)batch;
    }
    return loss;
}

/* Forward and backward over samples [first, first + batch) of the endless sequence. */
static double learn(struct layer *layers, uint64_t first, int batch)
{
    double loss;

    for (int n = 0; n < batch; n++) {
        memcpy(layers[0].x + n * 2, data[(first + (uint64_t)n) * STRIDE % SAMPLES], sizeof data[0]);
    }
    for (int l = 0; l < LAYERS; l++) {
        forward(&layers[l], batch, l == LAYERS - 1);
        if (l < LAYERS - 1) {
            memcpy(layers[l + 1].x, layers[l].d,
                   sizeof(float) * (size_t)batch * (size_t)layers[l].out);
        }
    }
    loss = softmax_loss(&layers[LAYERS - 1], first, batch);
    for (int l = LAYERS - 1; l >= 0; l--) {
        backward(&layers[l], l > 0 ? &layers[l - 1] : NULL, batch);
    }
    return loss;
}

static void update(struct layer *layer)
{
    for (int i = 0; i < layer->in * layer->out; i++) {
        layer->weight[i] -= LEARNING_RATE * layer->weight_grad[i];
    }
    for (int o = 0; o < layer->out; o++) {
        layer->bias[o] -= LEARNING_RATE * layer->bias_grad[o];
    }
}

/* FNV-1a over all weights: equal bits, equal sums. */
static uint64_t checksum(const struct layer *layers)
{
    uint64_t hash = 14695981039346656037u;

    for (int l = 0; l < LAYERS; l++) {
        const unsigned char *bytes = (const unsigned char *)layers[l].weight;

        for (size_t i = 0; i < sizeof(float) * (size_t)(layers[l].in * layers[l].out); i++) {
            hash = (hash ^ bytes[i]) * 1099511628211u;
        }
    }
    return hash;
}

int main(void)
{
    struct layer layers[LAYERS];
    uint64_t state = 2;

    make_spirals();
    make_layer(&layers[0], 2, 32, &state);
    make_layer(&layers[1], 32, 32, &state);
    make_layer(&layers[2], 32, CLASSES, &state);

    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t first = step * BATCH;
        int batch = BATCH;
        double loss;

        loss = learn(layers, first, batch);
        for (int l = 0; l < LAYERS; l++) {
            update(&layers[l]);
        }
        if (step % 20 == 0 || step == STEPS - 1) {
            printf("step %d loss %.9g\n", (int)step, loss / BATCH);
        }
    }
    printf("weights %016llx\n", (unsigned long long)checksum(layers));
    for (int l = 0; l < LAYERS; l++) {
        struct layer *at = &layers[l];
        float *const blocks[] = {at->weight,    at->bias, at->weight_grad,
                                 at->bias_grad, at->x,    at->d};

        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            free(blocks[i]);
        }
    }
    return 0;
}
