/* test_image_job.c - whole runs on folders of images: they learn, any number of ranks reads the
 * same data, and a broken file is named or counted. */
#include "support/images.h"
#include "support/train.h"

enum { TRAIN_PER_CLASS = 20, TEST_PER_CLASS = 4, IMAGE_CLASSES = 3, SAMPLES = 60 };

static void make_conf(const char *more)
{
    char text[8192];

    snprintf(text, sizeof text,
             "model = { type = \"layers\"; layers = (\n"
             "  { type = \"conv2d\"; units = 8; kernel = 3; padding = 1; }, { type = \"relu\"; },\n"
             "  { type = \"global_avg_pool\"; }, { type = \"linear\"; units = 3; }); };\n"
             "data = { type = \"image_folder\"; train = \"%s\"; test = \"%s\"; size = 16;\n"
             "  mean = [0.4, 0.4, 0.4]; std = [0.2, 0.2, 0.2]; flip = true; %s };\n"
             "train = { epochs = 6; batch_size = 12; device = \"cpu\"; log_steps = 1; };\n"
             "optimizer = { type = \"sgd\"; lr = 0.1; };\n",
             in_work("train"), in_work("test"), more);
    support_write_file(in_work("images.conf"), text, strlen(text));
}

static void make_data(void)
{
    need_png();
    make_image_folder(in_work("train"), IMAGE_CLASSES, TRAIN_PER_CLASS, 24, 1);
    make_image_folder(in_work("test"), IMAGE_CLASSES, TEST_PER_CLASS, 20, 2);
}

static void a_run_on_a_folder_of_images_learns_its_classes(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "images.conf", .arguments = {run_dir_argument("two"), NULL}};

    (void)state;
    make_data();
    make_conf("");
    run_well(&options);
    assert_true(metric("two", 1, "loss") > 0.5);
    assert_true(metric("two", 30, "loss") < 0.05);
    assert_true(metric("two", 30, "eval_accuracy") > 0.9);
}

static void a_folder_without_test_images_is_split(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .conf = "images.conf",
        .arguments = {run_dir_argument("split"), "data.test=[]", "data.test_fraction=0.2", NULL}};
    struct run_options again = {.ranks = 1,
                                .conf = "images.conf",
                                .arguments = {run_dir_argument("split"), "data.test=[]",
                                              "data.test_fraction=0.2", "train.epochs=7",
                                              "train.resume=auto", NULL}};

    (void)state;
    make_data();
    make_conf("");
    run_well(&options);
    assert_true(metric("split", 24, "eval_accuracy") > 0.9); /* 48 of 60 images, 6 epochs */
    run_well(&again);                                        /* the same samples: an error else */
    assert_true(metric("split", 28, "eval_accuracy") > 0.9);
}

static void any_number_of_ranks_and_threads_reads_the_same_images(void **state)
{
    struct run_options one = {
        .ranks = 1,
        .conf = "images.conf",
        .arguments = {run_dir_argument("one"), "train.max_steps=1", "data.threads=0", NULL}};
    struct run_options three = {
        .ranks = 3,
        .conf = "images.conf",
        .arguments = {run_dir_argument("three"), "train.max_steps=1", "data.threads=2", NULL}};

    (void)state;
    make_data();
    make_conf("");
    run_well(&one);
    run_well(&three);
    assert_true(fabs(metric("one", 1, "loss") - metric("three", 1, "loss")) < 1e-6);
}

static void a_broken_file_ends_the_run_with_its_name(void **state)
{
    struct run_options options = {
        .ranks = 2, .conf = "images.conf", .arguments = {run_dir_argument("bad"), NULL}};
    struct run run;
    size_t bytes;
    uint8_t *file = image_vector_file("rgb.jpg", &bytes);
    char *said;

    (void)state;
    need_jpeg();
    make_data();
    make_conf("");
    support_write_file(in_work("train/c1/010.jpg"), file, bytes / 2);
    free(file);
    run = run_badly(&options);
    said = output(&run, "err", 0);
    if (strstr(said, "c1/010.jpg: ") == NULL) {
        assert_says(&run, "err", 1, "c1/010.jpg: ");
    }
    assert_true(strstr(said, "the JPEG file is") == NULL ||
                strstr(said, "(data.on_error = \"skip\" trains without broken files)") != NULL);
    free(said);
    said = output(&run, "err", 0);
    assert_non_null(strstr(said, "the run failed after "));
    free(said);
}

static void skipped_files_are_counted_over_ranks_and_one_is_named(void **state)
{
    const char *const broken[] = {"train/c0/003.png", "train/c1/004.png", "train/c2/019.png",
                                  "test/c1/001.png"};
    struct run_options options = {.ranks = 2,
                                  .conf = "images.conf",
                                  .arguments = {run_dir_argument("skip"), "train.epochs=1", NULL}};
    struct run run;

    (void)state;
    make_data();
    make_conf("on_error = \"skip\";");
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        support_write_file(in_work("%s", broken[i]), "no image", 8);
    }
    run = run_well(&options);
    assert_says(&run, "err", 0,
                "3 samples to train on and 1 to evaluate on were replaced by others");
    assert_says(&run, "err", 0, ".png: ");
}

static void a_folder_that_is_not_there_is_an_error_with_its_key(void **state)
{
    struct run_options options = {
        .ranks = 1, .conf = "images.conf", .arguments = {run_dir_argument("none"), NULL}};
    struct run run;

    (void)state;
    need_png();
    make_image_folder(in_work("train"), 1, 1, 8, 1);
    make_conf("");
    run = run_badly(&options);
    assert_says(&run, "err", 0, argument("data.test: %s: ", in_work("test")));
}

/* As it stands in examples/, on other images, and for two steps of four. */
static void run_example(const char *name, const char *run)
{
    struct run_options options = {
        .ranks = 1,
        .conf = name,
        .arguments = {run_dir_argument(run), argument("data.train=%s", in_work("train")),
                      argument("data.test=%s", in_work("test")), "train.max_steps=2",
                      "train.batch_size=4", "train.eval_batch_size=4", "train.eval_batches=1",
                      "train.checkpoint_at_end=false", NULL}};
    char path[4096];
    size_t bytes = 0;
    char *text;

    snprintf(path, sizeof path, "%s/examples/%s", getenv("CDDP_TEST_SOURCE"), name);
    text = get_file(path, &bytes);
    assert_non_null(text);
    support_write_file(in_work("%s", name), text, bytes);
    free(text);
    run_well(&options);
    assert_true(isfinite(metric(run, 2, "loss")));
}

static void the_examples_on_folders_of_images_run(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("up to 130 million parameters, and the threads of the other tests\n");
    skip();
#endif
    make_data();
    run_example("alexnet.conf", "alexnet");
    run_example("imagefolder_vgg11.conf", "vgg11");
    run_example("imagefolder_resnet50.conf", "resnet50");
}

#define IN_WORK(test) cmocka_unit_test_setup_teardown(test, make_work, remove_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORK(a_run_on_a_folder_of_images_learns_its_classes),
        IN_WORK(a_folder_without_test_images_is_split),
        IN_WORK(any_number_of_ranks_and_threads_reads_the_same_images),
        IN_WORK(a_broken_file_ends_the_run_with_its_name),
        IN_WORK(skipped_files_are_counted_over_ranks_and_one_is_named),
        IN_WORK(a_folder_that_is_not_there_is_an_error_with_its_key),
        IN_WORK(the_examples_on_folders_of_images_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
