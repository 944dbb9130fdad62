/* test_cuda_reduce.c - reductions over ranks and casts on a CUDA device equal the CPU's, bit by
 * bit. */
#include "kernels/cpu/reduce.h"
#include "support/cuda.h"
#include "support/failure.h"

enum { RANKS = CDDPI_CUDA_REDUCE_RANKS, VALUES = 1031 };

static const cddp_type all_types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16,
                                      CDDP_I32, CDDP_I64, CDDP_U8};
static const cddp_op all_ops[] = {CDDP_OP_SUM, CDDP_OP_MEAN, CDDP_OP_MIN, CDDP_OP_MAX,
                                  CDDP_OP_PROD};

static bool is_real(cddp_type type)
{
    return type == CDDP_F32 || type == CDDP_F64 || type == CDDP_F16 || type == CDDP_BF16;
}

/* Some numbers of a rank; whole ones over all of their type, so that sums wrap around. */
static void fill(cddp_type type, void *out, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = 4 * test_number((uint32_t)rank + 1, i);
        uint64_t bits = ((uint64_t)rank + 7) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;

        if (type == CDDP_F64) {
            ((double *)out)[i] = (double)x * 1.000000001;
        } else if (is_real(type)) {
            store_as(type, out, i, x);
        } else if (type == CDDP_I32) {
            ((int32_t *)out)[i] = (int32_t)(bits >> 32);
        } else if (type == CDDP_I64) {
            ((int64_t *)out)[i] = (int64_t)bits;
        } else {
            ((uint8_t *)out)[i] = (uint8_t)(bits >> 40);
        }
    }
}

/* The ranks' arrays, here and there. @p shift: elements by which those there miss an alignment. */
struct arrays {
    cddp_type type;
    int ranks;
    size_t count, shift;
    void *host[RANKS];
    void *memory[RANKS];
    const void *device[RANKS];
};

static void arrays_make(struct arrays *a, cddp_type type, int ranks, size_t count, size_t shift)
{
    size_t each = cddp_type_bytes(type);

    *a = (struct arrays){.type = type, .ranks = ranks, .count = count, .shift = shift};
    for (int r = 0; r < ranks; r++) {
        a->host[r] = malloc(count * each);
        fill(type, a->host[r], r, count);
        a->memory[r] = cuda_alloc((count + shift) * each);
        a->device[r] = (char *)a->memory[r] + shift * each;
        cuda_copy((char *)a->memory[r] + shift * each, a->host[r], count * each);
    }
}

static void arrays_free(struct arrays *a)
{
    for (int r = 0; r < a->ranks; r++) {
        free(a->host[r]);
        cuda_release(a->memory[r]);
    }
}

/* Reductions go into another stream than copies and new memory. */
static void done(void)
{
    cuda_ok(cuda->ops->finish(cuda, 60000));
}

/* Both reduce; @p at: which input the result replaces there, -1: none. */
static void compare(const struct arrays *a, cddp_op op, const double *weights, int at)
{
    size_t bytes = a->count * cddp_type_bytes(a->type);
    struct cddpi_reduce how = {a->type, op, a->ranks, 1, NULL};
    double factors[RANKS];
    void *expected = malloc(bytes);
    void *own = cuda_alloc(bytes + 16);
    void *out = at >= 0 ? (void *)(uintptr_t)a->device[at]
                        : (char *)own + a->shift * cddp_type_bytes(a->type) % 16;
    double *device_weights = NULL;
    void *got;

    if (weights != NULL) {
        device_weights = cuda_upload(weights, (size_t)a->ranks * sizeof *weights);
        cddpi_reduce_weighted(&how, a->type, weights, a->ranks, factors);
    }
    cddpi_reduce(&how, &expected, (const void *const *)a->host, a->count);
    done();
    cuda_ok(cuda->kernels->reduce(cuda, a->type, op, a->device, device_weights, a->ranks, a->count,
                                  out));
    done();
    got = cuda_download(out, bytes);
    if (memcmp(got, expected, bytes) != 0) {
        fail_msg("%s of %zu %s over %d ranks%s: other bits than the processor's", cddp_op_name(op),
                 a->count, cddp_type_name(a->type), a->ranks, weights != NULL ? ", weighted" : "");
    }
    if (at >= 0) { /* as it was, for the next */
        cuda_copy(out, a->host[at], bytes);
    }
    free(got);
    free(expected);
    cuda_release(own);
    cuda_release(device_weights);
}

