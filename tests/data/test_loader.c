/* test_loader.c - batches: the same for any number of threads and ranks, in order, and stoppable at
 * any moment. */
#include "base/alloc.h"
#include "base/philox.h"
#include "data/data_loader.h"
#include "support/failure.h"
#include "support/test.h"

#include <math.h>

enum { COUNT = 107, CHANNELS = 2, HEIGHT = 5, WIDTH = 4, PLANE = HEIGHT * WIDTH };
enum { ELEMENTS = CHANNELS * PLANE };

/* Images of random bytes; a dataset in plain memory, as far as the loader can tell. */
static uint8_t images[COUNT * ELEMENTS];
static uint8_t labels[COUNT];
static struct cddpi_dataset dataset = {.count = COUNT,
                                       .channels = CHANNELS,
                                       .height = HEIGHT,
                                       .width = WIDTH,
                                       .classes = 10,
                                       .images = images,
                                       .labels = labels};

static int make_images(void **state)
{
    struct cddpi_philox stream = cddpi_philox_stream(1, CDDPI_RANDOM_TEST, 0);

    (void)state;
    for (size_t i = 0; i < sizeof images; i++) {
        uint32_t random[4];

        cddpi_philox4(&stream, i, random);
        images[i] = (uint8_t)(1 + random[0] % 255); /* 0 is what a crop adds */
        labels[i / ELEMENTS] = (uint8_t)(random[1] % 10);
    }
    return 0;
}

static struct cddpi_data_loader_options plain_options(int threads)
{
    struct cddpi_data_loader_options options = {.dataset = &dataset, .seed = 9, .threads = threads};

    options.max_count = COUNT;
    for (int c = 0; c < CHANNELS; c++) {
        options.transform.mean[c] = 0.25f + 0.125f * (float)c;
        options.transform.std[c] = 0.3f;
    }
    return options;
}

static struct cddpi_data_loader_options augmenting_options(int threads)
{
    struct cddpi_data_loader_options options = plain_options(threads);

    options.transform.crop_padding = 2;
    options.transform.flip = true;
    return options;
}

static struct cddpi_data_loader *make(struct cddpi_data_loader_options options)
{
    struct cddpi_data_loader *loader = NULL;

    assert_int_equal(cddpi_data_loader_create(&options, &loader), CDDP_OK);
    return loader;
}

static cddp_sampler *make_order(uint64_t epoch)
{
    cddp_sampler *sampler = NULL;

    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, COUNT, 5, &sampler), CDDP_OK);
    assert_int_equal(cddp_sampler_set_epoch(sampler, epoch), CDDP_OK);
    return sampler;
}

/* Everything that a sequence of batches held, one after the other. */
struct taken {
    int samples, batches;
    int counts[COUNT + 1];
    float input[COUNT][ELEMENTS];
    int32_t label[COUNT];
    uint64_t ids[COUNT];
};

static void append_batch(struct taken *taken, const struct cddpi_micro_batch *batch)
{
    assert_true(taken->samples + batch->count <= COUNT && taken->batches <= COUNT);
    assert_int_equal((uintptr_t)batch->input % 64, 0);
    for (int i = 0; i < batch->count; i++) {
        memcpy(taken->input[taken->samples], batch->input + (size_t)i * ELEMENTS,
               sizeof taken->input[0]);
        taken->label[taken->samples] = batch->label[i];
        taken->ids[taken->samples] = batch->sample_ids[i];
        taken->samples++;
    }
    taken->counts[taken->batches++] = batch->count;
}

/* Start, take all batches of one rank, and see that nothing comes after them. */
static void take_all(struct cddpi_data_loader *loader, uint64_t epoch, uint64_t first,
                     uint64_t batch, int rank, int world_size, bool augment, struct taken *out)
{
    cddp_sampler *sampler = make_order(epoch);
    struct cddpi_micro_batch loaded = {.waited_ns = -1};

    memset(out, 0, sizeof *out);
    assert_int_equal(cddpi_data_loader_start(loader, sampler, epoch, first, COUNT, batch, rank,
                                             world_size, augment),
                     CDDP_OK);
    for (;;) {
        assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
        assert_true(loaded.waited_ns >= 0);
        if (loaded.input == NULL) {
            break;
        }
        append_batch(out, &loaded);
    }
    assert_int_equal(loaded.count, 0);
    assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
    assert_null(loaded.input);
    cddpi_data_loader_cancel(loader);
    cddp_sampler_destroy(sampler);
}

