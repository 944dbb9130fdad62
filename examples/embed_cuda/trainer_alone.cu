/* trainer_alone.cu - two interleaved spirals, learned by a small network in plain CUDA: its own
 * device memory, stream, kernels and SGD. cddp.patch makes it data-parallel. */
#include <cuda_runtime.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

enum { SAMPLES = 1000, BATCH = 50, STEPS = 200, LAYERS = 3, CLASSES = 2, STRIDE = 617 };
static const float LEARNING_RATE = 0.5f;

/* A dense layer; all but the last are followed by tanh. All of it lies on the device. */
struct layer {
    int in, out;
    float *weight, *bias; /* weight is out x in */
    float *weight_grad, *bias_grad;
    float *x; /* BATCH x in: what came in at the last forward */
    float *d; /* BATCH x out: activations, then the loss's derivative before the activation */
};

/* Parameters in one block, gradients in another: w0, b0, w1, b1 ... back to back. */
struct model {
    struct layer layers[LAYERS];
    float *params, *grads;
    size_t count;
};

static cudaStream_t stream;
static float *data;  /* SAMPLES x 2, on the device */
static int *labels;  /* likewise */
static float *parts; /* BATCH: the loss of each sample */
static double *loss; /* of the batch */

static void check(cudaError_t error, int line)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(error));
        exit(1);
    }
}
#define CHECK(call) check((call), __LINE__)

/* --- kernels: a thread for each number --- */

