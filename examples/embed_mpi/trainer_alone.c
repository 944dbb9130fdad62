/* trainer_alone.c - a program of MPI that owns MPI_COMM_WORLD: rank 0 makes points of a curve and
 * broadcasts them, all learn it by a small network, and a reduction of its own compares what they
 * have learnt. Every process does the same work; cddp.patch makes it data-parallel. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 1000, BATCH = 50, STEPS = 200, HIDDEN = 32, STRIDE = 617 };
static const float LEARNING_RATE = 0.05f;

/* y = v . tanh(w x + b) + c, and the gradients in another one of these. */
struct network {
    float w[HIDDEN], b[HIDDEN], v[HIDDEN], c[1];
};

static float xs[SAMPLES];
static float ys[SAMPLES];

/* Uniform in [-1, 1). */
static float next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) * 0x1p-23f - 1.0f;
}

static void make_curve(void)
{
    uint64_t state = 1;

    for (int i = 0; i < SAMPLES; i++) {
        xs[i] = 3.0f * next_random(&state);
        ys[i] = sinf(2.0f * xs[i]) + 0.05f * next_random(&state);
    }
}

/* The squared error's sum over samples [first, first + batch) of the endless sequence; the
 * gradients are those of its mean. */
static double learn(const struct network *net, struct network *grad, uint64_t first, int batch)
{
    double loss = 0;

    memset(grad, 0, sizeof *grad);
    for (int n = 0; n < batch; n++) {
        uint64_t at = (first + (uint64_t)n) * STRIDE % SAMPLES;
        float hidden[HIDDEN];
        float y = net->c[0];
        float d;

        for (int h = 0; h < HIDDEN; h++) {
            hidden[h] = tanhf(net->w[h] * xs[at] + net->b[h]);
            y += net->v[h] * hidden[h];
        }
        loss += (double)(y - ys[at]) * (y - ys[at]);
        d = 2.0f * (y - ys[at]) / (float)batch;
        grad->c[0] += d;
        for (int h = 0; h < HIDDEN; h++) {
            float below = d * net->v[h] * (1.0f - hidden[h] * hidden[h]);

            grad->v[h] += d * hidden[h];
            grad->w[h] += below * xs[at];
            grad->b[h] += below;
        }
    }
    return loss;
}

/* FNV-1a over all weights: equal bits, equal sums. */
static uint64_t checksum(const struct network *net)
{
    const unsigned char *bytes = (const unsigned char *)net;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof *net; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

int main(int argc, char **argv)
{
    struct network net = {{0}, {0}, {0}, {0}};
    struct network grad;
    float *weights = (float *)&net;
    uint64_t state = 2;
    uint64_t sum;
    uint64_t largest;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        make_curve();
    }
    MPI_Bcast(xs, SAMPLES, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Bcast(ys, SAMPLES, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (int h = 0; h < HIDDEN; h++) {
        net.w[h] = 2.0f * next_random(&state);
        net.b[h] = 2.0f * next_random(&state);
        net.v[h] = 0.3f * next_random(&state);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t first = step * BATCH;
        int batch = BATCH;
        double loss;

        loss = learn(&net, &grad, first, batch);
        for (size_t i = 0; i < sizeof net / sizeof(float); i++) {
            weights[i] -= LEARNING_RATE * ((const float *)&grad)[i];
        }
        if (rank == 0 && (step % 20 == 0 || step == STEPS - 1)) {
            printf("step %d loss %.9g\n", (int)step, loss / BATCH);
        }
    }
    sum = checksum(&net);
    MPI_Allreduce(&sum, &largest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    printf("rank %d weights %016llx%s\n", rank, (unsigned long long)sum,
           sum == largest ? "" : ", unlike others");
    MPI_Finalize();
    return sum == largest ? 0 : 1;
}