static void a_batch_holds_the_normalised_samples_in_the_samplers_order(void **state)
{
    struct cddpi_data_loader *loader = make(plain_options(1));
    struct taken *taken = malloc(sizeof *taken);
    cddp_sampler *sampler = make_order(3);

    (void)state;
    take_all(loader, 3, 0, 25, 0, 1, true, taken);
    assert_int_equal(taken->batches, 5);
    assert_int_equal(taken->counts[3], 25);
    assert_int_equal(taken->counts[4], 7);
    assert_int_equal(taken->samples, COUNT);
    for (int i = 0; i < COUNT; i++) {
        uint64_t id = cddp_sampler_at(sampler, (uint64_t)i);

        assert_int_equal(taken->ids[i], id);
        assert_int_equal(taken->label[i], labels[id]);
        for (int e = 0; e < ELEMENTS; e++) {
            float mean = e < PLANE ? 0.25f : 0.375f;
            float expected = ((float)images[id * ELEMENTS + (uint64_t)e] / 255.0f - mean) / 0.3f;

            assert_memory_equal(&taken->input[i][e], &expected, sizeof expected);
        }
    }
    cddp_sampler_destroy(sampler);
    cddpi_data_loader_destroy(loader);
    free(taken);
}

/* torchvision's RandomCrop with padding and RandomHorizontalFlip, written out the slow way. */
static bool is_window(const float *made, uint64_t id, int top, int left, bool flip)
{
    for (int e = 0; e < ELEMENTS; e++) {
        int channel = e / PLANE;
        int x = e % WIDTH;
        int row = e % PLANE / WIDTH + top;
        int column = (flip ? WIDTH - 1 - x : x) + left;
        bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
        int byte = inside
                       ? images[id * ELEMENTS + (uint64_t)(channel * PLANE + row * WIDTH + column)]
                       : 0;
        float expected = ((float)byte / 255.0f - (0.25f + 0.125f * (float)channel)) / 0.3f;

        if (made[e] != expected) {
            return false;
        }
    }
    return true;
}

static void an_augmented_sample_is_a_window_of_the_padded_image(void **state)
{
    struct cddpi_data_loader *loader = make(augmenting_options(0));
    struct taken *taken = malloc(sizeof *taken);
    int tops[5] = {0}, lefts[5] = {0}, flips[2] = {0};

    (void)state;
    for (uint64_t epoch = 0; epoch < 10; epoch++) {
        take_all(loader, epoch, 0, COUNT, 0, 1, true, taken);
        for (int i = 0; i < COUNT; i++) {
            int found = 0;

            for (int window = 0; window < 50; window++) {
                int top = window / 10, left = window / 2 % 5, flip = window % 2;

                if (is_window(taken->input[i], taken->ids[i], top - 2, left - 2, flip)) {
                    found++;
                    tops[top]++;
                    lefts[left]++;
                    flips[flip]++;
                }
            }
            assert_int_equal(found, 1);
        }
    }
    for (int i = 0; i < 5; i++) { /* 214 +- 13 of 1070 */
        assert_in_range(tops[i], 150, 280);
        assert_in_range(lefts[i], 150, 280);
    }
    assert_in_range(flips[0], 450, 620); /* 535 +- 16 */
    cddpi_data_loader_destroy(loader);
    free(taken);
}

static void evaluation_is_not_augmented(void **state)
{
    struct cddpi_data_loader *loader = make(augmenting_options(2));
    struct taken *taken = malloc(sizeof *taken);

    (void)state;
    take_all(loader, 0, 0, 10, 0, 1, false, taken);
    for (int i = 0; i < COUNT; i++) {
        assert_true(is_window(taken->input[i], taken->ids[i], 0, 0, false));
    }
    cddpi_data_loader_destroy(loader);
    free(taken);
}

static void the_number_of_threads_changes_nothing(void **state)
{
    struct taken *alone = malloc(sizeof *alone);
    struct taken *threaded = malloc(sizeof *threaded);
    struct cddpi_data_loader *loader = make(augmenting_options(0));

    (void)state;
    take_all(loader, 2, 0, 8, 0, 1, true, alone);
    cddpi_data_loader_destroy(loader);
    for (int threads = 1; threads <= 3; threads++) {
        for (int prefetch = 0; prefetch <= 7; prefetch += 1 + prefetch) {
            struct cddpi_data_loader_options options = augmenting_options(threads);

            options.prefetch = prefetch;
            loader = make(options);
            take_all(loader, 2, 0, 8, 0, 1, true, threaded);
            assert_memory_equal(threaded, alone, sizeof *alone);
            take_all(loader, 2, 0, 8, 0, 1, true, threaded); /* and once more */
            assert_memory_equal(threaded, alone, sizeof *alone);
            cddpi_data_loader_destroy(loader);
        }
    }
    free(alone);
    free(threaded);
}

