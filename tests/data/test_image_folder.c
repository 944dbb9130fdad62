/* test_image_folder.c - folders of images: their files, in which order and class, and the batches
 * that loaders make of them. */
#include "data/data_loader.h"
#include "support/data_ranks.h"
#include "support/failure.h"
#include "support/folder.h"
#include "support/images.h"

#include <cddp/process.h>

#include <sys/mman.h>

enum { SIZE = 8, ELEMENTS = 3 * SIZE * SIZE, PER_CLASS = 5, CLASSES = 3, COUNT = 15 };

static cddp_status open_folder(const char *name, const struct cddpi_dataset *like,
                               struct cddpi_dataset *out)
{
    return cddpi_dataset_open_image_folder(in_folder(name), SIZE, like, NULL, out);
}

static void make_file(const char *name, const char *contents)
{
    support_write_file(in_folder(name), contents, strlen(contents));
}

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(in_folder(name), 0700), 0);
}

static const char *name_of(const struct cddpi_dataset *data, uint64_t sample)
{
    return data->files->names + data->files->offsets[sample];
}

static void files_lie_in_the_order_of_torchvisions_image_folder(void **state)
{
    static const char *const expected[] = {"B/z.jpg",       "a/1.PNG",       "a/2.jpeg",
                                           "a-b/x.png",     "c/top.png",     "c/sub/b.png",
                                           "c/sub-x/a.png", "c/sub/in/d.png"};
    static const int labels[] = {0, 1, 1, 2, 3, 3, 3, 3};
    struct cddpi_dataset data = {0};

    (void)state;
    need_png();
    need_jpeg();
    make_dir("d"), make_dir("d/B"), make_dir("d/a"), make_dir("d/a-b"), make_dir("d/c");
    make_dir("d/c/sub"), make_dir("d/c/sub-x");
    make_dir("d/c/sub/in"), make_file("d/c/sub/in/d.png", "");
    make_file("d/readme.txt", ""), make_file("d/outside.png", "");
    make_file("d/B/z.jpg", ""), make_file("d/a/2.jpeg", ""), make_file("d/a/1.PNG", "");
    make_file("d/a/notes.txt", ""), make_file("d/a/png", ""), make_file("d/a-b/x.png", "");
    make_file("d/c/top.png", ""), make_file("d/c/sub/b.png", ""), make_file("d/c/sub-x/a.png", "");
    assert_int_equal(open_folder("d", NULL, &data), CDDP_OK);
    assert_int_equal(data.count, 8);
    assert_int_equal(data.classes, 4);
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.height, SIZE);
    for (uint64_t i = 0; i < data.count; i++) {
        assert_string_equal(name_of(&data, i), expected[i]);
        assert_int_equal(data.wide_labels[i], labels[i]);
    }
    cddpi_dataset_close(&data);
}

static void assert_refused(const char *name, const struct cddpi_dataset *like, cddp_status expected,
                           const char *words)
{
    struct cddpi_dataset data = {0};

    assert_int_equal(open_folder(name, like, &data), expected);
    if (!last_error_has(words)) {
        fail_msg("\"%s\" lacks \"%s\"", cddp_last_error(), words);
    }
}

static void folders_that_are_no_such_data_are_refused_with_their_names(void **state)
{
    (void)state;
    need_png();
    assert_refused("none", NULL, CDDP_ERR_NOT_FOUND, "none");
    make_dir("flat"), make_file("flat/a.png", "");
    assert_refused("flat", NULL, CDDP_ERR_FORMAT, "flat: there is no folder in it");
    make_dir("e"), make_dir("e/full"), make_file("e/full/a.png", ""), make_dir("e/hollow");
    assert_refused("e", NULL, CDDP_ERR_FORMAT, "e/hollow: a class without an image");
    make_dir("w"), make_dir("w/a"), make_file("w/a/photo.webp", "");
    assert_refused("w", NULL, CDDP_ERR_FORMAT, "w/a/photo.webp: only JPEG and PNG");
    make_dir("l"), make_dir("l/a");
    assert_int_equal(symlink(".", in_folder("l/a/again")), 0);
    assert_refused("l", NULL, CDDP_ERR_FORMAT, "does a link lead to a folder above it?");
}

static char warnings[4096];

static void keep_warning(void *state, const cddp_log_record *record)
{
    (void)state;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", record->line);
}

