/* test_csv_ranks.c - ranks that open CSV files together: one of each machine reads them, and files
 * that differ are found. Without ranks: several files, test files and missing files. */
#include "base/error.h"
#include "data/formats/csv.h"
#include "data/formats/csv_read.h"
#include "data/normalization.h"
#include "data/numbers.h"
#include "data/rounds.h"
#include "support/data_ranks.h"
#include "support/folder.h"
#include "support/gzip.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 50 };

static char *y[] = {"y"};

static void make_rows(const char *name, int rows, int first)
{
    char text[8192];
    size_t used = (size_t)sprintf(text, "x,c,y\n");

    for (int i = first; i < first + rows; i++) {
        used += (size_t)sprintf(text + used, "%d,%c,%c\n", i, 'a' + i % 3, 'p' + i % 2);
    }
    support_write_file(in_folder(name), text, used);
}

static cddp_status open_files(const char *train, const char *test, bool fill, cddp_group *group,
                              struct cddpi_dataset out[2])
{
    char *trains[] = {(char *)(uintptr_t)train};
    char *tests[] = {(char *)(uintptr_t)test};
    const struct cddpi_csv_options options = {
        .meaning = {.target = {y, 1}, .delimiter = ',', .classes = true, .fill = fill},
        .train = {trains, 1},
        .test = {tests, test != NULL},
        .test_fraction = 0.1};

    out[0] = out[1] = (struct cddpi_dataset){.count = 0};
    return cddpi_dataset_open_csv(&options, group, &out[0], &out[1]);
}

static float first_number(const struct cddpi_dataset *data, uint64_t sample)
{
    float input[16];
    int32_t label;
    char text[256];

    return cddpi_dataset_numbers(data, sample, input, &label, text, sizeof text) ? input[0] : -1;
}

static void close_both(struct cddpi_dataset data[2])
{
    cddpi_dataset_close(&data[0]);
    cddpi_dataset_close(&data[1]);
}

static void several_files_are_one_table_and_a_part_is_held_back(void **state)
{
    struct cddpi_dataset data[2];
    int seen[2 * ROWS] = {0};

    (void)state;
    make_rows("a1.csv", ROWS, 0);
    make_rows("a2.csv", ROWS, ROWS);
    assert_int_equal(open_files(in_folder("a*.csv"), NULL, false, NULL, data), CDDP_OK);
    assert_int_equal(data[0].count, 90);
    assert_int_equal(data[1].count, 10);
    assert_int_equal(data[0].width, 4);
    assert_int_equal(data[0].classes, 2);
    assert_non_null(strstr(data[0].columns, "\"categories\":[\"a\",\"b\",\"c\"]"));
    for (int part = 0; part < 2; part++) {
        for (uint64_t i = 0; i < data[part].count; i++) {
            seen[(int)first_number(&data[part], i)]++;
        }
    }
    for (int i = 0; i < 2 * ROWS; i++) { /* each row is in one part, once */
        assert_int_equal(seen[i], 1);
    }
    close_both(data);
}

static void test_files_have_the_categories_of_training(void **state)
{
    static const char odd[] = "x,c,y\n1,a,p\n2,d,q\n";
    static const char other[] = "x,y,c\n1,p,a\n";
    struct cddpi_dataset data[2];

    (void)state;
    make_rows("train.csv", ROWS, 0);
    make_rows("test.csv", 2, 1); /* of categories b and c only */
    assert_int_equal(open_files(in_folder("train.csv"), in_folder("test.csv"), false, NULL, data),
                     CDDP_OK);
    assert_int_equal(data[0].count, ROWS);
    assert_int_equal(data[1].count, 2);
    assert_true(first_number(&data[1], 1) == 2);
    assert_int_equal(data[1].classes, 2);
    close_both(data);
    support_write_file(in_folder("test.csv"), odd, sizeof odd - 1);
    assert_int_equal(open_files(in_folder("train.csv"), in_folder("test.csv"), false, NULL, data),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "test.csv:3: column 2 (c): \"d\" is none of the 3 "
                                              "categories of the training data"));
    support_write_file(in_folder("test.csv"), other, sizeof other - 1);
    assert_int_equal(open_files(in_folder("train.csv"), in_folder("test.csv"), false, NULL, data),
                     CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "test.csv:1: column 2: the header has \"y\", but "
                                              "that of the first file has \"c\""));
    assert_int_equal(open_files(in_folder("none.csv"), NULL, false, NULL, data),
                     CDDP_ERR_NOT_FOUND);
}