/* Batch k of all ranks, side by side, is batch k of one rank, to the bit. */
static void the_ranks_batches_together_are_the_global_batch(void **state)
{
    struct taken *alone = malloc(sizeof *alone);
    struct taken *ranks[7];
    struct cddpi_data_loader *loader = make(augmenting_options(1));

    (void)state;
    take_all(loader, 1, 0, 9, 0, 1, true, alone);
    for (int rank = 0; rank < 7; rank++) {
        ranks[rank] = malloc(sizeof *ranks[rank]);
    }
    for (int world_size = 2; world_size <= 7; world_size++) {
        int at[7] = {0};
        int sample = 0;

        for (int rank = 0; rank < world_size; rank++) {
            take_all(loader, 1, 0, 9, rank, world_size, true, ranks[rank]);
            assert_int_equal(ranks[rank]->batches, alone->batches);
        }
        for (int batch = 0; batch < alone->batches; batch++) {
            for (int rank = 0; rank < world_size; rank++) {
                for (int i = 0; i < ranks[rank]->counts[batch]; i++, sample++, at[rank]++) {
                    assert_int_equal(ranks[rank]->ids[at[rank]], alone->ids[sample]);
                    assert_int_equal(ranks[rank]->label[at[rank]], alone->label[sample]);
                    assert_memory_equal(ranks[rank]->input[at[rank]], alone->input[sample],
                                        sizeof alone->input[0]);
                }
            }
        }
        assert_int_equal(sample, COUNT);
    }
    for (int rank = 0; rank < 7; rank++) {
        free(ranks[rank]);
    }
    cddpi_data_loader_destroy(loader);
    free(alone);
}

static void a_resumed_sequence_goes_on_as_if_it_had_not_stopped(void **state)
{
    struct taken *whole = malloc(sizeof *whole);
    struct taken *rest = malloc(sizeof *rest);
    struct cddpi_data_loader *loader = make(augmenting_options(2));

    (void)state;
    take_all(loader, 6, 0, 10, 0, 1, true, whole);
    for (uint64_t first = 0; first <= COUNT; first++) { /* also in the middle of a batch */
        take_all(loader, 6, first, 13, 0, 1, true, rest);
        assert_int_equal(rest->samples, COUNT - (int)first);
        assert_memory_equal(rest->ids, whole->ids + first,
                            (size_t)rest->samples * sizeof *rest->ids);
        assert_memory_equal(rest->input, whole->input[first],
                            (size_t)rest->samples * sizeof *rest->input);
    }
    cddpi_data_loader_destroy(loader);
    free(whole);
    free(rest);
}

static void a_seed_or_an_epoch_gives_other_augmentations(void **state)
{
    struct taken *taken[3];
    struct cddpi_data_loader_options options = augmenting_options(0);
    int same[3] = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cddpi_data_loader *loader;
        struct cddpi_micro_batch loaded;
        cddp_sampler *sampler = make_order(0); /* the same order, so the same samples */

        options.seed = i == 1 ? 10 : 9;
        loader = make(options);
        taken[i] = calloc(1, sizeof *taken[i]);
        assert_int_equal(
            cddpi_data_loader_start(loader, sampler, i == 2, 0, COUNT, COUNT, 0, 1, true), CDDP_OK);
        assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
        append_batch(taken[i], &loaded);
        cddpi_data_loader_destroy(loader);
        cddp_sampler_destroy(sampler);
    }
    for (int i = 1; i < 3; i++) {
        for (int sample = 0; sample < COUNT; sample++) {
            same[i] += memcmp(taken[i]->input[sample], taken[0]->input[sample],
                              sizeof taken[0]->input[0]) == 0;
        }
        assert_true(same[i] < 15); /* 2 +- 1.5: 1 of 50 windows is the same by chance */
    }
    for (int i = 0; i < 3; i++) {
        free(taken[i]);
    }
}

static void a_batch_smaller_than_the_ranks_leaves_some_empty(void **state)
{
    struct cddpi_data_loader *loader = make(plain_options(1));
    struct taken *taken = malloc(sizeof *taken);

    (void)state;
    take_all(loader, 0, 0, 3, 4, 5, false, taken);
    assert_int_equal(taken->batches, 36);
    assert_int_equal(taken->samples, 0);
    take_all(loader, 0, 0, 3, 2, 5, false, taken);
    assert_int_equal(taken->samples, 35);
    take_all(loader, 0, COUNT, 3, 0, 1, false, taken);
    assert_int_equal(taken->batches, 0);
    cddpi_data_loader_destroy(loader);
    free(taken);
}

