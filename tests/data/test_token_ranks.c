/* test_token_ranks.c - ranks, as processes, that open tokens or a text together: one rank makes the
 * tokens for its whole machine, all ranks get the same outcome, and the batches of all ranks
 * together are the same for any number of ranks. */
#include "data/data_loader.h"
#include "support/data_ranks.h"
#include "support/gzip.h"
#include "support/tokens.h"

#include <sys/mman.h>

enum { CONTEXT = 16, TEXT_BYTES = 3000, MESSAGE_BYTES = 1024, MOST_RANKS = 8 };
enum { SEQUENCES = 75, BATCH = 10 };

/* What the ranks of one case do, and what they found; in memory that all of them share. */
struct job {
    char folder[4096];
    enum machines machines;
    bool is_text;
    char names[MOST_RANKS][64]; /* what the rank is asked to open */
    cddp_status status[MOST_RANKS];
    char message[MOST_RANKS][MESSAGE_BYTES];
    int32_t tokens[SEQUENCES][CONTEXT], labels[SEQUENCES][CONTEXT]; /* by position in the epoch */
    uint64_t ids[SEQUENCES];
};

static char letter(int i)
{
    return (char)('a' + (i * 7 + i / 251) % 26);
}

/* Files "text.gz", "text", "short.gz" (cut off), "longer.gz", and shards "s0", "s1", "t0", "t1". */
static int make_job(void **state)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    char *folder = support_mkdtemp();
    char text[TEXT_BYTES + 1], path[4300];
    unsigned char packed[2 * TEXT_BYTES];
    size_t bytes;

    assert_true(job != MAP_FAILED);
    snprintf(job->folder, sizeof job->folder, "%s", folder);
    for (int i = 0; i < TEXT_BYTES + 1; i++) {
        text[i] = letter(i);
    }
    for (int longer = 0; longer < 2; longer++) {
        bytes = support_gzip(text, TEXT_BYTES - 1 + 2 * (size_t)longer, packed, sizeof packed);
        snprintf(path, sizeof path, "%s/%s", folder, longer ? "longer.gz" : "text.gz");
        support_write_file(path, packed, bytes);
    }
    snprintf(path, sizeof path, "%s/short.gz", folder);
    support_write_file(path, packed, bytes - 1);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%c%d", folder, i < 2 ? 's' : 't', i % 2);
        support_write_shard(path, (uint32_t)i, (i == 1 || i == 2 ? 50 : 25) * CONTEXT + 1, 2);
    }
    free(folder);
    *state = job;
    return 0;
}

static int remove_job(void **state)
{
    struct job *job = *state;

    support_rmdir(strdup(job->folder));
    munmap(job, sizeof *job);
    return 0;
}

static void ask_for(struct job *job, bool is_text, const char *name)
{
    job->is_text = is_text;
    support_new_store(job->folder);
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        snprintf(job->names[rank], sizeof job->names[rank], "%s", name);
    }
}

static cddp_status open_data(const struct job *job, int rank, cddp_group *group,
                             struct cddpi_dataset *out, struct cddpi_dataset *out_test)
{
    char path[4300];
    char *patterns[] = {path};
    struct cddpi_text_options options = {
        .patterns = patterns, .pattern_count = 1, .context = CONTEXT, .test_fraction = 0.2};

    snprintf(path, sizeof path, "%s/%s", job->folder, job->names[rank]);
    return job->is_text ? cddpi_dataset_open_text(&options, group, out, out_test)
                        : cddpi_dataset_open_tokens(patterns, 1, CONTEXT, 0, group, out);
}

static int open_and_compare(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};
    cddp_group *group = NULL;
    const void *tokens;
    int descriptors;

    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    descriptors = support_descriptors();
    for (int round = 0; round < 2; round++) {
        CHECK(open_data(job, rank, group, &train, &test) == CDDP_OK);
        CHECK(support_descriptors() == descriptors);
        CHECK(train.token_count == 2400 && test.token_count == 599);
        tokens = test.shards[0].tokens;
        for (int i = 0; i < 599; i++) {
            CHECK(((const uint16_t *)tokens)[i] == letter(2400 + i));
        }
        CHECK(support_is_mapped_from(tokens, "memfd:cddp-data") ==
              (world_size > 1 && job->machines == TOGETHER));
        cddpi_dataset_close(&train);
        CHECK(((const uint16_t *)tokens)[598] == letter(2998));
        cddpi_dataset_close(&test);
        CHECK(!support_is_mapped_from(tokens, "memfd:cddp-data"));
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void the_ranks_of_a_machine_share_the_tokens_that_one_of_them_made(void **state)
{
    const int sizes[] = {1, 2, 3, 5};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ask_for(*state, true, "text.gz");
        assert_int_equal(run_ranks(sizes[i], open_and_compare, *state), 0);
    }
}

static void a_rank_alone_on_its_machine_makes_its_own(void **state)
{
    struct job *job = *state;

    ask_for(job, true, "text.gz");
    job->machines = EACH_ALONE;
    assert_int_equal(run_ranks(3, open_and_compare, job), 0);
}

