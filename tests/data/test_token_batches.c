/* test_token_batches.c - batches of tokens: each sequence once per epoch, the same for any number
 * of threads and ranks, and no token outside the vocabulary. */
#include "base/mapped_file.h"
#include "data/data_loader.h"
#include "support/failure.h"
#include "support/token_folder.h"

enum { CONTEXT = 8 };

static struct cddpi_data_loader *make_loader(const struct cddpi_dataset *dataset, int threads)
{
    struct cddpi_data_loader_options options = {.dataset = dataset, .max_count = 64};
    struct cddpi_data_loader *loader = NULL;

    options.threads = threads;
    options.prefetch = 3;
    assert_int_equal(cddpi_data_loader_create(&options, &loader), CDDP_OK);
    return loader;
}

enum { SEQUENCES = 103, BATCH = 16 };

/* All batches of an epoch, the ranks' shares of each one after the other. */
struct taken {
    uint64_t count;
    uint64_t ids[SEQUENCES];
    int32_t tokens[SEQUENCES][CONTEXT], labels[SEQUENCES][CONTEXT];
};

static void take_batch(struct cddpi_data_loader *loader, struct taken *taken)
{
    struct cddpi_micro_batch batch;

    assert_int_equal(cddpi_data_loader_next(loader, &batch), CDDP_OK);
    assert_non_null(batch.label);
    assert_null(batch.input);
    assert_int_equal((uintptr_t)batch.tokens % 64, 0);
    assert_true(taken->count + (uint64_t)batch.count <= SEQUENCES);
    for (int i = 0; i < batch.count; i++, taken->count++) {
        taken->ids[taken->count] = batch.sample_ids[i];
        memcpy(taken->tokens[taken->count], batch.tokens + i * CONTEXT, sizeof taken->tokens[0]);
        memcpy(taken->labels[taken->count], batch.label + i * CONTEXT, sizeof taken->labels[0]);
    }
}

static void take_epoch(const struct cddpi_dataset *dataset, int threads, int world_size,
                       uint64_t first, struct taken *out)
{
    struct cddpi_data_loader *loaders[8];
    struct cddpi_micro_batch batch;
    cddp_sampler *sampler = NULL;

    memset(out, 0, sizeof *out);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, SEQUENCES, 3, &sampler), CDDP_OK);
    assert_int_equal(cddp_sampler_set_epoch(sampler, 2), CDDP_OK);
    for (int rank = 0; rank < world_size; rank++) {
        loaders[rank] = make_loader(dataset, threads);
        assert_int_equal(cddpi_data_loader_start(loaders[rank], sampler, 2, first, SEQUENCES, BATCH,
                                                 rank, world_size, true),
                         CDDP_OK);
    }
    for (uint64_t at = first; at < SEQUENCES; at += BATCH) {
        for (int rank = 0; rank < world_size; rank++) {
            take_batch(loaders[rank], out);
        }
    }
    for (int rank = 0; rank < world_size; rank++) {
        assert_int_equal(cddpi_data_loader_next(loaders[rank], &batch), CDDP_OK);
        assert_null(batch.label);
        assert_null(batch.tokens);
        cddpi_data_loader_destroy(loaders[rank]);
    }
    cddp_sampler_destroy(sampler);
}

static void open_sequences(struct cddpi_dataset *out)
{
    support_write_shard(in_folder("a.bin"), 1, 50 * CONTEXT + 4, 2);
    support_write_shard(in_folder("b.bin"), 2, (SEQUENCES - 50) * CONTEXT + 1, 2);
    assert_int_equal(open_tokens("*.bin", CONTEXT, out), CDDP_OK);
    assert_int_equal(out->count, SEQUENCES);
}

static void an_epoch_has_each_token_sequence_once_in_the_samplers_order(void **state)
{
    struct cddpi_dataset dataset = {0};
    struct taken *taken = malloc(sizeof *taken);
    cddp_sampler *sampler = NULL;
    bool seen[SEQUENCES] = {false};

    (void)state;
    open_sequences(&dataset);
    take_epoch(&dataset, 1, 1, 0, taken);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, SEQUENCES, 3, &sampler), CDDP_OK);
    assert_int_equal(cddp_sampler_set_epoch(sampler, 2), CDDP_OK);
    assert_int_equal(taken->count, SEQUENCES);
    for (uint64_t i = 0; i < SEQUENCES; i++) {
        uint64_t id = taken->ids[i];
        uint32_t seed = id < 50 ? 1 : 2;
        uint64_t first = (id < 50 ? id : id - 50) * CONTEXT;

        assert_int_equal(id, cddp_sampler_at(sampler, i));
        assert_false(seen[id]);
        seen[id] = true;
        for (uint64_t k = 0; k < CONTEXT; k++) {
            assert_int_equal(taken->tokens[i][k], support_token(seed, first + k));
            assert_int_equal(taken->labels[i][k], support_token(seed, first + k + 1));
        }
    }
    cddp_sampler_destroy(sampler);
    cddpi_dataset_close(&dataset);
    free(taken);
}