static void reductions_have_the_processors_bits(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 32, 47, 64, 65, RANKS};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof all_types / sizeof all_types[0]; t++) {
        for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
            struct arrays a;

            arrays_make(&a, all_types[t], ranks[r], VALUES, 0);
            for (size_t o = 0; o < sizeof all_ops / sizeof all_ops[0]; o++) {
                compare(&a, all_ops[o], NULL, -1);
            }
            arrays_free(&a);
        }
    }
}

static void arrays_need_no_alignment_and_may_be_short(void **state)
{
    static const size_t counts[] = {1, 2, 7, 8, 9, 255, 1024};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof all_types / sizeof all_types[0]; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (size_t shift = 0; shift < 2; shift++) {
                struct arrays a;

                arrays_make(&a, all_types[t], 3, counts[c], shift);
                compare(&a, CDDP_OP_SUM, NULL, -1);
                compare(&a, CDDP_OP_MEAN, NULL, -1);
                arrays_free(&a);
            }
        }
    }
}

static void the_result_may_replace_an_input(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < sizeof all_types / sizeof all_types[0]; t++) {
        for (int at = 0; at < 3; at++) {
            struct arrays a;

            arrays_make(&a, all_types[t], 3, VALUES, 0);
            compare(&a, CDDP_OP_MEAN, NULL, at);
            compare(&a, CDDP_OP_MAX, NULL, at);
            arrays_free(&a);
        }
    }
}

/* Also that equal ones are a plain mean, and that who has none is left out. */
static void weights_are_the_processors(void **state)
{
    static const double cases[][9] = {{1, 1, 1, 1, 1, 1, 1, 1, 1},
                                      {3, 1, 2, 5, 8, 1, 1, 7, 4},
                                      {0, 2, 0, 0, 5, 0, 1, 0, 0},
                                      {0, 0, 0, 0, 0, 0, 0, 0, 0},
                                      {64, 64, 64, 64, 64, 64, 63, 0}};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < 4; t++) {
        for (int ranks = 1; ranks <= 9; ranks += ranks < 8 ? 2 : 1) {
            for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
                struct arrays a;

                arrays_make(&a, all_types[t], ranks, VALUES, 0);
                compare(&a, CDDP_OP_MEAN, cases[c], -1);
                arrays_free(&a);
            }
        }
    }
}

/* Also where the last ranks of a kernel are missing, and only some ranks have a weight. */
static void weights_of_many_ranks_are_the_processors(void **state)
{
    static const int ranks[] = {11, 16, 29, 64, 70};
    double weights[RANKS];

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < 4; t++) {
        for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
            struct arrays a;

            arrays_make(&a, all_types[t], ranks[i], VALUES, t % 2);
            for (int kind = 0; kind < 3; kind++) {
                for (int r = 0; r < ranks[i]; r++) {
                    weights[r] = kind == 0 ? 5 : kind == 1 ? r % 7 + 1 : r % 5 == 3 ? r : 0;
                }
                compare(&a, CDDP_OP_MEAN, weights, -1);
            }
            arrays_free(&a);
        }
    }
}

