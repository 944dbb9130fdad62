/* token_sampling.c - owns sampling from a softmax: temperature, top-k, and the choice of the random
 * number. */
#include "train/generate/token_sampling.h"

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

/* The larger logit comes first; of equal ones, the smaller token. */
static int compare(const void *a, const void *b)
{
    const struct cddpi_token_candidate *x = a;
    const struct cddpi_token_candidate *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

/* A random number in [0, 1) with 53 random bits. */
static double draw(const struct cddpi_token_sampling *sampling, uint32_t position)
{
    struct cddpi_philox stream = cddpi_philox_stream(sampling->seed, CDDPI_RANDOM_GENERATE,
                                                     position);
    uint32_t random[4];

    cddpi_philox4(&stream, sampling->step, random);
    return (double)((uint64_t)random[0] << 21 | random[1] >> 11) * 0x1p-53;
}

static double weight(const struct cddpi_token_sampling *sampling,
                     const struct cddpi_token_candidate *candidate, float largest)
{
    return exp(((double)candidate->logit - (double)largest) / sampling->temperature);
}

int32_t cddpi_sample_token(const struct cddpi_token_sampling *sampling, uint32_t position,
                           const float *logits, int count, struct cddpi_token_candidate *scratch)
{
    int best = 0;
    double total = 0;
    double left;

    for (int i = 0; i < count; i++) {
        scratch[i].logit = isnan(logits[i]) ? -INFINITY : logits[i];
        scratch[i].token = i;
        best = scratch[i].logit > scratch[best].logit ? i : best;
    }
    if (sampling->temperature <= 0 || isinf(scratch[best].logit)) {
        return best;
    }
    if (sampling->top_k > 0 && sampling->top_k < count) {
        qsort(scratch, (size_t)count, sizeof *scratch, compare);
        count = sampling->top_k;
        best = 0;
    }
    for (int i = 0; i < count; i++) {
        total += weight(sampling, &scratch[i], scratch[best].logit);
    }
    left = draw(sampling, position) * total;
    for (int i = 0; i < count; i++) {
        left -= weight(sampling, &scratch[i], scratch[best].logit);
        if (left < 0) {
            return scratch[i].token;
        }
    }
    return scratch[best].token; /* only after rounding errors */
}