static void a_batch_stays_as_it_is_until_the_next_one_is_asked_for(void **state)
{
    struct cddpi_data_loader_options options = plain_options(3);
    struct cddpi_data_loader *loader;
    cddp_sampler *sampler = make_order(0);
    struct cddpi_micro_batch loaded;

    (void)state;
    options.prefetch = 1;
    loader = make(options);
    assert_int_equal(cddpi_data_loader_start(loader, sampler, 0, 0, COUNT, 4, 0, 1, false),
                     CDDP_OK);
    for (int batch = 0; batch < 20; batch++) {
        float kept[4 * ELEMENTS];

        assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
        memcpy(kept, loaded.input, sizeof kept);
        support_sleep_ms(1); /* threads that were wrong would write now */
        assert_memory_equal(loaded.input, kept, sizeof kept);
        assert_int_equal(loaded.sample_ids[0], cddp_sampler_at(sampler, (uint64_t)batch * 4));
    }
    cddpi_data_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
}

static void it_can_be_cancelled_restarted_and_destroyed_in_any_state(void **state)
{
    cddp_sampler *sampler = make_order(0);
    struct cddpi_micro_batch loaded;

    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        for (int taken = 0; taken <= 12; taken++) {
            struct cddpi_data_loader *loader = make(augmenting_options(threads));

            assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_ERR_STATE);
            for (int round = 0; round < 3; round++) {
                assert_int_equal(
                    cddpi_data_loader_start(loader, sampler, 0, 0, COUNT, 10, 0, 1, true), CDDP_OK);
                for (int i = 0; i < taken; i++) {
                    assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
                    assert_int_equal(loaded.input != NULL, i < 11);
                    assert_true(i >= 11 ||
                                loaded.sample_ids[0] == cddp_sampler_at(sampler, (uint64_t)i * 10));
                }
                if (round == taken % 3) {
                    cddpi_data_loader_cancel(loader);
                    cddpi_data_loader_cancel(loader);
                    assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_ERR_STATE);
                }
            }
            cddpi_data_loader_destroy(loader);
        }
        cddpi_data_loader_destroy(make(plain_options(threads)));
    }
    cddpi_data_loader_destroy(NULL);
    cddp_sampler_destroy(sampler);
}

static void wrong_options_are_refused(void **state)
{
    struct cddpi_data_loader *loader = NULL;
    struct cddpi_data_loader_options options[9];

    (void)state;
    for (int i = 0; i < 9; i++) {
        options[i] = plain_options(0);
    }
    options[0].dataset = NULL;
    options[1].max_count = 0;
    options[2].threads = -1;
    options[3].threads = 100000;
    options[4].prefetch = -1;
    options[5].transform.std[1] = -1;
    options[6].transform.mean[0] = NAN;
    options[7].transform.crop_padding = WIDTH + 1;
    options[8].transform.crop_padding = -1;
    for (int i = 0; i < 9; i++) {
        assert_true(failure_is(cddpi_data_loader_create(&options[i], &loader), CDDP_ERR_ARGUMENT,
                               -1, -1, ""));
        assert_memory_equal(cddp_last_error(), "loader: ", 8);
    }
    assert_null(loader);
}

static void a_sequence_that_does_not_fit_is_refused(void **state)
{
    cddp_sampler *sampler = make_order(0);
    cddp_sampler *longer = NULL;
    struct cddpi_data_loader_options options = plain_options(1);
    struct cddpi_data_loader *loader;

    (void)state;
    options.max_count = 10;
    loader = make(options);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, COUNT + 1, 5, &longer), CDDP_OK);
#define REFUSED(order, first, end, batch, rank, size)                                              \
    assert_int_equal(                                                                              \
        cddpi_data_loader_start(loader, order, 0, first, end, batch, rank, size, false),           \
        CDDP_ERR_ARGUMENT)
    REFUSED(sampler, 0, COUNT + 1, 10, 0, 1);
    REFUSED(sampler, 3, 2, 10, 0, 1);
    REFUSED(sampler, 0, COUNT, 0, 0, 1);
    REFUSED(sampler, 0, COUNT, 10, 2, 2);
    REFUSED(longer, 0, COUNT, 10, 0, 1);
    cddpi_data_loader_destroy(loader);
    cddp_sampler_destroy(longer);
    cddp_sampler_destroy(sampler);
}

