/* trainer.c - a program of MPI that owns MPI_COMM_WORLD: rank 0 makes points of a curve and
 * broadcasts them, all learn it by a small network, and a reduction of its own compares what they
 * have learnt. Everything between "cddp: begin" and "cddp: end" was added to train data-parallel;
 * without those lines every process does the same work. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* cddp: begin */
#include <cddp/cddp.h>
#include <cddp/mpi.h>
static void must(cddp_status status)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
/* cddp: end */

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
    int threads;

    /* a group calls MPI in a thread of its own when it goes between machines */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
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
    /* cddp: begin */
    cddp_param params[] = {{"w", CDDP_F32, 1, {HIDDEN}, net.w, grad.w, 0},
                           {"b", CDDP_F32, 1, {HIDDEN}, net.b, grad.b, 0},
                           {"v", CDDP_F32, 1, {HIDDEN}, net.v, grad.v, 0},
                           {"c", CDDP_F32, 1, {1}, net.c, grad.c, 0}};
    cddp_group *group;
    cddp_ddp *ddp;
    must(cddp_group_create_from_mpi(MPI_COMM_WORLD, NULL, &group));
    must(cddp_ddp_create(group, params, 4, NULL, 0, NULL, &ddp));
    /* cddp: end */
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t first = step * BATCH;
        int batch = BATCH;
        double loss;

        /* cddp: begin */
        cddp_share share = cddp_share_of(first, BATCH, rank, cddp_group_world_size(group));
        cddp_step how = CDDP_STEP_INIT;
        first = share.first;
        batch = (int)share.count;
        how.weight = batch; /* shares may differ: the mean is over samples, not over ranks */
        must(cddp_ddp_begin(ddp, &how));
        /* cddp: end */
        loss = learn(&net, &grad, first, batch);
        /* cddp: begin */
        for (size_t i = 4; i-- > 0;) {
            must(cddp_ddp_grad_ready(ddp, i));
        }
        must(cddp_ddp_wait(ddp));
        must(cddp_all_reduce(group, &loss, &loss, 1, CDDP_F64, CDDP_OP_SUM, NULL));
        /* cddp: end */
        for (size_t i = 0; i < sizeof net / sizeof(float); i++) {
            weights[i] -= LEARNING_RATE * ((const float *)&grad)[i];
        }
        if (rank == 0 && (step % 20 == 0 || step == STEPS - 1)) {
            printf("step %d loss %.9g\n", (int)step, loss / BATCH);
        }
    }
    /* cddp: begin */
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    /* cddp: end */
    sum = checksum(&net);
    MPI_Allreduce(&sum, &largest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    printf("rank %d weights %016llx%s\n", rank, (unsigned long long)sum,
           sum == largest ? "" : ", unlike others");
    MPI_Finalize();
    return sum == largest ? 0 : 1;
}