/* Both halves reduce, from arrays at @p a->device, beside the whole. */
static void compare_halves(const struct arrays *a, struct cddpi_cuda_hosts hosts,
                           const double *weights)
{
    size_t bytes = a->count * cddp_type_bytes(a->type);
    size_t off = a->shift * cddp_type_bytes(a->type) % 16;
    char *whole = cuda_alloc(bytes + 16);
    char *out = cuda_alloc(bytes + 16);
    const void *parts[CDDPI_CUDA_HOSTS];
    void *expected;
    void *got;

    hosts.weights = weights != NULL ? cuda_upload(weights, (size_t)a->ranks * sizeof *weights)
                                    : NULL;
    done();
    cuda_ok(cuda->kernels->reduce(cuda, a->type, hosts.mean ? CDDP_OP_MEAN : CDDP_OP_SUM, a->device,
                                  hosts.weights, a->ranks, a->count, whole));
    for (int h = 0; h < hosts.hosts; h++) {
        float *part = cuda_alloc(a->count * sizeof *part);

        done();
        cuda_ok(cuda->kernels->sum_host(cuda, a->type, &hosts, h, a->device + h * hosts.each,
                                        a->count, part));
        parts[h] = part;
    }
    cuda_ok(cuda->kernels->join_hosts(cuda, a->type, &hosts, parts, a->count, out + off));
    done();
    expected = cuda_download(whole, bytes);
    got = cuda_download(out + off, bytes);
    if (memcmp(got, expected, bytes) != 0) {
        fail_msg("%zu %s of %d hosts with %d ranks%s: other bits in two halves", a->count,
                 cddp_type_name(a->type), hosts.hosts, hosts.each,
                 weights != NULL ? ", weighted" : "");
    }
    for (int h = 0; h < hosts.hosts; h++) {
        cuda_release((void *)(uintptr_t)parts[h]);
    }
    free(expected);
    free(got);
    cuda_release((void *)(uintptr_t)hosts.weights);
    cuda_release(whole);
    cuda_release(out);
}

/* Weights: none, equal, different, of few ranks, all zero, and of the last host's ranks only. */
static void two_halves_have_the_bits_of_the_whole(void **state)
{
    static const struct cddpi_cuda_hosts cases[] = {
        {2, 1, NULL, false}, {2, 2, NULL, false}, {3, 4, NULL, false},  {2, 8, NULL, false},
        {7, 2, NULL, false}, {8, 1, NULL, false}, {11, 2, NULL, false}, {64, 1, NULL, false}};
    static const cddp_type types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};
    double weights[RANKS];

    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < 3 * sizeof cases / sizeof cases[0]; i++) {
        struct cddpi_cuda_hosts hosts = cases[i / 3];
        int ranks = hosts.hosts * hosts.each;
        struct arrays a;

        arrays_make(&a, types[i % 3], ranks, i % 2 == 0 ? VALUES : 1024, i % 4 / 2);
        for (int kind = 0; kind < 5; kind++) {
            for (int r = 0; r < ranks; r++) {
                weights[r] = kind == 0   ? 5
                             : kind == 1 ? r % 7 + 1
                             : kind == 2 ? (r % 5 == 3 ? r : 0)
                             : kind == 3 ? 0
                                         : r >= ranks - hosts.each;
            }
            compare_halves(&a, hosts, weights);
        }
        compare_halves(&a, hosts, NULL);
        hosts.mean = true;
        compare_halves(&a, hosts, NULL);
        arrays_free(&a);
    }
}

static void a_share_is_the_factor_of_a_weighted_mean(void **state)
{
    static const double cases[][3] = {{1, 1, 1}, {3, 1, 4}, {0, 2, 0}, {0, 0, 0}};

    (void)state;
    NEEDS_CUDA();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double *weights = cuda_upload(cases[c], sizeof cases[c]);
        double total = cases[c][0] + cases[c][1] + cases[c][2];

        for (int rank = 0; rank < 3; rank++) {
            double share = total > 0 ? cases[c][rank] / total : 0;
            double *out = cuda_alloc(2 * sizeof *out);
            double *got;
            float narrow;

            done();
            cuda_ok(cuda->kernels->share(cuda, CDDP_F64, weights, 3, rank, out));
            cuda_ok(cuda->kernels->share(cuda, CDDP_F32, weights, 3, rank, out + 1));
            done();
            got = cuda_download(out, 2 * sizeof *out);
            memcpy(&narrow, &got[1], sizeof narrow);
            assert_true(got[0] == share && narrow == (float)share);
            free(got);
            cuda_release(out);
        }
        cuda_release(weights);
    }
}

