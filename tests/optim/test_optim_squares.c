/* test_optim_squares.c - sums of squares of gradients: the same bits with every instruction set,
 * and however parameters are cut into shards. */
#include "ddp/copies.h"
#include "kernels/cpu/cpu_optim.h"
#include "optim/optim.h"
#include "support/group.h"
#include "support/test.h"

#include <math.h>

enum { MOST = 1000, PARAMS = 6 };

/* Numbers of many magnitudes, zeros and subnormal ones among them. */
static float number_of(size_t i)
{
    uint32_t seed = (uint32_t)i * 2654435761u + 12345u;

    seed = seed * 1664525u + 1013904223u;
    return i % 13 == 0 ? 0 : ldexpf((float)(int32_t)seed * 0x1p-31f, (int)(i % 97) - 140);
}

/* As cpu_optim.h defines it, one element after the other. */
static void add_one_by_one(const float *x, size_t n, struct cddpi_exact_sum *sum)
{
    for (size_t at = 0; at < n; at += CDDPI_OPTIM_BLOCK) {
        double squares[CDDPI_OPTIM_BLOCK] = {0};

        for (size_t i = 0; i < CDDPI_OPTIM_BLOCK && at + i < n; i++) {
            squares[i] = (double)x[at + i] * x[at + i];
        }
        for (size_t i = 0; i < 8; i++) {
            squares[i] += squares[i + 8];
        }
        for (size_t i = 0; i < 4; i++) {
            squares[i] += squares[i + 4];
        }
        cddpi_exact_add(sum, (squares[0] + squares[1]) + (squares[2] + squares[3]));
    }
    cddpi_exact_carry(sum);
}

static void every_instruction_set_adds_up_the_same_blocks(void **state)
{
    const struct cddpi_optim_kernels *tables[3];
    size_t builds = cddpi_optim_kernels_all(tables);
    static float x[MOST + 1];

    (void)state;
    for (size_t i = 0; i <= MOST; i++) {
        x[i] = number_of(i);
    }
    for (size_t n = 0; n <= MOST; n += n < 300 ? 1 : 37) {
        const float *at = x + n % 2; /* some are not aligned */
        struct cddpi_exact_sum expected = {{0}};

        add_one_by_one(at, n, &expected);
        for (size_t i = 0; i < builds; i++) {
            struct cddpi_exact_sum sum = {{0}};
            size_t cut = n / 3 / CDDPI_OPTIM_BLOCK * CDDPI_OPTIM_BLOCK;

            tables[i]->add_squares(at, cut, &sum);
            tables[i]->add_squares(at + cut, n - cut, &sum);
            cddpi_exact_carry(&sum);
            assert_memory_equal(&sum, &expected, sizeof sum);
        }
    }
}

static void a_square_that_is_not_finite_is_seen(void **state)
{
    const struct cddpi_optim_kernels *tables[3];
    size_t builds = cddpi_optim_kernels_all(tables);

    (void)state;
    for (size_t i = 0; i < builds; i++) {
        for (size_t at = 0; at < 200; at++) {
            float x[200] = {1};
            struct cddpi_exact_sum sum = {{0}};

            x[at] = -INFINITY;
            tables[i]->add_squares(x, 200, &sum);
            assert_true(cddpi_exact_value(&sum) == INFINITY);
            x[at] = NAN;
            tables[i]->add_squares(x, 200, &sum);
            assert_true(isnan(cddpi_exact_value(&sum)));
        }
    }
}

static const int64_t counts[PARAMS] = {40001, 3, 0, 777, 16 * 1024, 5003};

/* The sum of all ranks' squares of the same gradients. @p group NULL: of one process without
 * shards.
 */
