/* test_loader_callback.c - batches that threads make by calling a caller's function: each rank gets
 * its share of each batch, in the sampler's order, for any number of threads. */
#include "base/clock.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <cddp/cddp.h>
#include <stdatomic.h>

enum { SAMPLES = 103, WORDS = 5 };

/* The data set: word k of sample i is i * 1000 + k; one may fail. */
struct dataset {
    _Atomic uint64_t calls;
    _Atomic uint64_t fails; /* sample; UINT64_MAX: none; threads still read it after an error */
    bool lingers;           /* early samples take longer than late ones */
    long takes_ms;          /* each sample */
    int number;             /* what the one that fails returns; 0: an error of cddp */
};

static cddp_status load(void *state, uint64_t index, void *out)
{
    struct dataset *dataset = state;
    uint32_t *words = out;

    atomic_fetch_add(&dataset->calls, 1);
    if (dataset->lingers && index % 7 == 0) {
        support_sleep_ms(2);
    }
    if (dataset->takes_ms > 0) {
        support_sleep_ms(dataset->takes_ms);
    }
    for (uint32_t k = 0; k < WORDS; k++) {
        words[k] = (uint32_t)index * 1000 + k;
    }
    if (index == dataset->fails && dataset->number != 0) {
        return (cddp_status)dataset->number;
    }
    return index == dataset->fails ? cddp_fail(CDDP_ERR_IO, "it is torn") : CDDP_OK;
}

struct scene {
    uint64_t batch_size;
    cddp_order order;
    int threads;
    int ahead;
    bool drop_last;
    bool lingers;
};

static cddp_loader_options options_of(const struct scene *scene, cddp_group *group,
                                      struct dataset *dataset)
{
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;

    dataset->lingers = scene->lingers;
    dataset->fails = UINT64_MAX;
    options.group = group;
    options.samples = SAMPLES;
    options.sample_bytes = WORDS * sizeof(uint32_t);
    options.batch_size = scene->batch_size;
    options.load = load;
    options.state = dataset;
    options.order = scene->order;
    options.seed = 11;
    options.drop_last = scene->drop_last;
    options.threads = scene->threads;
    options.ahead = scene->ahead;
    return options;
}

static int check_batch(const cddp_batch *batch, const struct scene *scene, cddp_sampler *sampler,
                       int rank, int world_size)
{
    uint64_t first = batch->number * scene->batch_size;
    uint64_t total = SAMPLES - first < scene->batch_size ? SAMPLES - first : scene->batch_size;
    cddp_share share = cddp_share_of(first, total, rank, world_size);
    const uint32_t *words = batch->data;

    CHECK(!batch->end && batch->total == total && batch->count == share.count);
    CHECK((uintptr_t)words % 64 == 0);
    for (uint64_t i = 0; i < share.count; i++) {
        uint64_t index = cddp_sampler_at(sampler, share.first + i);

        CHECK(batch->indices[i] == index);
        for (uint32_t k = 0; k < WORDS; k++) {
            CHECK(words[i * WORDS + k] == index * 1000 + k);
        }
    }
    return 0;
}

static int epochs_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_group *group = join_group(meeting, rank, world_size);
    struct dataset dataset = {0};
    cddp_loader_options options = options_of(scene, group, &dataset);
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_sampler *sampler;
    cddp_loader *loader;
    uint64_t batches = scene->drop_last ? SAMPLES / scene->batch_size
                                        : (SAMPLES + scene->batch_size - 1) / scene->batch_size;

    CHECK(group != NULL);
    CHECK(cddp_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddp_loader_batch_count(loader) == batches);
    CHECK(cddp_sampler_create(scene->order, SAMPLES, 11, &sampler) == CDDP_OK);
    CHECK(cddp_loader_next(loader, &batch) == CDDP_ERR_STATE);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint64_t first = epoch == 1 && batches > 3 ? 3 : 0; /* as a resumed run does */

        CHECK(cddp_loader_begin(loader, epoch, first) == CDDP_OK);
        CHECK(cddp_sampler_set_epoch(sampler, epoch) == CDDP_OK);
        for (uint64_t b = first; b < batches && !(epoch == 1 && b == 5); b++) {
            CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.number == b);
            CHECK(check_batch(&batch, scene, sampler, rank, world_size) == 0);
        }
        if (epoch != 1 || batches <= 5) { /* else the rest of it is dropped */
            CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.end && batch.count == 0);
            CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.end);
        }
    }
    CHECK(cddp_loader_begin(loader, 7, 0) == CDDP_OK);
    cddp_group_destroy(group); /* the loader keeps it */
    cddp_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
    return 0;
}

