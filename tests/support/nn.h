/* nn.h - models with memory for their gradients and a batch of made-up data, for tests. */
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

/* The same of tokens: each label is the next one. */
void fixture_sequences(struct fixture *f, int first, int count);

/* Samples first ... first + count - 1 of an endless made-up data set. */
void fixture_batch(struct fixture *f, int first, int count);

/* False when the model cannot be made. */
bool fixture_init(struct fixture *f, const struct cddpi_model_spec *spec, uint64_t seed,
                  cddp_group *group, int first, int count);
void fixture_fini(struct fixture *f);

/* The loss of the batch in training mode; the running statistics move along. */
double fixture_loss(struct fixture *f);
cddp_status fixture_step(struct fixture *f, double scale, bool accumulate);

/* The largest difference of two arrays, over the largest magnitude of the first or @p floor. */
double difference_over(const float *a, const float *b, size_t count, double floor);
double relative_difference(const float *a, const float *b, size_t count);

/* Make and plan a model while one allocation after the other fails; more than @p least of them do.
 */
void assert_survives_want_of_memory(const struct cddpi_model_spec *spec, unsigned least);

#endif