/* As between containers. Here rank 0 makes no memory file, because it knows of no neighbour. */
static void ranks_that_cannot_map_the_tokens_make_their_own(void **state)
{
    struct job *job = *state;

    ask_for(job, true, "text.gz");
    job->machines = FIRST_ALONE;
    assert_int_equal(run_ranks(3, open_and_compare, job), 0);
}

static int open_and_note(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct cddpi_dataset train = {.count = 77};
    struct cddpi_dataset test = {.count = 77};
    cddp_group *group = NULL;
    int descriptors;

    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    descriptors = support_descriptors();
    job->status[rank] = open_data(job, rank, group, &train, &test);
    snprintf(job->message[rank], MESSAGE_BYTES, "%s", cddp_last_error());
    CHECK(train.count == 77 && test.count == 77);
    CHECK(support_descriptors() == descriptors);
    /* the group is as good as before: the failure was the file's */
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void all_ranks_say(struct job *job, cddp_status status, const char *what)
{
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(job->status[rank], status);
        assert_string_equal(job->message[rank], job->message[0]);
    }
    if (strstr(job->message[0], what) == NULL) {
        fail_msg("'%s' should contain '%s'", job->message[0], what);
    }
}

static void a_bad_file_gives_every_rank_the_same_text(void **state)
{
    struct job *job = *state;

    ask_for(job, true, "short.gz");
    all_ranks_say(job, CDDP_ERR_FORMAT, "/short.gz: ");
    ask_for(job, true, "absent");
    all_ranks_say(job, CDDP_ERR_NOT_FOUND, "/absent: ");
    ask_for(job, false, "text.gz");
    all_ranks_say(job, CDDP_ERR_FORMAT, "rank 0: ");
}

static void a_file_that_only_one_rank_lacks_is_reported_on_all(void **state)
{
    struct job *job = *state;

    for (int is_text = 0; is_text < 2; is_text++) {
        ask_for(job, is_text != 0, is_text ? "text.gz" : "s?");
        snprintf(job->names[1], sizeof job->names[1], "absent");
        all_ranks_say(job, CDDP_ERR_NOT_FOUND, "rank 1: ");
    }
}

static void machines_with_different_files_are_told_so(void **state)
{
    struct job *job = *state;

    job->machines = EACH_ALONE;
    ask_for(job, true, "text.gz");
    snprintf(job->names[2], sizeof job->names[2], "longer.gz");
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    assert_int_equal(job->status[0], CDDP_ERR_MISMATCH);
    assert_non_null(strstr(job->message[0], "number of tokens "));
    /* the same sizes, in another order */
    ask_for(job, false, "s?");
    snprintf(job->names[1], sizeof job->names[1], "t?");
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    assert_int_equal(job->status[2], CDDP_ERR_MISMATCH);
    assert_non_null(strstr(job->message[2], "order of sizes "));
}

/* The same sizes and, but for one in the middle or the last of all, the same tokens. */
static void other_contents_of_the_same_size_name_rank_and_file(void **state)
{
    struct job *job = *state;
    char path[4300], changed[4300];

    snprintf(path, sizeof path, "%s/s1", job->folder);
    snprintf(changed, sizeof changed, "%s/u1", job->folder);
    for (int machines = TOGETHER; machines <= EACH_ALONE; machines++) {
        job->machines = (enum machines)machines;
        for (int place = 0; place < 2; place++) {
            support_write_shard(changed, 1, 50 * CONTEXT + 1, 2);
            support_change_byte(changed, place == 0 ? 1024 + 50 * CONTEXT : -1);
            ask_for(job, false, "s1");
            snprintf(job->names[2], sizeof job->names[2], "u1");
            assert_int_equal(run_ranks(3, open_and_note, job), 0);
            for (int rank = 0; rank < 3; rank++) {
                assert_int_equal(job->status[rank], CDDP_ERR_MISMATCH);
                assert_non_null(strstr(job->message[rank], "rank 2: "));
                assert_non_null(strstr(job->message[rank], rank == 2 ? changed : path));
            }
        }
    }
}

/* 5 MB, of which samples are compared: the first and the last are among them, and each megabyte has
 * many. */
static void a_large_file_that_differs_in_samples_is_told(void **state)
{
    struct job *job = *state;
    char path[4300], changed[4300];
    static const long places[] = {1024, -1};

    snprintf(path, sizeof path, "%s/large", job->folder);
    snprintf(changed, sizeof changed, "%s/other", job->folder);
    support_write_shard(path, 1, 2500001, 2);
    for (int i = 0; i < 3; i++) {
        support_write_shard(changed, 1, 2500001, 2);
        if (i < 2) {
            support_change_byte(changed, places[i]);
        } else {
            FILE *file = fopen(changed, "r+e");
            static const char zeros[1000000];

            assert_non_null(file);
            assert_int_equal(fseek(file, 2000000, SEEK_SET), 0);
            assert_int_equal(fwrite(zeros, 1, sizeof zeros, file), sizeof zeros);
            assert_int_equal(fclose(file), 0);
        }
        ask_for(job, false, "large");
        snprintf(job->names[1], sizeof job->names[1], "other");
        assert_int_equal(run_ranks(3, open_and_note, job), 0);
        assert_int_equal(job->status[0], CDDP_ERR_MISMATCH);
        assert_non_null(strstr(job->message[0], "rank 1: "));
    }
}

