/* loop.c - a user's trainer in which the snippets of doc/embedding.md are compiled: the test
 * replaces the line below with a snippet. */
#include <cddp/cddp.h>

#include <stdio.h>
#include <stdlib.h>

struct layer {
    int in, out;
    float *weight, *bias, *weight_grad, *bias_grad;
};
extern struct layer layers[];
extern float *velocity;
extern float *const *velocities;
extern const char *const *velocity_names;
extern const size_t *sizes;
extern float *grads;
extern const size_t param_count, buffer_count;
extern const uint64_t steps, samples, batch, tests, pieces;
extern const int layer_count;
extern cddp_group *group;
extern cddp_ddp *ddp;
extern cddp_recovery *recovery;
extern cddp_param *params;
extern cddp_param *buffers;
extern cddp_loader *loader;
extern cddp_saving *saving;
extern cddp_tensor *weights, *state;
extern size_t total_bytes;
extern const size_t sample_bytes;
extern const uint64_t epochs;
extern const int rows;
void must(cddp_status status);
double forward(uint64_t first, uint64_t count);
double evaluate(uint64_t first, uint64_t count);
void backward_layer(int index);
void backward(void);
void zero_gradients(void);
void backward_of(uint64_t micro_batch);
void backward_of_part(const cddp_batch *part);
uint64_t samples_of(cddp_share micro_batches);
void long_layer_backward(int row);
bool next_batch(void);
void train_on(const void *data, uint64_t count);
cddp_status load_sample(void *state, uint64_t index, void *out);
cddp_status save_sums(void *state, void *to);
cddp_status load_sums(void *state, const void *from, int part, int parts);
void update(void);
void save(void);
void train(void);
cddp_status train_all(void);
bool is_finished(void);
void snippet(uint64_t step, uint64_t first, double loss);

void snippet(uint64_t step, uint64_t first, double loss)
{
    (void)step;
    (void)first;
    (void)loss;
    {
        /* SNIPPET */
    }
}