/* Take all pieces of @p rank's batches of 50 and compare with @p whole, the same without pieces. */
static void take_pieces(int threads, int max_count, int rank, int world_size, int expected_pieces,
                        const struct taken *whole)
{
    struct cddpi_data_loader_options options = augmenting_options(threads);
    cddp_sampler *sampler = make_order(4);
    struct taken *taken = calloc(1, sizeof *taken);
    struct cddpi_data_loader *loader;
    struct cddpi_micro_batch loaded;
    int batches = 0;
    int of_batch = 0; /* samples */

    options.max_count = max_count;
    loader = make(options);
    assert_int_equal(
        cddpi_data_loader_start(loader, sampler, 4, 0, COUNT, 50, rank, world_size, true), CDDP_OK);
    for (;;) {
        assert_int_equal(cddpi_data_loader_next(loader, &loaded), CDDP_OK);
        if (loaded.input == NULL) {
            break;
        }
        assert_true(loaded.count <= max_count);
        assert_int_equal(loaded.share, whole->counts[batches]);
        append_batch(taken, &loaded);
        of_batch += loaded.count;
        if (loaded.last) {
            assert_int_equal(of_batch, whole->counts[batches]);
            of_batch = 0;
            batches++;
        }
    }
    assert_int_equal(batches, whole->batches);
    assert_int_equal(taken->batches, expected_pieces);
    assert_int_equal(taken->samples, whole->samples);
    assert_memory_equal(taken->ids, whole->ids, sizeof whole->ids);
    assert_memory_equal(taken->label, whole->label, sizeof whole->label);
    assert_memory_equal(taken->input, whole->input, sizeof whole->input);
    cddpi_data_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
    free(taken);
}

static void a_large_share_comes_in_pieces_of_the_same_samples_as_many_on_every_rank(void **state)
{
    static const struct {
        int world_size, max_count, pieces; /* of batches of 50, 50 and 7 samples */
    } cases[] = {{1, 50, 3}, {1, 49, 5}, {1, 10, 11}, {2, 10, 7},
                 {3, 6, 7},  {4, 1, 28}, {8, 3, 7},   {3, 16, 5}};
    struct taken *whole = malloc(sizeof *whole);

    (void)state;
    assert_int_equal(COUNT, 107);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int rank = 0; rank < cases[i].world_size; rank++) {
            struct cddpi_data_loader *loader = make(augmenting_options(0));

            take_all(loader, 4, 0, 50, rank, cases[i].world_size, true, whole);
            cddpi_data_loader_destroy(loader);
            for (int threads = 0; threads <= 2; threads++) {
                take_pieces(threads, cases[i].max_count, rank, cases[i].world_size, cases[i].pieces,
                            whole);
            }
        }
    }
    free(whole);
}

static void every_lack_of_memory_is_reported(void **state)
{
    unsigned nth = 1;

    (void)state;
    for (;; nth++) {
        struct cddpi_data_loader_options options = plain_options(2);
        struct cddpi_data_loader *loader = NULL;
        cddp_status status;

        cddpi_alloc_fail_nth(nth);
        status = cddpi_data_loader_create(&options, &loader);
        cddpi_alloc_fail_nth(0);
        if (status == CDDP_OK) {
            cddpi_data_loader_destroy(loader);
            break;
        }
        assert_int_equal(status, CDDP_ERR_NO_MEMORY);
        assert_null(loader);
    }
    assert_true(nth > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_holds_the_normalised_samples_in_the_samplers_order),
        cmocka_unit_test(an_augmented_sample_is_a_window_of_the_padded_image),
        cmocka_unit_test(evaluation_is_not_augmented),
        cmocka_unit_test(the_number_of_threads_changes_nothing),
        cmocka_unit_test(the_ranks_batches_together_are_the_global_batch),
        cmocka_unit_test(a_resumed_sequence_goes_on_as_if_it_had_not_stopped),
        cmocka_unit_test(a_seed_or_an_epoch_gives_other_augmentations),
        cmocka_unit_test(a_batch_smaller_than_the_ranks_leaves_some_empty),
        cmocka_unit_test(a_batch_stays_as_it_is_until_the_next_one_is_asked_for),
        cmocka_unit_test(it_can_be_cancelled_restarted_and_destroyed_in_any_state),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(a_sequence_that_does_not_fit_is_refused),
        cmocka_unit_test(a_large_share_comes_in_pieces_of_the_same_samples_as_many_on_every_rank),
        cmocka_unit_test(every_lack_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, make_images, NULL);
}