/* A rank that maps what its neighbour has made of a text has another text under that name. */
static void a_text_that_a_neighbour_has_not_is_named(void **state)
{
    struct job *job = *state;
    unsigned char packed[2 * TEXT_BYTES];
    char text[TEXT_BYTES], path[4300];
    size_t bytes;

    for (int i = 0; i < TEXT_BYTES; i++) {
        text[i] = i == 1000 ? '!' : letter(i);
    }
    bytes = support_gzip(text, TEXT_BYTES - 1, packed, sizeof packed);
    snprintf(path, sizeof path, "%s/other.gz", job->folder);
    support_write_file(path, packed, bytes);
    for (int machines = TOGETHER; machines <= EACH_ALONE; machines++) {
        job->machines = (enum machines)machines;
        ask_for(job, true, "text.gz");
        snprintf(job->names[1], sizeof job->names[1], "other.gz");
        assert_int_equal(run_ranks(3, open_and_note, job), 0);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(job->status[rank], CDDP_ERR_MISMATCH);
            assert_non_null(strstr(job->message[rank], "rank 1: "));
        }
    }
}

/* Take this rank's part of each batch of an epoch, and put it where it belongs in the whole. */
static int take_epoch(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct cddpi_dataset train = {0};
    struct cddpi_dataset test = {0};
    struct cddpi_data_loader_options options = {
        .dataset = &train, .max_count = BATCH, .threads = 2};
    struct cddpi_data_loader *loader = NULL;
    cddp_sampler *sampler = NULL;
    cddp_group *group = NULL;

    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    CHECK(open_data(job, rank, group, &train, &test) == CDDP_OK);
    CHECK(cddp_sampler_create(CDDP_ORDER_RANDOM, train.count, 7, &sampler) == CDDP_OK);
    CHECK(cddp_sampler_set_epoch(sampler, 1) == CDDP_OK);
    CHECK(cddpi_data_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddpi_data_loader_start(loader, sampler, 1, 0, SEQUENCES, BATCH, rank, world_size,
                                  true) == CDDP_OK);
    for (uint64_t at = 0; at < SEQUENCES; at += BATCH) {
        uint64_t left = SEQUENCES - at;
        cddp_share share = cddp_share_of(at, left < BATCH ? left : BATCH, rank, world_size);
        struct cddpi_micro_batch batch;

        CHECK(cddpi_data_loader_next(loader, &batch) == CDDP_OK);
        CHECK((uint64_t)batch.count == share.count);
        memcpy(job->tokens[share.first], batch.tokens, share.count * sizeof job->tokens[0]);
        memcpy(job->labels[share.first], batch.label, share.count * sizeof job->labels[0]);
        memcpy(job->ids + share.first, batch.sample_ids, share.count * sizeof job->ids[0]);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddpi_data_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
    cddp_group_destroy(group);
    return 0;
}

static void global_batches_are_the_same_at_any_number_of_ranks(void **state)
{
    struct job *job = *state;
    struct job *first = malloc(sizeof *first);

    for (int is_text = 0; is_text < 2; is_text++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            ask_for(job, is_text != 0, is_text ? "text.gz" : "s?");
            memset(job->tokens, 0xff, sizeof job->tokens);
            memset(job->labels, 0xff, sizeof job->labels);
            assert_int_equal(run_ranks(ranks, take_epoch, job), 0);
            if (ranks == 1) {
                *first = *job;
            }
            assert_memory_equal(job->ids, first->ids, sizeof job->ids);
            assert_memory_equal(job->tokens, first->tokens, sizeof job->tokens);
            assert_memory_equal(job->labels, first->labels, sizeof job->labels);
        }
        for (int i = 0; is_text == 0 && i < SEQUENCES; i++) {
            uint64_t id = first->ids[i];
            uint64_t at = (id < 25 ? id : id - 25) * CONTEXT;

            assert_int_equal(first->labels[i][5], support_token(id < 25 ? 0 : 1, at + 6));
        }
    }
    free(first);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_job, remove_job)
    const struct CMUnitTest tests[] = {
        CASE(the_ranks_of_a_machine_share_the_tokens_that_one_of_them_made),
        CASE(a_rank_alone_on_its_machine_makes_its_own),
        CASE(ranks_that_cannot_map_the_tokens_make_their_own),
        CASE(a_bad_file_gives_every_rank_the_same_text),
        CASE(a_file_that_only_one_rank_lacks_is_reported_on_all),
        CASE(machines_with_different_files_are_told_so),
        CASE(other_contents_of_the_same_size_name_rank_and_file),
        CASE(a_large_file_that_differs_in_samples_is_told),
        CASE(a_text_that_a_neighbour_has_not_is_named),
        CASE(global_batches_are_the_same_at_any_number_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