/* What other programs leave between images: no class, no image, and a warning. */
static void what_other_programs_leave_is_no_class(void **state)
{
    static const char *const folders[] = {".ipynb_checkpoints",
                                          "__MACOSX",
                                          ".git",
                                          "@eaDir",
                                          "lost+found",
                                          "Thumbs",
                                          "__pycache__",
                                          ".Trash-1000",
                                          "$RECYCLE.BIN",
                                          "System Volume Information",
                                          ".cache"};
    struct cddpi_dataset data = {0};
    char name[200];

    (void)state;
    need_png();
    make_dir("d"), make_dir("d/cat"), make_dir("d/dog"), make_dir("d/Zebra");
    make_file("d/cat/1.png", ""), make_file("d/dog/1.png", ""), make_file("d/Zebra/1.png", "");
    make_file("d/cat/._1.png", ""), make_file("d/cat/.hidden.png", "");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        for (int inside = 0; inside < 2; inside++) {
            snprintf(name, sizeof name, "d/%s%s", inside ? "dog/" : "", folders[i]);
            make_dir(name);
            if (i % 2 == 0) { /* with and without an image */
                strcat(name, "/1-checkpoint.png");
                make_file(name, "");
            }
        }
    }
    warnings[0] = '\0';
    cddp_log_set_sink(keep_warning, NULL);
    assert_int_equal(open_folder("d", NULL, &data), CDDP_OK);
    cddp_log_set_sink(NULL, NULL);
    assert_int_equal(data.classes, 3);
    assert_int_equal(data.count, 4);
    assert_string_equal(name_of(&data, 0), "Zebra/1.png");
    assert_string_equal(name_of(&data, 1), "cat/.hidden.png");
    assert_string_equal(name_of(&data, 3), "dog/1.png");
    assert_non_null(strstr(warnings, "d: left out, since other programs make such folders"));
    assert_non_null(strstr(warnings, "(23 in all; torchvision's ImageFolder would take them)"));
    cddpi_dataset_close(&data);
    make_dir("only"), make_dir("only/.git");
    assert_refused("only", NULL, CDDP_ERR_FORMAT,
                   "no folder in it but those of other programs, .git");
}

/* 30 folders, each with two links to the next: 2^29 ways, none of them deeper than 32. */
static void folders_that_links_multiply_are_refused_at_once(void **state)
{
    struct cddpi_dataset data = {0};

    (void)state;
    need_png();
    make_dir("d"), make_dir("d/a"), make_dir("chain");
    for (int i = 0; i < 30; i++) {
        char name[64];
        char target[64];

        snprintf(name, sizeof name, "chain/%d", i);
        make_dir(name);
        for (int link = 0; i < 29 && link < 2; link++) {
            snprintf(name, sizeof name, "chain/%d/%d", i, link);
            snprintf(target, sizeof target, "../%d", i + 1);
            assert_int_equal(symlink(target, in_folder(name)), 0);
        }
    }
    make_file("chain/29/a.png", "");
    assert_int_equal(symlink("../../chain/0", in_folder("d/a/x")), 0);
    assert_refused("d", NULL, CDDP_ERR_FORMAT, "links lead to this folder in more than 16 ways");
    assert_int_equal(unlink(in_folder("d/a/x")), 0);
    assert_int_equal(symlink("../../chain/26", in_folder("d/a/x")), 0);
    assert_int_equal(open_folder("d", NULL, &data), CDDP_OK);
    assert_int_equal(data.count, 8); /* as torchvision lists them */
    cddpi_dataset_close(&data);
    /* classes may share a folder, however many they are */
    for (int i = 0; i < 40; i++) {
        char name[64];

        snprintf(name, sizeof name, "d/b%d", i);
        assert_int_equal(symlink("../chain/29", in_folder(name)), 0);
    }
    assert_int_equal(open_folder("d", NULL, &data), CDDP_OK);
    assert_int_equal(data.classes, 41);
    cddpi_dataset_close(&data);
}

static void classes_to_test_are_those_of_training_by_name(void **state)
{
    struct cddpi_dataset train = {0}, test = {0};

    (void)state;
    need_png();
    make_dir("d"), make_dir("d/ant"), make_dir("d/bee"), make_dir("d/cow");
    make_file("d/ant/a.png", ""), make_file("d/bee/b.png", ""), make_file("d/cow/c.png", "");
    make_dir("t"), make_dir("t/bee"), make_dir("t/cow");
    make_file("t/bee/b.png", ""), make_file("t/cow/c.png", "");
    assert_int_equal(open_folder("d", NULL, &train), CDDP_OK);
    assert_int_equal(open_folder("t", &train, &test), CDDP_OK);
    assert_int_equal(test.classes, 3);
    assert_int_equal(test.wide_labels[0], 1);
    assert_int_equal(test.wide_labels[1], 2);
    make_dir("u"), make_dir("u/bees"), make_file("u/bees/b.png", "");
    assert_refused("u", &train, CDDP_ERR_FORMAT, "u/bees: there is no such class among the 3");
    cddpi_dataset_close(&test);
    cddpi_dataset_close(&train);
}