static void a_gzip_d_file_is_read_and_missing_values_are_filled(void **state)
{
    static const char text[] = "x,y\n4,p\n,q\n4,p\n4,q\n";
    unsigned char packed[512];
    struct cddpi_dataset data[2];

    (void)state;
    support_write_file(
        in_folder("t.csv.gz"), packed,
        support_gzip((const unsigned char *)text, sizeof text - 1, packed, sizeof packed));
    assert_int_equal(open_files(in_folder("t.csv.gz"), NULL, true, NULL, data), CDDP_OK);
    for (uint64_t i = 0; i < data[0].count; i++) {
        assert_true(first_number(&data[0], i) == 4);
    }
    assert_true(first_number(&data[1], 0) == 4);
    close_both(data);
    assert_int_equal(open_files(in_folder("t.csv.gz"), NULL, false, NULL, data), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "t.csv.gz:3: column 1 (x): the value is missing"));
}

static void columns_that_no_checkpoint_has_room_for_are_refused(void **state)
{
    enum { WORDS = 600, BYTES = 60000 };
    const size_t room = (size_t)WORDS * (BYTES + 16) + 16;
    struct cddpi_dataset data[2];
    char *text = malloc(room);
    size_t used;

    (void)state;
    assert_non_null(text);
    used = (size_t)snprintf(text, room, "c,y\n");
    for (int i = 0; i < WORDS; i++) {
        used += (size_t)snprintf(text + used, room - used, "%0*dw,%c\n", BYTES, i, 'p' + i % 2);
    }
    support_write_file(in_folder("long.csv"), text, used);
    free(text);
    assert_int_equal(open_files(in_folder("long.csv"), NULL, false, NULL, data), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(),
                           "long.csv: the names, categories and classes of the columns take 36"));
}

static void means_are_those_of_the_rows_that_are_trained_on(void **state)
{
    struct cddpi_dataset data[2];
    char text[1024];
    size_t used = (size_t)sprintf(text, "x,y\n,p\n");
    double sums[2] = {0, 0};

    (void)state;
    for (int i = 1; i < ROWS; i++) {
        used += (size_t)sprintf(text + used, "%d,%c\n", i * i, 'p' + i % 2);
    }
    support_write_file(in_folder("t.csv"), text, used);
    assert_int_equal(open_files(in_folder("t.csv"), NULL, true, NULL, data), CDDP_OK);
    for (int part = 0; part < 2; part++) {
        for (uint64_t i = 0; i < data[part].count; i++) {
            sums[part] += (double)first_number(&data[part], i);
        }
    }
    assert_float_equal(data[0].missing[0], sums[0] / (double)data[0].count, 0.01);
    assert_true(fabs(sums[0] / (double)data[0].count - (sums[0] + sums[1]) / ROWS) > 1);
    close_both(data);
}

struct job {
    char folder[4096];
    enum machines machines;
    bool differ, broken;
    const char *words; /* that tell how the files differ */
};

