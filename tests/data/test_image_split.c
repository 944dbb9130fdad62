/* test_image_split.c - folders of images of which a part of each class is held back for
 * evaluation. */
#include "data/dataset.h"
#include "support/folder.h"
#include "support/images.h"

static cddp_status open_folder(const char *name, struct cddpi_dataset *out)
{
    return cddpi_dataset_open_image_folder(in_folder(name), 8, NULL, NULL, out);
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

static bool has_name(const struct cddpi_dataset *data, const char *name)
{
    for (uint64_t i = 0; i < data->count; i++) {
        if (strcmp(name_of(data, i), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Classes of 10, 3, 2 and 1 images. */
static void make_uneven(void)
{
    static const int counts[] = {10, 3, 2, 1};

    make_dir("d");
    for (int i = 0; i < 4; i++) {
        char name[64];

        snprintf(name, sizeof name, "d/c%d", i);
        make_dir(name);
        for (int k = 0; k < counts[i]; k++) {
            snprintf(name, sizeof name, "d/c%d/%d.png", i, k);
            make_file(name, "");
        }
    }
}

static void held_back_images_are_a_part_of_each_class_and_not_trained_on(void **state)
{
    static const int held[] = {2, 1, 1, 0};
    struct cddpi_dataset all = {0}, train = {0}, test = {0};
    int counts[4] = {0};
    int before = -1;

    (void)state;
    need_png();
    make_uneven();
    assert_int_equal(open_folder("d", &all), CDDP_OK);
    assert_int_equal(open_folder("d", &train), CDDP_OK);
    assert_int_equal(cddpi_dataset_split_image_folder(&train, 0.2, &test), CDDP_OK);
    assert_int_equal(test.count, 4);
    assert_int_equal(train.count, 12);
    assert_int_equal(test.classes, 4);
    for (uint64_t i = 0; i < test.count; i++) {
        assert_false(has_name(&train, name_of(&test, i)));
        assert_int_equal(name_of(&test, i)[1] - '0', test.wide_labels[i]);
        counts[test.wide_labels[i]]++;
    }
    assert_memory_equal(counts, held, sizeof held);
    for (uint64_t i = 0; i < all.count; i++) {
        assert_true(has_name(&train, name_of(&all, i)) || has_name(&test, name_of(&all, i)));
    }
    assert_int_equal(train.files->class_count, 4);
    for (int i = 0; i < 4; i++) { /* the class of a prediction is named by its first sample */
        assert_int_equal(train.wide_labels[train.files->firsts[i]], i);
        assert_true((int)train.files->firsts[i] > before);
        before = (int)train.files->firsts[i];
    }
    cddpi_dataset_close(&train); /* each may be closed first */
    assert_string_equal(test.files->root, in_folder("d"));
    assert_true(has_name(&all, name_of(&test, 3)));
    cddpi_dataset_close(&test);
    cddpi_dataset_close(&all);
}

/* Files that a user adds later change the choice of the others as little as possible. */
static void the_names_choose_what_is_held_back(void **state)
{
    struct cddpi_dataset train = {0}, test = {0}, train_later = {0}, test_later = {0};
    char first[64];
    int same = 0;

    (void)state;
    need_png();
    make_dir("d"), make_dir("d/a");
    for (int i = 0; i < 80; i++) {
        snprintf(first, sizeof first, "d/a/%d.png", i);
        make_file(first, "");
    }
    assert_int_equal(open_folder("d", &train), CDDP_OK);
    assert_int_equal(cddpi_dataset_split_image_folder(&train, 0.25, &test), CDDP_OK);
    make_file("d/a/0000.png", "");
    assert_int_equal(open_folder("d", &train_later), CDDP_OK);
    assert_int_equal(cddpi_dataset_split_image_folder(&train_later, 0.25, &test_later), CDDP_OK);
    assert_int_equal(test.count, 20);
    for (uint64_t i = 0; i < test.count; i++) {
        same += has_name(&test_later, name_of(&test, i));
    }
    assert_true(same >= 19);
    cddpi_dataset_close(&train);
    cddpi_dataset_close(&test);
    cddpi_dataset_close(&train_later);
    cddpi_dataset_close(&test_later);
}

static void a_folder_of_single_images_cannot_be_split(void **state)
{
    struct cddpi_dataset train = {0}, test = {0};

    (void)state;
    need_png();
    make_dir("s"), make_dir("s/a"), make_dir("s/b");
    make_file("s/a/1.png", ""), make_file("s/b/1.png", "");
    assert_int_equal(open_folder("s", &train), CDDP_OK);
    assert_int_equal(cddpi_dataset_split_image_folder(&train, 0.5, &test), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "s: no class has two images"));
    assert_int_equal(train.count, 2);
    cddpi_dataset_close(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(held_back_images_are_a_part_of_each_class_and_not_trained_on),
        IN_FOLDER(the_names_choose_what_is_held_back),
        IN_FOLDER(a_folder_of_single_images_cannot_be_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