/* A rank without samples may hold anything. */
static void what_weighs_nothing_is_not_read(void **state)
{
    const float host[2][4] = {{NAN, NAN, INFINITY, NAN}, {1, 2, 3, 4}};
    const double weights[] = {0, 3};
    const void *in[2];
    double *device_weights;
    float *out;

    (void)state;
    NEEDS_CUDA();
    in[0] = cuda_upload(host[0], sizeof host[0]);
    in[1] = cuda_upload(host[1], sizeof host[1]);
    device_weights = cuda_upload(weights, sizeof weights);
    done();
    cuda_ok(cuda->kernels->reduce(cuda, CDDP_F32, CDDP_OP_MEAN, in, device_weights, 2, 4,
                                  (void *)(uintptr_t)in[0]));
    done();
    out = cuda_download(in[0], sizeof host[0]);
    assert_memory_equal(out, host[1], sizeof host[1]);
    free(out);
    cuda_release((void *)(uintptr_t)in[0]);
    cuda_release((void *)(uintptr_t)in[1]);
    cuda_release(device_weights);
}

static void a_nan_stays_one(void **state)
{
    const float host[3][2] = {{1, NAN}, {NAN, 2}, {3, 4}};
    const void *in[3];
    float *out;
    void *device;

    (void)state;
    NEEDS_CUDA();
    device = cuda_alloc(sizeof host[0]);
    for (int r = 0; r < 3; r++) {
        in[r] = cuda_upload(host[r], sizeof host[r]);
    }
    for (size_t o = 0; o < sizeof all_ops / sizeof all_ops[0]; o++) {
        done();
        cuda_ok(cuda->kernels->reduce(cuda, CDDP_F32, all_ops[o], in, NULL, 3, 2, device));
        done();
        out = cuda_download(device, sizeof host[0]);
        assert_true(isnan(out[0]) && isnan(out[1]));
        free(out);
    }
    for (int r = 0; r < 3; r++) {
        cuda_release((void *)(uintptr_t)in[r]);
    }
    cuda_release(device);
}

static void too_many_ranks_are_an_error(void **state)
{
    const void *in[RANKS + 1] = {NULL};

    (void)state;
    NEEDS_CUDA();
    assert_int_equal(
        cuda->kernels->reduce(cuda, CDDP_F32, CDDP_OP_SUM, in, NULL, RANKS + 1, 1, NULL),
        CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("over 257 ranks"));
}

/* --- casts and scale --- */

/* Numbers of @p type that are none too plain: all there are of 16 bits, and edges of float32. */
static void *edges(cddp_type type, size_t *out_count)
{
    static const float some[] = {0,       -0.0f,     1,           65504,   65519.996f, 65520,
                                 1e-8f,   5.96e-8f,  2.98e-8f,    3e-8f,   6.1e-5f,    6.09e-5f,
                                 3.4e38f, 3.402e38f, 3.39617e38f, -1e-40f, INFINITY,   -INFINITY};
    size_t count = 65536;

    if (type != CDDP_F32) {
        uint16_t *all = malloc(count * sizeof *all);

        for (size_t i = 0; i < count; i++) { /* without what is no number */
            all[i] = isnan(load_as(type, &(uint16_t){(uint16_t)i}, 0)) ? 0 : (uint16_t)i;
        }
        *out_count = count;
        return all;
    }
    float *all = malloc(count * sizeof *all);

    for (size_t i = 0; i < count; i++) {
        all[i] = i < sizeof some / sizeof some[0] ? some[i]
                                                  : ldexpf(test_number(5, i), (int)(i % 60) - 40);
    }
    *out_count = count;
    return all;
}