static int open_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct cddpi_dataset data[2];
    cddp_group *group = NULL;
    char path[4200];
    cddp_status status;

    snprintf(path, sizeof path, "%s/%s", job->folder,
             job->broken                ? "broken.csv"
             : job->differ && rank == 1 ? "other.csv"
                                        : "train.csv");
    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    status = open_files(path, NULL, false, group, data);
    if (job->broken) {
        CHECK(status == CDDP_ERR_FORMAT && strstr(cddp_last_error(), "broken.csv:2: column 2"));
    } else if (job->differ) {
        CHECK(status == CDDP_ERR_MISMATCH && strstr(cddp_last_error(), job->words) != NULL);
    } else {
        CHECK(status == CDDP_OK && data[0].count == 45 && data[1].count == 5);
        CHECK(support_is_mapped_from(data[0].columns, "memfd:cddp-data") ==
              (job->machines == TOGETHER));
        close_both(data);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void one_rank_of_a_machine_reads_for_the_others(void **state)
{
    struct job job = {.machines = TOGETHER};

    (void)state;
    snprintf(job.folder, sizeof job.folder, "%s", folder);
    make_rows("train.csv", ROWS, 0);
    make_rows("other.csv", ROWS, 1);
    support_write_file(in_folder("broken.csv"), "x,y\n1,2\"\n", 9);
    assert_int_equal(run_ranks(3, open_rank, &job), 0);
    support_new_store(folder);
    job.machines = EACH_ALONE;
    assert_int_equal(run_ranks(2, open_rank, &job), 0);
    support_new_store(folder);
    job.differ = true;
    job.words = "differ";
    assert_int_equal(run_ranks(2, open_rank, &job), 0);
    support_new_store(folder);
    make_rows("other.csv", ROWS - 1, 0); /* as many are trained on, one less is held back */
    job.words = "number of samples in the files ";
    assert_int_equal(run_ranks(2, open_rank, &job), 0);
    support_new_store(folder);
    job.broken = true;
    assert_int_equal(run_ranks(3, open_rank, &job), 0);
}

/* Rank 0 reads fields, then looks for statistics; the others wait, and the last one fails. */
static int work_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct cddpi_rounds rounds = {.group = NULL};
    struct cddpi_dataset data[2];
    cddp_status status;
    char path[4200];

    CHECK(support_join(job->folder, TOGETHER, rank, world_size, &rounds.group) == CDDP_OK);
    for (int normalizes = 0; normalizes < 2; normalizes++) {
        rounds.next_ns = 0;
        rounds.failed = false;
        status = CDDP_OK;
        if (rank + 1 == world_size) {
            status = cddpi_fail(CDDP_ERR_FORMAT, "broken on purpose");
        } else if (rank == 0 && normalizes) {
            struct cddpi_normalization *found;

            snprintf(path, sizeof path, "%s/train.csv", job->folder);
            CHECK(open_files(path, NULL, false, NULL, data) == CDDP_OK);
            found = cddpi_normalization_create(cddpi_normalization_count(&data[0]));
            CHECK(found != NULL);
            status = cddpi_normalization_find(&data[0], CDDPI_NORMALIZE_MINMAX, &rounds, found);
            CHECK(status == CDDP_ERR_FORMAT && rounds.failed);
            cddpi_normalization_destroy(found);
            close_both(data);
        } else if (rank == 0) {
            struct cddpi_csv csv = {.text = NULL};
            struct cddpi_csv_field field;
            bool end = false;

            CHECK(cddpi_csv_init("a.csv", "x\n1\n", 4, ',', &csv) == CDDP_OK);
            csv.rounds = &rounds;
            status = cddpi_csv_next(&csv, &field, &end);
            CHECK(status == CDDP_ERR_FORMAT && rounds.failed);
            cddpi_csv_fini(&csv);
        }
        CHECK(cddpi_rounds_end(&rounds, status) == CDDP_ERR_FORMAT);
        CHECK(strstr(cddp_last_error(), "rank 2: broken on purpose") != NULL);
        CHECK(cddp_barrier(rounds.group, NULL) == CDDP_OK);
    }
    cddp_group_destroy(rounds.group);
    return 0;
}

static void ranks_that_wait_meet_the_one_that_reads(void **state)
{
    struct job job = {.machines = TOGETHER};

    (void)state;
    snprintf(job.folder, sizeof job.folder, "%s", folder);
    make_rows("train.csv", ROWS, 0);
    assert_int_equal(run_ranks(3, work_rank, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(several_files_are_one_table_and_a_part_is_held_back),
        IN_FOLDER(test_files_have_the_categories_of_training),
        IN_FOLDER(a_gzip_d_file_is_read_and_missing_values_are_filled),
        IN_FOLDER(columns_that_no_checkpoint_has_room_for_are_refused),
        IN_FOLDER(means_are_those_of_the_rows_that_are_trained_on),
        IN_FOLDER(one_rank_of_a_machine_reads_for_the_others),
        IN_FOLDER(ranks_that_wait_meet_the_one_that_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