static void each_rank_gets_its_share_in_the_samplers_order(void **state)
{
    static const struct scene scenes[] = {
        {.batch_size = 10, .order = CDDP_ORDER_RANDOM},
        {.batch_size = 10, .order = CDDP_ORDER_TORCH, .drop_last = true, .threads = 1},
        {.batch_size = 3, .order = CDDP_ORDER_RANDOM, .threads = 5, .ahead = 7, .lingers = true},
        {.batch_size = 1, .order = CDDP_ORDER_SEQUENTIAL, .threads = 3, .ahead = 1},
        {.batch_size = 1000, .order = CDDP_ORDER_RANDOM, .threads = 4},
    };

    for (int w = 0; w < WORLD_SIZES; w++) {
        for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
            assert_int_equal(meet(*state, world_sizes[w], epochs_rank, &scenes[s], NULL), 0);
        }
    }
}

/* Micro-batches divide the same positions, whatever the number of ranks. */
static int micro_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const uint64_t *m = meeting->argument; /* how many micro-batches */
    struct scene scene = {.batch_size = 10, .order = CDDP_ORDER_RANDOM, .ahead = 3};
    cddp_share own = cddp_share_of(0, *m, rank, world_size);
    cddp_group *group = join_group(meeting, rank, world_size);
    struct dataset dataset = {0};
    cddp_loader_options options = options_of(&scene, group, &dataset);
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_sampler *sampler;
    cddp_loader *loader;
    uint64_t sum = 0;

    options.micro_batches = *m;
    CHECK(group != NULL && cddp_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddp_sampler_create(scene.order, SAMPLES, 11, &sampler) == CDDP_OK);
    CHECK(cddp_loader_batch_count(loader) == 11);
    CHECK(cddp_loader_begin(loader, 0, 2) == CDDP_OK);
    for (uint64_t b = 2; b < 11; b++) {
        uint64_t total = b < 10 ? 10 : 3;
        uint64_t samples = 0;

        for (uint64_t i = 0; i < own.count || i == 0; i++) {
            cddp_share share = {0, 0};

            if (own.count > 0) {
                share = cddp_share_of(b * 10, total, (int)(own.first + i), (int)*m);
            }
            CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && !batch.end);
            CHECK(batch.number == b && batch.total == total && batch.count == share.count);
            CHECK(batch.micro_batch == (own.count > 0 ? own.first + i : *m));
            for (uint64_t s = 0; s < share.count; s++) {
                uint64_t index = cddp_sampler_at(sampler, share.first + s);

                CHECK(batch.indices[s] == index);
                CHECK(((const uint32_t *)batch.data)[s * WORDS] == index * 1000);
            }
            samples += batch.count;
        }
        CHECK(batch.samples == samples);
        sum += samples;
    }
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.end);
    CHECK(cddp_all_reduce(group, &sum, &sum, 1, CDDP_I64, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(sum == SAMPLES - 20);
    cddp_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
    cddp_group_destroy(group);
    return 0;
}

static void micro_batches_divide_the_same_positions_on_any_number_of_ranks(void **state)
{
    static const uint64_t numbers[] = {1, 3, 8, 16};

    for (int w = 0; w < WORLD_SIZES; w++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            assert_int_equal(meet(*state, world_sizes[w], micro_rank, &numbers[i], NULL), 0);
        }
    }
}

static void a_batch_says_how_long_it_was_waited_for(void **state)
{
    struct scene scene = {.batch_size = 1, .threads = 1};
    struct dataset dataset = {.takes_ms = 20};
    cddp_loader_options options = options_of(&scene, NULL, &dataset);
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_loader *loader;
    uint64_t taken_ns = 0;
    uint64_t waited_ns = 0;

    (void)state;
    assert_int_equal(cddp_loader_create(&options, &loader), CDDP_OK);
    assert_int_equal(cddp_loader_begin(loader, 0, 0), CDDP_OK);
    for (int i = 0; i < 5; i++) {
        int64_t begin_ns = cddpi_now_ns();

        assert_int_equal(cddp_loader_next(loader, &batch), CDDP_OK);
        taken_ns += (uint64_t)(cddpi_now_ns() - begin_ns);
        waited_ns += batch.wait_ns;
    }
    assert_in_range(waited_ns, taken_ns / 2, taken_ns);
    cddp_loader_destroy(loader);
    options.micro_batches = (uint64_t)INT32_MAX + 1;
    assert_int_equal(cddp_loader_create(&options, &loader), CDDP_ERR_ARGUMENT);
}

