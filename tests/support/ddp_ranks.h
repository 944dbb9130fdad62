/* ddp_ranks.h - shared by the tests of ddp: groups of forked ranks that meet in a file, small
 * models, and gradients whose mean over ranks is known to the bit. */
#ifndef CDDP_TESTS_SUPPORT_DDP_RANKS_H
#define CDDP_TESTS_SUPPORT_DDP_RANKS_H

#include "support/test.h"

#include <cddp/ddp.h>
#include <math.h>

enum { MODEL_MOST = 64, RANKS_MOST = 8 };

/* Fewer ranks under the thread sanitizer, which makes each rank ten times slower and finds the same
 * races. */
#ifdef __SANITIZE_THREAD__
static const int world_sizes[] = {1, 2, 3};
#else
static const int world_sizes[] = {1, 2, 3, 4, 7};
#endif

enum { WORLD_SIZES = sizeof world_sizes / sizeof *world_sizes };

/* Where the ranks of one test meet. Each run of ranks has its own job name. */
struct meeting {
    char folder[4096];
    char job[64];
    uint32_t timeout_ms;
    const void *argument; /* free for the test's use */
};

int meeting_set_up(void **state);
int meeting_tear_down(void **state);

#define RANKS_TEST(test) cmocka_unit_test_setup_teardown(test, meeting_set_up, meeting_tear_down)

/* Run @p body on @p world_size ranks. Returns how many failed. */
int meet(struct meeting *meeting, int world_size, rank_fn body, const void *argument,
         int *statuses);
cddp_group *join_group(const struct meeting *meeting, int rank, int world_size);

/* Whether all ranks have the same text; rank 1's answer. */
int same_text_everywhere(cddp_group *group, const char *text);

/* A number in [-1, 1) that depends on all four arguments. */
float noise(unsigned a, unsigned b, unsigned c, unsigned d);
float round_bf16(float x);
float round_f16(float x);

/* The sum in the order of group reductions: pairs of neighbours; an odd value at the end moves up
 * alone. Overwrites @p values. */
double tree_sum(double *values, int count, int is_f32);

/* The mean over ranks of one element, @p values[rank], rounded to @p type. */
double tree_mean(double *values, int world_size, cddp_type type);

/* Read or write an element by type, except f16, which only hooks send. */
void put(void *memory, cddp_type type, size_t i, double value);
double get(const void *memory, cddp_type type, size_t i);
/* What get() returns after put(). */
double stored(double value, cddp_type type);

enum memory { OWNED, FLAT, SCATTERED, MIXED, MEMORIES };

/* A model of one rank. */
struct model {
    size_t count;
    cddp_param params[MODEL_MOST];
    size_t elements[MODEL_MOST];
    char names[MODEL_MOST][24];
    unsigned char *flat;
    cddp_ddp_options options;
};

void free_model(struct model *model);

/* Make parameters p0, p1 ... of @p elements and @p types (NULL: f32), with values that depend on @p
 * rank. @p memory chooses where their gradients are. */
void make_model(struct model *model, int rank, enum memory memory, size_t count,
                const size_t *elements, const cddp_type *types);

/* The value that @p rank puts, in backward @p step, into element i of the gradient of parameter
 * p. */
double gradient(int rank, int step, size_t p, size_t i);
void write_gradient(cddp_ddp *ddp, const struct model *model, int rank, int step, size_t p);

/* Whether the gradient of p equals, to the bit, the mean over ranks of gradient(). */
int is_mean(cddp_ddp *ddp, const struct model *model, int world_size, int step, size_t p);

/* The objects of one rank. */
struct trainer {
    cddp_group *group;
    struct model model;
    cddp_ddp *ddp;
};

/* Join and make a model. Its options may be changed before watch(). */
int enter(struct trainer *out, const struct meeting *meeting, int rank, int world_size,
          enum memory memory, size_t count, const size_t *elements, const cddp_type *types);
int watch(struct trainer *trainer);
int leave(struct trainer *trainer);

/* Begin backward @p step: the mean over ranks. */
int begin_mean(cddp_ddp *ddp, int step);
/* Write every gradient of backward @p step, from the last parameter to the first. */
int all_ready(const struct trainer *trainer, int rank, int step);
/* Both. */
int full_backward(const struct trainer *trainer, int rank, int step);

/* Check that the group still works: train with a new handle on it. Then leave. */
int train_again(struct trainer *trainer, int rank, int world_size);

#endif