/* All samples of an epoch, by their numbers. */
struct epoch {
    float input[COUNT][ELEMENTS];
    int32_t label[COUNT];
    int broken;
};

static cddp_status load(const struct cddpi_dataset *data, int threads, bool augment, bool skip,
                        int world_size, struct epoch *out)
{
    struct cddpi_data_loader_options options = {
        .dataset = data, .seed = 3, .max_count = 4, .threads = threads, .skip_broken = skip};
    struct cddpi_data_loader *loader = NULL;
    struct cddpi_micro_batch batch = {0};
    cddp_sampler *sampler = NULL;
    cddp_status status = CDDP_OK;
    char text[1024];

    memset(out, 0, sizeof *out);
    options.transform.flip = true;
    options.transform.resize = 10;
    assert_int_equal(cddpi_data_loader_create(&options, &loader), CDDP_OK);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, data->count, 2, &sampler), CDDP_OK);
    for (int rank = 0; status == CDDP_OK && rank < world_size; rank++) {
        assert_int_equal(cddpi_data_loader_start(loader, sampler, 0, 0, data->count, 6, rank,
                                                 world_size, augment),
                         CDDP_OK);
        while ((status = cddpi_data_loader_next(loader, &batch)) == CDDP_OK &&
               batch.label != NULL) {
            for (int i = 0; i < batch.count; i++) {
                memcpy(out->input[batch.sample_ids[i]], batch.input + i * ELEMENTS,
                       sizeof out->input[0]);
                out->label[batch.sample_ids[i]] = batch.label[i];
            }
            out->broken += batch.broken;
        }
    }
    if (status == CDDP_OK) {
        assert_int_equal(cddpi_data_loader_broken(loader, text, sizeof text), out->broken);
        assert_int_equal(text[0] != '\0', out->broken > 0);
    }
    cddpi_data_loader_cancel(loader);
    cddpi_data_loader_destroy(loader);
    cddp_sampler_destroy(sampler);
    return status;
}

static void open_small(struct cddpi_dataset *out)
{
    need_png();
    make_image_folder(in_folder("d"), CLASSES, PER_CLASS, 21, 1);
    assert_int_equal(open_folder("d", NULL, out), CDDP_OK);
}

static void batches_have_the_same_bits_at_any_number_of_threads_and_ranks(void **state)
{
    struct cddpi_dataset data = {0};
    struct epoch *one = malloc(sizeof *one), *other = malloc(sizeof *other);

    (void)state;
    open_small(&data);
    for (int augment = 0; augment < 2; augment++) {
        assert_int_equal(load(&data, 0, augment, false, 1, one), CDDP_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(one->label[i], i / PER_CLASS);
            assert_true(one->input[i][0] > 0 && one->input[i][0] <= 1);
        }
        for (int ranks = 1; ranks < 4; ranks++) {
            assert_int_equal(load(&data, ranks, augment, false, ranks, other), CDDP_OK);
            assert_memory_equal(one, other, sizeof *one);
        }
    }
    free(one);
    free(other);
    cddpi_dataset_close(&data);
}