/* Batches ahead are made before they are asked for, and no more than those. */
static int ahead_rank(int rank, int world_size, void *argument)
{
    struct scene scene = {.batch_size = 10, .threads = 2, .ahead = 3};
    struct dataset dataset = {0};
    cddp_loader_options options = options_of(&scene, NULL, &dataset);
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_loader *loader;

    (void)rank;
    (void)world_size;
    (void)argument;
    CHECK(cddp_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddp_loader_begin(loader, 0, 0) == CDDP_OK);
    while (atomic_load(&dataset.calls) < 40) { /* ahead, and the one to be taken first */
        support_sleep_ms(1);
    }
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK);
    CHECK(atomic_load(&dataset.calls) == 40); /* its slot is in use */
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK);
    while (atomic_load(&dataset.calls) < 50) {
        support_sleep_ms(1);
    }
    cddp_loader_destroy(loader);
    CHECK(atomic_load(&dataset.calls) == 50);
    return 0;
}

static void so_many_batches_are_made_ahead_and_no_more(void **state)
{
    assert_int_equal(meet(*state, 1, ahead_rank, NULL, NULL), 0);
}

/* A sample that fails is an error of its own batch, with its number, and the next epoch goes on. */
static int failing_rank(int rank, int world_size, void *argument)
{
    struct scene scene = {.batch_size = 10, .threads = 3, .ahead = 4};
    struct dataset dataset = {0};
    cddp_loader_options options = options_of(&scene, NULL, &dataset);
    cddp_loader_options bad = options;
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_loader *loader;

    (void)rank;
    (void)world_size;
    (void)argument;
    dataset.fails = 25;
    CHECK(cddp_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddp_loader_begin(loader, 0, 0) == CDDP_OK);
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK);
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK);
    CHECK(failure_is(cddp_loader_next(loader, &batch), CDDP_ERR_IO, -1, -1, ""));
    CHECK(last_error_has("sample 25, position 25 of epoch 0: it is torn"));
    CHECK(cddp_loader_next(loader, &batch) == CDDP_ERR_STATE);
    dataset.fails = UINT64_MAX;
    CHECK(cddp_loader_begin(loader, 1, 2) == CDDP_OK);
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.indices[5] == 25);
    CHECK(cddp_loader_begin(loader, 1, 12) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_loader_next(loader, NULL) == CDDP_ERR_ARGUMENT);
    cddp_loader_destroy(loader);
    CHECK(cddp_loader_next(loader, &batch) == CDDP_ERR_CLOSED);
    CHECK(cddp_loader_next(NULL, &batch) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_loader_batch_count(NULL) == 0);
    cddp_loader_destroy(NULL);
    bad.load = NULL;
    CHECK(cddp_loader_create(&bad, &loader) == CDDP_ERR_ARGUMENT);
    bad = options;
    bad.batch_size = 0;
    CHECK(cddp_loader_create(&bad, &loader) == CDDP_ERR_ARGUMENT);
    bad = options;
    bad.threads = -1;
    CHECK(cddp_loader_create(&bad, &loader) == CDDP_ERR_ARGUMENT);
    bad = options;
    bad.struct_size = 0;
    CHECK(cddp_loader_create(&bad, &loader) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_loader_create(&options, NULL) == CDDP_ERR_ARGUMENT);
    return 0;
}

static void a_sample_that_fails_is_an_error_of_its_batch(void **state)
{
    assert_int_equal(meet(*state, 1, failing_rank, NULL, NULL), 0);
}

static void a_number_that_is_no_error_fails_too(void **state)
{
    const int numbers[] = {1, 7, -1000};

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct scene scene = {.batch_size = 10, .threads = 1, .ahead = 1};
        struct dataset dataset = {.number = numbers[i]};
        cddp_loader_options options = options_of(&scene, NULL, &dataset);
        cddp_batch batch = CDDP_BATCH_INIT;
        cddp_loader *loader;

        dataset.fails = 5;
        assert_int_equal(cddp_loader_create(&options, &loader), CDDP_OK);
        assert_int_equal(cddp_loader_begin(loader, 0, 0), CDDP_OK);
        assert_true(failure_is(cddp_loader_next(loader, &batch), CDDP_ERR_ARGUMENT, -1, -1, ""));
        assert_true(last_error_has("sample 5, position 5 of epoch 0: "));
        cddp_loader_destroy(loader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(each_rank_gets_its_share_in_the_samplers_order),
        RANKS_TEST(micro_batches_divide_the_same_positions_on_any_number_of_ranks),
        cmocka_unit_test(a_batch_says_how_long_it_was_waited_for),
        RANKS_TEST(so_many_batches_are_made_ahead_and_no_more),
        RANKS_TEST(a_sample_that_fails_is_an_error_of_its_batch),
        cmocka_unit_test(a_number_that_is_no_error_fails_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
