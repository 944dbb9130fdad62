/* test_data_ranks.c - ranks that open a dataset together: one rank reads for its whole machine, and
 * all ranks get the same outcome. */
#include "data/dataset.h"
#include "support/data_ranks.h"
#include "support/gzip.h"

#include <sys/mman.h>

enum { COUNT = 300, PIXELS = 64, IMAGES_BYTES = 16 + COUNT * PIXELS, LABELS_BYTES = 8 + COUNT };
enum { TEXT_BYTES = 1024, MOST_RANKS = 8 };

/* What the ranks of one case do, and what they found; in memory that all of them share. */
struct job {
    char folder[4096];
    enum machines machines;
    char images[MOST_RANKS][64]; /* file that the rank is asked to open */
    cddp_status status[MOST_RANKS];
    char text[MOST_RANKS][TEXT_BYTES];
};

static void write_file(const struct job *job, const char *name, const void *data, size_t bytes,
                       bool packed)
{
    char path[4200];
    unsigned char *out = malloc(bytes + 1000);

    snprintf(path, sizeof path, "%s/%s", job->folder, name);
    if (packed) {
        bytes = support_gzip(data, bytes, out, bytes + 1000);
    }
    support_write_file(path, packed ? out : data, bytes);
    free(out);
}

static unsigned char pixel(int i)
{
    return (unsigned char)(i * 7 + i / 251);
}

/* Files "images", "images.gz", "labels", "short.gz" (cut off) and "reshaped.gz". */
static int make_job(void **state)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    unsigned char images[IMAGES_BYTES] = {0, 0, 8, 3, 0, 0, 1, 44, 0, 0, 0, 8, 0, 0, 0, 8};
    unsigned char labels[LABELS_BYTES] = {0, 0, 8, 1, 0, 0, 1, 44};
    char *folder = support_mkdtemp();

    assert_true(job != MAP_FAILED);
    snprintf(job->folder, sizeof job->folder, "%s", folder);
    free(folder);
    for (int i = 16; i < IMAGES_BYTES; i++) {
        images[i] = pixel(i);
    }
    for (int i = 8; i < LABELS_BYTES; i++) {
        labels[i] = (unsigned char)(i % 10);
    }
    write_file(job, "images", images, sizeof images, false);
    write_file(job, "images.gz", images, sizeof images, true);
    write_file(job, "labels", labels, sizeof labels, true);
    write_file(job, "short.gz", images, sizeof images - 1, true);
    images[11] = 16;
    images[15] = 4;
    write_file(job, "reshaped.gz", images, sizeof images, true);
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

static cddp_status open_data(const struct job *job, int rank, cddp_group *group,
                             struct cddpi_dataset *out)
{
    char images[4300], labels[4300];

    snprintf(images, sizeof images, "%s/%s", job->folder, job->images[rank]);
    snprintf(labels, sizeof labels, "%s/labels", job->folder);
    return cddpi_dataset_open_idx(images, labels, 10, group, out);
}

static int open_and_compare(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    const char *behind = strcmp(job->images[rank], "images") == 0 ? "/images" : "memfd:cddp-data";
    struct cddpi_dataset dataset = {0};
    cddp_group *group = NULL;
    int descriptors;

    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    descriptors = support_descriptors();
    for (int round = 0; round < 2; round++) {
        CHECK(open_data(job, rank, group, &dataset) == CDDP_OK);
        CHECK(support_descriptors() == descriptors);
        CHECK(dataset.count == COUNT && dataset.height == 8 && dataset.width == 8);
        for (int i = 16; i < IMAGES_BYTES; i++) {
            CHECK(dataset.images[i - 16] == pixel(i));
        }
        CHECK(dataset.labels[7] == (8 + 7) % 10);
        CHECK(support_is_mapped_from(dataset.images, behind) ==
              (strcmp(job->images[rank], "images") == 0 ||
               (world_size > 1 && job->machines == TOGETHER)));
        cddpi_dataset_close(&dataset);
        CHECK(!support_is_mapped_from(dataset.images, behind));
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void ask_for(struct job *job, const char *name)
{
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        snprintf(job->images[rank], sizeof job->images[rank], "%s", name);
    }
}

static void the_ranks_of_a_machine_share_what_one_of_them_inflated(void **state)
{
    const int sizes[] = {1, 2, 3, 5};

    ask_for(*state, "images.gz");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        support_new_store(((struct job *)*state)->folder);
        assert_int_equal(run_ranks(sizes[i], open_and_compare, *state), 0);
    }
}

static void plain_files_are_mapped_by_all_ranks(void **state)
{
    ask_for(*state, "images");
    assert_int_equal(run_ranks(3, open_and_compare, *state), 0);
}

static void a_rank_alone_on_its_machine_reads_for_itself(void **state)
{
    struct job *job = *state;

    ask_for(job, "images.gz");
    job->machines = EACH_ALONE;
    assert_int_equal(run_ranks(3, open_and_compare, job), 0);
}

/* As between containers, where the others' memory files cannot be reached. Here rank 0 makes none,
 * because it knows of no neighbour. */