static void a_broken_file_in_the_middle_is_named(void **state)
{
    struct cddpi_dataset data = {0};
    struct epoch *epoch = malloc(sizeof *epoch);

    (void)state;
    open_small(&data);
    support_change_byte(in_folder("d/c1/002.png"), 300);
    for (int threads = 0; threads < 3; threads++) {
        assert_true(
            failure_is(load(&data, threads, true, false, 1, epoch), CDDP_ERR_FORMAT, -1, -1, ""));
        assert_true(last_error_has("d/c1/002.png: "));
    }
    assert_int_equal(unlink(in_folder("d/c1/002.png")), 0);
    assert_true(failure_is(load(&data, 1, true, false, 1, epoch), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("d/c1/002.png: No such file"));
    free(epoch);
    cddpi_dataset_close(&data);
}

static void broken_files_are_replaced_by_the_next_whole_one_and_counted(void **state)
{
    struct cddpi_dataset data = {0};
    struct epoch *whole = malloc(sizeof *whole), *one = malloc(sizeof *one);
    struct epoch *other = malloc(sizeof *other);

    (void)state;
    open_small(&data);
    assert_int_equal(load(&data, 0, false, true, 1, whole), CDDP_OK);
    assert_int_equal(whole->broken, 0);
    make_file("d/c0/004.png", "no image");
    make_file("d/c2/004.png", "");
    assert_int_equal(load(&data, 0, false, true, 1, one), CDDP_OK);
    assert_int_equal(load(&data, 2, false, true, 3, other), CDDP_OK);
    assert_memory_equal(one, other, sizeof *one);
    assert_int_equal(one->broken, 2);
    assert_memory_equal(one->input[4], whole->input[5], sizeof one->input[4]);
    assert_int_equal(one->label[4], 1); /* of the file that is there instead */
    assert_memory_equal(one->input[14], whole->input[0], sizeof one->input[4]);
    assert_memory_equal(one->input[3], whole->input[3], sizeof one->input[3]);
    free(whole);
    free(one);
    free(other);
    cddpi_dataset_close(&data);
}

static void data_of_which_nothing_can_be_read_are_an_error_even_if_files_are_skipped(void **state)
{
    struct cddpi_dataset data = {0};
    struct epoch *epoch = malloc(sizeof *epoch);

    (void)state;
    need_png();
    make_dir("d"), make_dir("d/a"), make_file("d/a/1.png", "x"), make_file("d/a/2.png", "y");
    assert_int_equal(open_folder("d", NULL, &data), CDDP_OK);
    assert_true(failure_is(load(&data, 0, false, true, 1, epoch), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has(".png: neither a JPEG nor a PNG file"));
    free(epoch);
    cddpi_dataset_close(&data);
}

/* Ranks that open the folder "d" together, or each its own. */
struct job {
    char folder[4096];
    enum machines machines;
    bool differ;
};

static int open_rank(int rank, int world_size, void *argument)
{
    const struct job *job = argument;
    struct cddpi_dataset data = {0};
    cddp_group *group = NULL;
    char root[4200];
    cddp_status status;

    snprintf(root, sizeof root, "%s/%s", job->folder, job->differ && rank == 1 ? "e" : "d");
    CHECK(support_join(job->folder, job->machines, rank, world_size, &group) == CDDP_OK);
    status = cddpi_dataset_open_image_folder(root, SIZE, NULL, group, &data);
    if (job->differ) {
        CHECK(status == CDDP_ERR_MISMATCH && last_error_has("differs"));
    } else {
        CHECK(status == CDDP_OK && data.count == COUNT && data.classes == CLASSES);
        CHECK(strcmp(name_of(&data, 7), "c1/002.png") == 0 && data.wide_labels[7] == 1);
        CHECK(support_is_mapped_from(data.files->names, "memfd:cddp-data") ==
              (job->machines == TOGETHER));
        cddpi_dataset_close(&data);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void one_rank_of_a_machine_lists_the_files_for_the_others(void **state)
{
    struct job job = {.machines = TOGETHER};

    (void)state;
    need_png();
    snprintf(job.folder, sizeof job.folder, "%s", folder);
    make_image_folder(in_folder("d"), CLASSES, PER_CLASS, 4, 1);
    assert_int_equal(run_ranks(3, open_rank, &job), 0);
    support_new_store(folder);
    job.machines = EACH_ALONE;
    assert_int_equal(run_ranks(2, open_rank, &job), 0);
    make_image_folder(in_folder("e"), CLASSES, PER_CLASS - 1, 4, 1);
    support_new_store(folder);
    job.differ = true;
    assert_int_equal(run_ranks(2, open_rank, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_lie_in_the_order_of_torchvisions_image_folder),
        IN_FOLDER(folders_that_are_no_such_data_are_refused_with_their_names),
        IN_FOLDER(what_other_programs_leave_is_no_class),
        IN_FOLDER(folders_that_links_multiply_are_refused_at_once),
        IN_FOLDER(classes_to_test_are_those_of_training_by_name),
        IN_FOLDER(batches_have_the_same_bits_at_any_number_of_threads_and_ranks),
        IN_FOLDER(a_broken_file_in_the_middle_is_named),
        IN_FOLDER(broken_files_are_replaced_by_the_next_whole_one_and_counted),
        IN_FOLDER(data_of_which_nothing_can_be_read_are_an_error_even_if_files_are_skipped),
        IN_FOLDER(one_rank_of_a_machine_lists_the_files_for_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