static void batches_do_not_depend_on_threads_or_ranks(void **state)
{
    struct cddpi_dataset dataset = {0};
    struct taken *first = malloc(sizeof *first);
    struct taken *other = malloc(sizeof *other);

    (void)state;
    open_sequences(&dataset);
    for (uint64_t begin = 0; begin < 40; begin += 32) { /* 32: as after a resume */
        take_epoch(&dataset, 0, 1, begin, first);
        assert_int_equal(first->count, SEQUENCES - begin);
        for (int threads = 0; threads < 4; threads++) {
            for (int ranks = 1; ranks <= 5; ranks++) {
                take_epoch(&dataset, threads, ranks, begin, other);
                assert_memory_equal(first, other, sizeof *first);
            }
        }
    }
    cddpi_dataset_close(&dataset);
    free(first);
    free(other);
}

static void a_token_outside_the_vocabulary_stops_the_batch_that_has_it(void **state)
{
    size_t bytes = 0;
    unsigned char *data = support_shard(1, 40 * CONTEXT + 1, 2, &bytes);
    struct cddpi_dataset dataset = {0};
    cddp_sampler *sampler = NULL;
    const uint16_t bad[] = {50257, 65535};
    char expected[4300];

    (void)state;
    snprintf(expected, sizeof expected,
             "%s: token 205 is 50257, but the vocabulary has only 50257 tokens",
             in_folder("a.bin"));
    memcpy(data + SHARD_HEADER_BYTES + 2 * 205, bad, sizeof bad); /* in sequence 25 */
    support_write_file(in_folder("a.bin"), data, bytes);
    free(data);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_SEQUENTIAL, 40, 0, &sampler), CDDP_OK);
    assert_int_equal(open_tokens("a.bin", CONTEXT, &dataset), CDDP_OK);
    for (int threads = 0; threads < 3; threads++) {
        struct cddpi_data_loader *loader = make_loader(&dataset, threads);
        struct cddpi_micro_batch batch;

        assert_int_equal(cddpi_data_loader_start(loader, sampler, 0, 0, 40, 10, 0, 1, true),
                         CDDP_OK);
        assert_int_equal(cddpi_data_loader_next(loader, &batch), CDDP_OK);
        assert_int_equal(cddpi_data_loader_next(loader, &batch), CDDP_OK);
        for (int again = 0; again < 2; again++) {
            assert_true(
                failure_is(cddpi_data_loader_next(loader, &batch), CDDP_ERR_FORMAT, -1, -1, ""));
            assert_string_equal(cddp_last_error(), expected);
        }
        cddpi_data_loader_cancel(loader); /* what comes later does not know of it */
        assert_int_equal(cddpi_data_loader_start(loader, sampler, 0, 30, 40, 10, 0, 1, true),
                         CDDP_OK);
        assert_int_equal(cddpi_data_loader_next(loader, &batch), CDDP_OK);
        cddpi_data_loader_destroy(loader);
    }
    cddpi_dataset_close(&dataset);
    cddp_sampler_destroy(sampler);
}

static void a_file_that_is_cut_off_while_in_use_stops_the_next_batch(void **state)
{
    const char *path = in_folder("b.bin");

    (void)state;
    cddpi_mapped_files_catch();
    for (int threads = 0; threads < 3; threads++) {
        struct cddpi_dataset dataset = {0};
        struct cddpi_micro_batch batch;
        struct cddpi_data_loader *loader;
        cddp_sampler *sampler = NULL;
        cddp_status status = CDDP_OK;
        uint64_t batches = 0;

        support_write_shard(path, 2, SEQUENCES * 1000 * CONTEXT + 1, 2);
        assert_int_equal(open_tokens("b.bin", CONTEXT, &dataset), CDDP_OK);
        loader = make_loader(&dataset, threads);
        assert_int_equal(cddp_sampler_create(CDDP_ORDER_SEQUENTIAL, dataset.count, 0, &sampler),
                         CDDP_OK);
        assert_int_equal(
            cddpi_data_loader_start(loader, sampler, 0, 0, dataset.count, BATCH, 0, 1, true),
            CDDP_OK);
        assert_int_equal(cddpi_data_loader_next(loader, &batch), CDDP_OK);
        assert_int_equal(truncate(path, SHARD_HEADER_BYTES), 0);
        while (status == CDDP_OK && batches++ < dataset.count) {
            status = cddpi_data_loader_next(loader, &batch);
        }
        assert_true(failure_is(status, CDDP_ERR_IO, -1, -1, ""));
        assert_true(last_error_has("b.bin: "));
        cddpi_data_loader_cancel(loader);
        assert_int_equal(cddpi_data_loader_start(loader, sampler, 0, 0, 1, BATCH, 0, 1, true),
                         CDDP_ERR_IO);
        cddpi_data_loader_destroy(loader);
        cddp_sampler_destroy(sampler);
        cddpi_dataset_close(&dataset);
    }
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(an_epoch_has_each_token_sequence_once_in_the_samplers_order),
        CASE(batches_do_not_depend_on_threads_or_ranks),
        CASE(a_token_outside_the_vocabulary_stops_the_batch_that_has_it),
        CASE(a_file_that_is_cut_off_while_in_use_stops_the_next_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