__device__ static int index_of_thread()
{
    return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void pick(const float *from, uint64_t first, int batch, float *x)
{
    int i = index_of_thread();

    if (i < batch * 2) {
        x[i] = from[(first + (uint64_t)(i / 2)) * STRIDE % SAMPLES * 2 + (uint64_t)(i % 2)];
    }
}

__global__ void forward(struct layer layer, int batch, bool is_last, float *next)
{
    int i = index_of_thread();
    int o = i % layer.out;

    if (i < batch * layer.out) {
        const float *x = layer.x + i / layer.out * layer.in;
        float sum = layer.bias[o];

        for (int k = 0; k < layer.in; k++) {
            sum += layer.weight[o * layer.in + k] * x[k];
        }
        layer.d[i] = is_last ? sum : tanhf(sum);
        if (!is_last) {
            next[i] = layer.d[i];
        }
    }
}

/* Cross-entropy of each sample; d becomes the derivative of their mean. */
__global__ void softmax(struct layer last, const int *labels, uint64_t first, int batch,
                        float *parts)
{
    int n = index_of_thread();

    if (n < batch) {
        float *d = last.d + n * CLASSES;
        int label = labels[(first + (uint64_t)n) * STRIDE % SAMPLES];
        float p = 1.0f / (1.0f + expf(d[1 - label] - d[label])); /* of the right one of two */

        parts[n] = -logf(p);
        d[label] = (p - 1.0f) / (float)batch;
        d[1 - label] = (1.0f - p) / (float)batch;
    }
}

__global__ void add_up(const float *parts, int batch, double *loss)
{
    double sum = 0;

    for (int n = 0; n < batch; n++) {
        sum += (double)parts[n];
    }
    *loss = sum;
}

__global__ void gradients(struct layer layer, int batch)
{
    int i = index_of_thread();
    int o = i / (layer.in + 1);
    int k = i % (layer.in + 1); /* the last one is the bias */

    if (o < layer.out) {
        float sum = 0;

        for (int n = 0; n < batch; n++) {
            float x = k < layer.in ? layer.x[n * layer.in + k] : 1.0f;

            sum += layer.d[n * layer.out + o] * x;
        }
        *(k < layer.in ? &layer.weight_grad[o * layer.in + k] : &layer.bias_grad[o]) = sum;
    }
}

/* d of the layer below, which holds its activations yet. */
__global__ void below(struct layer layer, int batch, float *d)
{
    int i = index_of_thread();
    int k = i % layer.in;

    if (i < batch * layer.in) {
        float sum = 0;

        for (int o = 0; o < layer.out; o++) {
            sum += layer.weight[o * layer.in + k] * layer.d[i / layer.in * layer.out + o];
        }
        d[i] = sum * (1.0f - d[i] * d[i]);
    }
}

__global__ void update(float *params, const float *grads, int count)
{
    int i = index_of_thread();

    if (i < count) {
        params[i] -= LEARNING_RATE * grads[i];
    }
}

/* --- the trainer --- */

static int blocks(int threads)
{
    return (threads + 127) / 128;
}

/* Forward and backward over samples [first, first + batch) of the endless sequence. */
static void learn(struct layer *layers, uint64_t first, int batch)
{
    struct layer *last = &layers[LAYERS - 1];

    pick<<<blocks(batch * 2), 128, 0, stream>>>(data, first, batch, layers[0].x);
    for (int l = 0; l < LAYERS; l++) {
        struct layer at = layers[l];
        float *next = l < LAYERS - 1 ? layers[l + 1].x : NULL;

        forward<<<blocks(batch * at.out), 128, 0, stream>>>(at, batch, l == LAYERS - 1, next);
    }
    softmax<<<blocks(batch), 128, 0, stream>>>(*last, labels, first, batch, parts);
    add_up<<<1, 1, 0, stream>>>(parts, batch, loss);
    for (int l = LAYERS - 1; l >= 0; l--) {
        struct layer at = layers[l];

        gradients<<<blocks(at.out * (at.in + 1)), 128, 0, stream>>>(at, batch);
        if (l > 0) {
            below<<<blocks(batch * at.in), 128, 0, stream>>>(at, batch, layers[l - 1].d);
        }
    }
    CHECK(cudaGetLastError());
}

static double read_loss()
{
    double sum;

    CHECK(cudaMemcpyAsync(&sum, loss, sizeof sum, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return sum;
}

template <class T> static T *on_device(size_t count)
{
    void *memory;

    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    CHECK(cudaMemsetAsync(memory, 0, count * sizeof(T), stream));
    return (T *)memory;
}

template <class T> static T *on_device(const std::vector<T> &from)
{
    T *memory = on_device<T>(from.size());

    CHECK(cudaMemcpyAsync(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice,
                          stream));
    CHECK(cudaStreamSynchronize(stream));
    return memory;
}

/* Uniform in [-1, 1). */
static float next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

static void make_spirals()
{
    std::vector<float> points;
    std::vector<int> sides;
    uint64_t state = 1;

    for (int i = 0; i < SAMPLES; i++) {
        float turn = (float)(i / 2) / (SAMPLES / 2);
        float angle = 6.0f * turn + (i % 2 == 0 ? 0.0f : 3.14159265f);

        sides.push_back(i % 2);
        points.push_back(turn * cosf(angle) + 0.02f * next_random(&state));
        points.push_back(turn * sinf(angle) + 0.02f * next_random(&state));
    }
    data = on_device(points);
    labels = on_device(sides);
    parts = on_device<float>(BATCH);
    loss = on_device<double>(1);
}

static void make_model(struct model *model)
{
    static const int sizes[LAYERS + 1] = {2, 32, 32, CLASSES};
    std::vector<float> numbers;
    uint64_t state = 2;

    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < sizes[l] * sizes[l + 1]; i++) {
            numbers.push_back(next_random(&state) * sqrtf(3.0f / (float)sizes[l]));
        }
        numbers.insert(numbers.end(), (size_t)sizes[l + 1], 0.0f);
    }
    model->count = numbers.size();
    model->params = on_device(numbers);
    model->grads = on_device<float>(model->count);
    for (size_t l = 0, at = 0; l < LAYERS; l++) {
        size_t weights = (size_t)(sizes[l] * sizes[l + 1]);

        model->layers[l] = {sizes[l],
                            sizes[l + 1],
                            model->params + at,
                            model->params + at + weights,
                            model->grads + at,
                            model->grads + at + weights,
                            on_device<float>((size_t)(BATCH * sizes[l])),
                            on_device<float>((size_t)(BATCH * sizes[l + 1]))};
        at += weights + (size_t)sizes[l + 1];
    }
}

/* FNV-1a over all parameters: equal bits, equal sums. */
static uint64_t checksum(const struct model *model)
{
    std::vector<float> numbers(model->count);
    const unsigned char *bytes = (const unsigned char *)numbers.data();
    uint64_t hash = 14695981039346656037u;

    CHECK(cudaMemcpyAsync(numbers.data(), model->params, model->count * sizeof(float),
                          cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < model->count * sizeof(float); i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

int main()
{
    struct model model;

    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    make_spirals();
    make_model(&model);

    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t first = step * BATCH;
        int batch = BATCH;

        learn(model.layers, first, batch);
        update<<<blocks((int)model.count), 128, 0, stream>>>(model.params, model.grads,
                                                             (int)model.count);
        CHECK(cudaGetLastError());
        if (step % 20 == 0 || step == STEPS - 1) {
            printf("step %d loss %.9g\n", (int)step, read_loss() / BATCH);
        }
    }
    printf("weights %016llx\n", (unsigned long long)checksum(&model));
    for (int l = 0; l < LAYERS; l++) {
        CHECK(cudaFree(model.layers[l].x));
        CHECK(cudaFree(model.layers[l].d));
    }
    void *const rest[] = {data, labels, parts, loss, model.params, model.grads};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        CHECK(cudaFree(rest[i]));
    }
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
