/* nn.h - models with memory for their gradients and a batch of synthetic data, for tests. */
#ifndef CDDP_TESTS_SUPPORT_NN_H
#define CDDP_TESTS_SUPPORT_NN_H

#include "base/alloc.h"
#include "base/philox.h"
#include "nn/model_state.h"
#include "support/test.h"

#include <math.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

struct fixture {
    struct cddpi_model *model;
    struct cddpi_batch batch;
    const cddp_param *params;
    size_t param_count;
    void **grads;
    float *input;
    int32_t *label;
    uint64_t *ids;
    size_t sample_elements;
    int32_t *tokens;
};

float test_number(uint32_t stream, uint64_t element);

/* Make a batch of token sequences, in which each label is the next token. */
void fixture_sequences(struct fixture *f, int first, int count);

/* Make a batch of samples first ... first + count - 1 of an endless synthetic data set. */
void fixture_batch(struct fixture *f, int first, int count);

/* Returns false if the model cannot be made. */
bool fixture_init(struct fixture *f, const struct cddpi_model_spec *spec, uint64_t seed,
                  cddp_group *group, int first, int count);
void fixture_fini(struct fixture *f);

/* The loss of the batch in training mode; also updates the running statistics. */
double fixture_loss(struct fixture *f);
cddp_status fixture_step(struct fixture *f, double scale, bool accumulate);

/* The largest difference of two arrays, divided by the largest magnitude in the first or by @p
 * floor. */
double difference_over(const float *a, const float *b, size_t count, double floor);
double relative_difference(const float *a, const float *b, size_t count);

/* Make and plan a model repeatedly, while the first, second, third ... allocation fails. Assert
 * that more than @p least attempts fail. */
void assert_survives_want_of_memory(const struct cddpi_model_spec *spec, unsigned least);

/** Whether all buffers are aligned, inside the arena, and disjoint from those that are alive at the
 *  same time. */
bool nn_arena_is_valid(const struct cddpi_arena *arena);
/** Bytes that the buffers would take without sharing. */
size_t nn_arena_sum(const struct cddpi_arena *arena);

#endif
