/* loop.c - a trainer of somebody else's, within which the snippets of doc/embedding.md are
 * compiled: the test puts one in place of the line below. */
#include <cddp/cddp.h>

#include <stdio.h>
#include <stdlib.h>

struct layer {
    int in, out;
    float *weight, *bias, *weight_grad, *bias_grad;
};
extern struct layer layers[];
extern float *velocity;
extern float *grads;
extern const size_t param_count;
extern const uint64_t steps, samples, batch, tests;
extern const int layer_count;
extern cddp_group *group;
extern cddp_ddp *ddp;
extern cddp_param *params;
extern cddp_param *buffers;
extern cddp_tensor *tensors;
extern size_t total_bytes;
void must(cddp_status status);
double forward(uint64_t first, uint64_t count);
double evaluate(uint64_t first, uint64_t count);
void backward_layer(int index);
void backward(void);
void update(void);
void train(void);
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
