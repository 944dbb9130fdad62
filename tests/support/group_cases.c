/* group_cases.c - shared by the tests of collectives: each number of ranks, registered and ordinary
 * buffers, and their contents. */
#include "support/group_cases.h"

#ifdef __SANITIZE_THREAD__ /* as in support/ddp_ranks.h */
static const int sizes[] = {1, 2, 3, 4};
#else
static const int sizes[] = {1, 2, 3, 4, 7, 8};
#endif

void at_sizes_to(int most, rank_fn body, const char *threads)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        struct group_seed seed;

        setenv("CDDP_COMM_THREAD", threads, 1);
        if (threads[0] == '0' && i % 2 == 1) { /* the default: a thread only between hosts */
            unsetenv("CDDP_COMM_THREAD");
        }
        assert_int_equal(group_seed_create(sizes[i], &seed), CDDP_OK);
        assert_int_equal(run_ranks(sizes[i], body, &seed), 0);
        close(seed.fd);
        unsetenv("CDDP_COMM_THREAD");
    }
}

void at_every_size(rank_fn body, const char *threads)
{
    at_sizes_to(8, body, threads);
}

void *buffer(cddp_group *group, bool registered, size_t bytes)
{
    void *memory = NULL;

    if (!registered) {
        return malloc(bytes > 0 ? bytes : 1);
    }
    return cddp_group_alloc(group, bytes, 0, &memory) == CDDP_OK ? memory : NULL;
}

void give_back(cddp_group *group, bool registered, void *memory)
{
    if (registered) {
        cddp_group_free(group, memory);
    } else {
        free(memory);
    }
}

void repeat(void *data, size_t period, size_t bytes)
{
    for (size_t filled = period; filled < bytes;) {
        size_t n = bytes - filled < filled ? bytes - filled : filled;

        memcpy((char *)data + filled, data, n);
        filled += n;
    }
}

void fill_rank(void *data, int rank, size_t from, size_t count, cddp_type type)
{
    size_t element = cddp_type_bytes(type);

    for (size_t i = 0; i < count && i < PERIOD; i++) {
        reference_fill((char *)data + i * element, rank, (from + i) % PERIOD, type);
    }
    repeat(data, PERIOD * element, count * element);
}

int compare_reduced(const void *got, size_t from, size_t count, int n, cddp_type type, cddp_op op,
                    const double *weights)
{
    size_t element = cddp_type_bytes(type);
    size_t step = count > 2000 ? 61 : 1;

    for (size_t i = 0; i < count; i += step) {
        uint64_t inputs[REFERENCE_RANKS];
        const void *values[REFERENCE_RANKS];
        uint64_t expected = 0;

        for (int r = 0; r < n; r++) {
            reference_fill(&inputs[r], r, (from + i) % PERIOD, type);
            values[r] = &inputs[r];
        }
        reference_reduce(&expected, values, n, type, op, weights);
        if (memcmp(&expected, (const char *)got + i * element, element) != 0) {
            fprintf(stderr, "%s %s x %zu at %d ranks: element %zu differs\n", cddp_op_name(op),
                    cddp_type_name(type), count, n, i);
            return 1;
        }
    }
    return 0;
}