static int squares_of(cddp_group *group, bool late, struct cddpi_exact_sum *out)
{
    const struct cddpi_optim_spec spec = {.type = CDDPI_OPTIM_ADAMW, .beta1 = .9, .beta2 = .99};
    const struct cddpi_ddp_copies copies = {CDDP_BF16, NULL, false, late};
    static float data[PARAMS][40001];
    static float own_grads[PARAMS][40001];
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e", "f"};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    struct cddpi_exact_sum again = {{0}};
    cddp_step step = CDDP_STEP_INIT;
    cddp_param params[PARAMS] = {{0}};
    void *grads[PARAMS];
    struct cddpi_optim *optim;
    cddp_ddp *ddp = NULL;

    for (size_t i = 0; i < PARAMS; i++) {
        params[i] = (cddp_param){
            .name = names[i], .type = CDDP_F32, .dims = 1, .shape = {counts[i]}, .data = data[i]};
        grads[i] = own_grads[i];
    }
    options.shard = true;
    options.first_bucket_bytes = 4000;
    options.bucket_bytes = 30000;
    step.kind = CDDP_STEP_SUM;
    if (group != NULL) {
        CHECK(cddpi_ddp_create_with_copies(group, params, PARAMS, NULL, 0, &options, &copies,
                                           &ddp) == CDDP_OK);
        CHECK(cddp_ddp_begin(ddp, &step) == CDDP_OK);
    }
    for (size_t i = 0; i < PARAMS; i++) {
        bool is_mine = group == NULL ||
                       i % (size_t)cddp_group_world_size(group) == (size_t)cddp_group_rank(group);

        grads[i] = group != NULL ? cddp_ddp_grad(ddp, i) : grads[i];
        params[i].data = group != NULL ? cddp_ddp_param(ddp, i) : params[i].data;
        for (int64_t e = 0; e < counts[i]; e++) {
            ((float *)grads[i])[e] = is_mine ? number_of((size_t)e + 7 * i) : 0;
        }
        CHECK(group == NULL || cddp_ddp_grad_ready(ddp, i) == CDDP_OK);
    }
    CHECK(group == NULL || cddp_ddp_wait(ddp) == CDDP_OK);
    CHECK(cddpi_optim_create(&spec, params, NULL, PARAMS, group, ddp, &optim) == CDDP_OK);
    cddpi_optim_add_squares(optim, grads, out);
    cddpi_optim_step(optim, grads, .1, 1, &again);
    cddpi_exact_carry(out);
    cddpi_exact_carry(&again);
    CHECK(memcmp(out, &again, sizeof again) == 0);
    if (group != NULL) {
        CHECK(cddp_all_reduce(group, out->parts, out->parts, CDDPI_EXACT_PARTS, CDDP_I64,
                              CDDP_OP_SUM, NULL) == CDDP_OK);
        cddpi_exact_carry(out);
    }
    cddpi_optim_destroy(optim);
    cddp_ddp_destroy(ddp);
    return 0;
}

/* Reduced at once, and by who reads them. */
static int shards_on_rank(int rank, int world_size, void *seed)
{
    for (int late = 0; late < 2; late++) {
        struct cddpi_exact_sum whole = {{0}};
        struct cddpi_exact_sum sum = {{0}};
        cddp_group *group;

        setenv("CDDP_COMM_THREAD", late != 0 ? "0" : "1", 1);
        CHECK(group_from_seed((struct group_seed *)seed + late, rank, world_size,
                              SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
        CHECK(squares_of(NULL, false, &whole) == 0);
        CHECK(squares_of(group, late != 0, &sum) == 0);
        CHECK(cddpi_exact_value(&whole) > 0);
        CHECK(memcmp(&whole, &sum, sizeof sum) == 0);
        cddp_group_destroy(group);
    }
    return 0;
}

static void shards_have_the_sum_of_the_whole(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct group_seed seeds[2];

        for (int late = 0; late < 2; late++) {
            assert_int_equal(group_seed_create(sizes[i], &seeds[late]), CDDP_OK);
        }
        assert_int_equal(run_ranks(sizes[i], shards_on_rank, seeds), 0);
        for (int late = 0; late < 2; late++) {
            close(seeds[late].fd);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_adds_up_the_same_blocks),
        cmocka_unit_test(a_square_that_is_not_finite_is_seen),
        cmocka_unit_test(shards_have_the_sum_of_the_whole),
    };

    return cmocka_run_group_tests_name("optim_squares", tests, NULL, NULL);
}