static void ranks_that_cannot_map_what_was_read_read_for_themselves(void **state)
{
    struct job *job = *state;

    ask_for(job, "images.gz");
    job->machines = FIRST_ALONE;
    assert_int_equal(run_ranks(3, open_and_compare, job), 0);
}

static int open_and_note(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct cddpi_dataset dataset = {.count = 77};
    cddp_group *group = NULL;
    int descriptors;

    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    descriptors = support_descriptors();
    job->status[rank] = open_data(job, rank, group, &dataset);
    snprintf(job->text[rank], TEXT_BYTES, "%s", cddp_last_error());
    CHECK(dataset.count == 77);
    CHECK(support_descriptors() == descriptors);
    /* the group is as good as before: the failure was the file's */
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void all_ranks_say(const struct job *job, int world_size, cddp_status status,
                          const char *file, const char *what)
{
    for (int rank = 0; rank < world_size; rank++) {
        assert_int_equal(job->status[rank], status);
        assert_string_equal(job->text[rank], job->text[0]);
    }
    if (strstr(job->text[0], file) == NULL || strstr(job->text[0], what) == NULL) {
        fail_msg("'%s' should contain '%s' and '%s'", job->text[0], file, what);
    }
}

static void a_bad_file_gives_every_rank_the_same_text(void **state)
{
    struct job *job = *state;

    ask_for(job, "short.gz");
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    all_ranks_say(job, 3, CDDP_ERR_FORMAT, "/short.gz: truncated", "but 19199 bytes are there");
    support_new_store(job->folder);
    ask_for(job, "absent");
    assert_int_equal(run_ranks(2, open_and_note, job), 0);
    all_ranks_say(job, 2, CDDP_ERR_NOT_FOUND, "/absent", "");
}

static void a_file_that_is_bad_on_one_machine_is_reported_on_all(void **state)
{
    struct job *job = *state;

    ask_for(job, "images.gz");
    snprintf(job->images[1], sizeof job->images[1], "short.gz");
    job->machines = EACH_ALONE;
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    all_ranks_say(job, 3, CDDP_ERR_FORMAT, "/short.gz: truncated", "");
}

static void machines_with_different_files_are_told_so(void **state)
{
    struct job *job = *state;

    ask_for(job, "images.gz");
    snprintf(job->images[2], sizeof job->images[2], "reshaped.gz");
    job->machines = EACH_ALONE;
    assert_int_equal(run_ranks(3, open_and_note, job), 0);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(job->status[rank], CDDP_ERR_MISMATCH);
        assert_non_null(
            strstr(job->text[rank], "height differs between machines: 8 on rank 0, 16 on rank 2"));
    }
}

/* Whether the rank has read the file or mapped what its neighbour has made of another one. */
static void other_contents_of_the_same_size_name_rank_and_file(void **state)
{
    struct job *job = *state;
    char path[4300];
    unsigned char images[IMAGES_BYTES] = {0, 0, 8, 3, 0, 0, 1, 44, 0, 0, 0, 8, 0, 0, 0, 8};

    for (int i = 16; i < IMAGES_BYTES; i++) {
        images[i] = pixel(i);
    }
    images[IMAGES_BYTES / 2] ^= 1;
    write_file(job, "changed", images, sizeof images, false);
    snprintf(path, sizeof path, "%s/changed", job->folder);
    for (int machines = TOGETHER; machines <= EACH_ALONE; machines++) {
        support_new_store(job->folder);
        job->machines = (enum machines)machines;
        ask_for(job, "images");
        snprintf(job->images[1], sizeof job->images[1], "changed");
        assert_int_equal(run_ranks(3, open_and_note, job), 0);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(job->status[rank], CDDP_ERR_MISMATCH);
            assert_non_null(strstr(job->text[rank], "rank 1: "));
            assert_non_null(strstr(job->text[rank], rank == 1 ? "/changed" : "/images"));
            assert_non_null(
                strstr(job->text[rank], "differs from that of rank 0: both have 19216 bytes"));
        }
    }
}

/* One machine has them gzip'd: it trains on the same. */
static void the_same_data_in_files_that_differ_will_do_on_another_machine(void **state)
{
    struct job *job = *state;

    ask_for(job, "images");
    snprintf(job->images[1], sizeof job->images[1], "images.gz");
    job->machines = EACH_ALONE;
    assert_int_equal(run_ranks(2, open_and_compare, job), 0);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_job, remove_job)
    const struct CMUnitTest tests[] = {
        CASE(the_ranks_of_a_machine_share_what_one_of_them_inflated),
        CASE(plain_files_are_mapped_by_all_ranks),
        CASE(a_rank_alone_on_its_machine_reads_for_itself),
        CASE(ranks_that_cannot_map_what_was_read_read_for_themselves),
        CASE(a_bad_file_gives_every_rank_the_same_text),
        CASE(a_file_that_is_bad_on_one_machine_is_reported_on_all),
        CASE(machines_with_different_files_are_told_so),
        CASE(other_contents_of_the_same_size_name_rank_and_file),
        CASE(the_same_data_in_files_that_differ_will_do_on_another_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