static void casts_have_the_processors_bits(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t f = 0; f < 3; f++) {
        for (size_t t = 0; t < 3; t++) {
            cddp_type from = cuda_types[f];
            cddp_type to = cuda_types[t];
            size_t count;
            void *host = edges(from, &count);
            size_t bytes = count * cddp_type_bytes(to);
            void *in = cuda_upload(host, count * cddp_type_bytes(from));
            void *out = cuda_alloc(bytes);
            void *expected = malloc(bytes);
            void *got;

            cddpi_cast(expected, to, host, from, count);
            cuda_ok(cuda->kernels->cast(cuda, from, in, to, out, count));
            got = cuda_download(out, bytes);
            assert_memory_equal(got, expected, bytes);
            free(got);
            /* neither aligned nor whole groups */
            cuda_ok(cuda->kernels->cast(cuda, from, (char *)in + cddp_type_bytes(from), to,
                                        (char *)out + cddp_type_bytes(to), 77));
            got = cuda_download(out, bytes);
            assert_memory_equal(got, expected, bytes);
            free(got);
            free(expected);
            free(host);
            cuda_release(in);
            cuda_release(out);
        }
    }
}

static void casts_may_be_in_place(void **state)
{
    size_t count;
    uint16_t *host;
    uint16_t *expected;
    void *memory;
    void *got;

    (void)state;
    NEEDS_CUDA();
    host = edges(CDDP_BF16, &count);
    expected = malloc(count * sizeof *expected);
    cddpi_cast(expected, CDDP_F16, host, CDDP_BF16, count);
    memory = cuda_upload(host, count * sizeof *host);
    cuda_ok(cuda->kernels->cast(cuda, CDDP_BF16, memory, CDDP_F16, memory, count));
    got = cuda_download(memory, count * sizeof *host);
    assert_memory_equal(got, expected, count * sizeof *host);
    free(got);
    free(expected);
    free(host);
    cuda_release(memory);
}

static void scale_multiplies_and_zero_clears(void **state)
{
    static const double factors[] = {0.3, 0};

    (void)state;
    NEEDS_CUDA();
    for (size_t t = 0; t < 3; t++) {
        for (size_t f = 0; f < 2; f++) {
            struct numbers x = random_numbers(cuda_types[t], 3, VALUES, 2, 0);
            double *factor = cuda_upload(&factors[f], sizeof factors[f]);
            double *expected = malloc(VALUES * sizeof *expected);

            for (size_t i = 0; i < VALUES; i++) {
                union {
                    float wide;
                    uint16_t narrow;
                } one;

                store_as(x.type, &one, 0, x.host[i] * (float)factors[f]);
                expected[i] = load_as(x.type, &one, 0);
            }
            done();
            cuda_ok(cuda->kernels->scale(cuda, x.type, factor, VALUES, x.device));
            done();
            numbers_fetch(&x);
            for (size_t i = 0; i < VALUES; i++) {
                assert_true((double)x.host[i] == expected[i]);
            }
            free(expected);
            numbers_free(&x);
            cuda_release(factor);
        }
    }
}

static void a_scale_of_zero_clears_what_is_no_number(void **state)
{
    const double zero = 0;
    struct numbers x;
    double *factor;

    (void)state;
    NEEDS_CUDA();
    x = no_numbers(CDDP_BF16, 19);
    factor = cuda_upload(&zero, sizeof zero);
    done();
    cuda_ok(cuda->kernels->scale(cuda, x.type, factor, x.count, x.device));
    done();
    numbers_fetch(&x);
    for (size_t i = 0; i < x.count; i++) {
        assert_true(x.host[i] == 0);
    }
    numbers_free(&x);
    cuda_release(factor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_have_the_processors_bits),
        cmocka_unit_test(arrays_need_no_alignment_and_may_be_short),
        cmocka_unit_test(the_result_may_replace_an_input),
        cmocka_unit_test(weights_are_the_processors),
        cmocka_unit_test(weights_of_many_ranks_are_the_processors),
        cmocka_unit_test(two_halves_have_the_bits_of_the_whole),
        cmocka_unit_test(a_share_is_the_factor_of_a_weighted_mean),
        cmocka_unit_test(what_weighs_nothing_is_not_read),
        cmocka_unit_test(a_nan_stays_one),
        cmocka_unit_test(too_many_ranks_are_an_error),
        cmocka_unit_test(casts_have_the_processors_bits),
        cmocka_unit_test(casts_may_be_in_place),
        cmocka_unit_test(scale_multiplies_and_zero_clears),
        cmocka_unit_test(a_scale_of_zero_clears_what_is_no_number),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
