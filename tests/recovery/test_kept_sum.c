/* test_kept_sum.c - the checksum of a part: whatever a process damages by accident changes it. */
#include "recovery/kept_sum.h"
#include "support/test.h"

enum { BLOCKS = 4, BYTES = BLOCKS * CDDPI_KEPT_BLOCK, WORDS = BYTES / 8, BITS = 8 * BYTES };

static uint64_t data[WORDS];

static uint64_t sum_of(const void *at, size_t bytes)
{
    struct cddpi_kept_sum sum = {{0}};

    cddpi_kept_sum_add(&sum, at, bytes);
    return cddpi_kept_sum_end(&sum);
}

static void flip(int bit)
{
    data[bit / 64] ^= UINT64_C(1) << bit % 64;
}

/* Zeros, ones, small numbers, floats, and what looks like chance. */
static void fill(int kind)
{
    uint64_t random = 1;

    for (int i = 0; i < WORDS; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = kind == 0   ? 0
                  : kind == 1 ? UINT64_MAX
                  : kind == 2 ? (uint64_t)i + 1
                  : kind == 3 ? UINT64_C(0x3f8000003f800000) + ((uint64_t)i << 40 | (uint64_t)i)
                              : random;
    }
}

enum { KINDS = 5 };

static void each_flipped_bit_is_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t right;

        fill(kind);
        right = sum_of(data, sizeof data);
        for (int bit = 0; bit < BITS; bit++) {
            flip(bit);
            assert_true(sum_of(data, sizeof data) != right);
            flip(bit);
        }
        assert_true(sum_of(data, sizeof data) == right);
    }
}

/* Signs, too: bits 31 and 63 of words. */
static void any_two_flipped_bits_are_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t right;

        fill(kind);
        right = sum_of(data, sizeof data);
        for (int one = 0; one < BITS; one++) {
            flip(one);
            for (int other = 0; other < one; other++) {
                flip(other);
                assert_true(sum_of(data, sizeof data) != right);
                flip(other);
            }
            flip(one);
        }
    }
}

/* All subsets of the signs of eight words, wherever they begin. */
static void any_flipped_signs_are_found(void **state)
{
    (void)state;
    for (int first = 0; first + 8 <= WORDS; first++) {
        for (int kind = 0; kind < KINDS; kind++) {
            uint64_t right;

            fill(kind);
            right = sum_of(data, sizeof data);
            for (int set = 1; set < 1 << 16; set++) {
                for (int i = 0; i < 16; i++) {
                    data[first + i / 2] ^= (uint64_t)(set >> i & 1) << (31 + 32 * (i % 2));
                }
                assert_true(sum_of(data, sizeof data) != right);
                for (int i = 0; i < 16; i++) {
                    data[first + i / 2] ^= (uint64_t)(set >> i & 1) << (31 + 32 * (i % 2));
                }
            }
        }
    }
}

static void swap(int one, int other)
{
    uint64_t word = data[one];

    data[one] = data[other];
    data[other] = word;
}

static void swapped_words_are_found(void **state)
{
    (void)state;
    for (int kind = 2; kind < KINDS; kind++) {
        uint64_t right;

        fill(kind);
        right = sum_of(data, sizeof data);
        for (int one = 0; one < WORDS; one++) {
            for (int other = 0; other < one; other++) {
                swap(one, other);
                assert_true(sum_of(data, sizeof data) != right);
                swap(one, other);
            }
        }
    }
}

static void so_are_blocks_that_are_missing_moved_or_zero(void **state)
{
    unsigned char *bytes = (unsigned char *)data;
    unsigned char moved[BYTES] = {0};
    uint64_t right;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        fill(kind);
        right = sum_of(data, sizeof data);
        if (kind > 0) { /* (a part says how long it is, so zeros are not missing) */
            for (size_t size = 0; size < BYTES; size += CDDPI_KEPT_BLOCK) {
                assert_true(sum_of(data, size) != right);
            }
            memcpy(moved + CDDPI_KEPT_BLOCK, bytes, BYTES - CDDPI_KEPT_BLOCK);
            assert_true(sum_of(moved, BYTES) != right);
            memset(moved, 0, sizeof moved);
            assert_true(sum_of(moved, BYTES) != right);
        }
    }
}

static void pieces_give_the_sum_of_the_whole(void **state)
{
    (void)state;
    fill(KINDS - 1);
    for (size_t one = 0; one <= BYTES; one += CDDPI_KEPT_BLOCK) {
        for (size_t other = one; other <= BYTES; other += CDDPI_KEPT_BLOCK) {
            const unsigned char *bytes = (const unsigned char *)data;
            struct cddpi_kept_sum sum = {{0}};

            cddpi_kept_sum_add(&sum, bytes, one);
            cddpi_kept_sum_add(&sum, bytes + one, other - one);
            cddpi_kept_sum_add(&sum, bytes + other, BYTES - other);
            assert_true(cddpi_kept_sum_end(&sum) == sum_of(data, sizeof data));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_flipped_bit_is_found),
        cmocka_unit_test(any_two_flipped_bits_are_found),
        cmocka_unit_test(any_flipped_signs_are_found),
        cmocka_unit_test(swapped_words_are_found),
        cmocka_unit_test(so_are_blocks_that_are_missing_moved_or_zero),
        cmocka_unit_test(pieces_give_the_sum_of_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
