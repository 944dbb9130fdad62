/* test_resume.c - a run starts from the beginning only if there is nothing to resume: a checkpoint
 * that cannot be read, belongs to another run or is finished is reported, and nothing is moved
 * away. */
#include "checkpoint/snapshot.h"
#include "support/launcher.h"
#include "support/train.h"

#include <errno.h>

static struct run_options steps(const char *run_dir, const char *most)
{
    return (struct run_options){.ranks = 1,
                                .arguments = {run_dir_argument(run_dir), most, "train.resume=auto",
                                              "train.tensorboard=false"}};
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define NEED_FAILING_CALLS()                                                                       \
    print_message("a sanitizer wants to be loaded before the calls that fail\n");                  \
    skip()
#else
#define NEED_FAILING_CALLS()
#endif

/* From now on programs meet @p error_number at paths that end with @p path. */
static void let_fail(const char *path, int error_number, const char *lists)
{
    setenv("LD_PRELOAD", launcher_path("tests/libfailing_calls.so"), 1);
    setenv("FAILING_PATH", path, 1);
    support_setenv_number("FAILING_ERRNO", error_number);
    if (lists != NULL) {
        setenv("FAILING_LISTS", lists, 1);
    }
}

static void let_be(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("FAILING_PATH");
    unsetenv("FAILING_LISTS");
    unsetenv("FAILING_CALLS");
}

/* The run in @p run_dir is untouched, and goes on from step 2. */
static void assert_untouched(const char *run_dir)
{
    struct run_options options = steps(run_dir, "train.max_steps=3");
    struct run run;

    assert_int_not_equal(access(in_work("%s/earlier-1", run_dir), F_OK), 0);
    assert_int_equal(access(in_work("%s/metrics.jsonl", run_dir), F_OK), 0);
    assert_int_equal(access(in_work("%s/report.html", run_dir), F_OK), 0);
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000002: step 2");
}

static void checkpoints_that_cannot_be_read_are_not_taken_for_none(void **state)
{
    static const int errors[] = {EACCES, EIO, ESTALE, EMFILE, ENFILE, ENOMEM, ETIMEDOUT};
    char text[128];

    (void)state;
    NEED_FAILING_CALLS();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        for (int lists = 0; lists < 2; lists++) {
            char *name = argument("unread-%d-%d", (int)i, lists);
            struct run_options options = steps(name, "train.max_steps=2");
            struct run run;

            run_well(&options);
            let_fail("/checkpoints", errors[i], lists != 0 ? "1" : NULL);
            run = run_badly(&options);
            let_be();
            assert_says(&run, "err", 0, strerror_r(errors[i], text, sizeof text));
            assert_says(&run, "err", 0, "checkpoints");
            assert_untouched(name);
        }
    }
}

static void a_folder_of_a_run_that_cannot_be_read_is_left_alone(void **state)
{
    struct run_options options = steps("shut", "train.max_steps=2");
    struct run run;

    (void)state;
    NEED_FAILING_CALLS();
    run_well(&options);
    options.arguments[2] = "train.resume=none";
    let_fail("/shut", EACCES, NULL);
    run = run_badly(&options);
    let_be();
    assert_says(&run, "err", 0, "/shut: Permission denied");
    assert_untouched("shut");
}

static void a_whole_checkpoint_that_cannot_be_opened_is_not_passed_over(void **state)
{
    struct run_options options = steps("newest", "train.max_steps=2");
    struct run run;

    (void)state;
    NEED_FAILING_CALLS();
    options.arguments[4] = "train.checkpoint_steps=1";
    run_well(&options);
    let_fail("step-00000002/model.safetensors", ESTALE, NULL);
    run = run_badly(&options);
    let_be();
    assert_says(&run, "err", 0, "step-00000002/model.safetensors: Stale file handle");
    assert_untouched("newest");
}

static void what_cannot_be_put_aside_stays_whole(void **state)
{
    struct run_options options = steps("kept", "train.max_steps=2");
    struct run run;

    (void)state;
    NEED_FAILING_CALLS();
    run_well(&options);
    options.arguments[2] = "train.resume=none";
    let_fail("/kept", EIO, "1");
    run = run_badly(&options);
    let_be();
    assert_says(&run, "err", 0, "/kept: Input/output error");
    assert_untouched("kept");
}

static void list_begins_with(const char *path, const char *name, bool is_there)
{
    char *whole = argument("%s/%s", path, name);

    if ((access(whole, F_OK) == 0) != is_there) {
        fail_msg("%s %s", whole, is_there ? "is missing" : "is there");
    }
}

/* What is made beforehand for checkpoints, by a user whose large disk is elsewhere. */
static void checkpoints_made_beforehand_as_a_link_are_used(void **state)
{
    struct run_options options = steps("linked", "train.max_steps=2");
    char *disk = argument("%s", in_work("large-disk"));
    struct run run;

    (void)state;
    options.arguments[2] = "train.resume=none";
    assert_int_equal(mkdir(disk, 0700), 0);
    assert_int_equal(mkdir(in_work("linked"), 0700), 0);
    assert_int_equal(symlink(disk, in_work("linked/checkpoints")), 0);
    run_well(&options);
    list_begins_with(disk, "step-00000002", true);
    list_begins_with(in_work("linked"), "earlier-1", false);
    /* a second run puts the first aside, on its disk, and uses the disk, too */
    support_write_file(argument("%s/notes", disk), "mine", 4);
    options.arguments[1] = "train.max_steps=3";
    run = run_well(&options);
    assert_says(&run, "err", 0, "the earlier run in ");
    list_begins_with(disk, "step-00000002", false);
    list_begins_with(disk, "step-00000003", true);
    list_begins_with(disk, "notes", true);
    list_begins_with(in_work("linked/earlier-1/checkpoints"), "step-00000002", true);
    list_begins_with(in_work("linked/earlier-1"), "metrics.jsonl", true);
    /* and the first can be gone on with */
    options.arguments[0] = run_dir_argument("from-linked");
    options.arguments[2] = argument("train.resume=%s", in_work("linked/earlier-1"));
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000002: step 2");
}

static void an_empty_folder_of_checkpoints_is_no_earlier_run(void **state)
{
    struct run_options options = steps("empty", "train.max_steps=2");

    (void)state;
    assert_int_equal(mkdir(in_work("empty"), 0700), 0);
    assert_int_equal(mkdir(in_work("empty/checkpoints"), 0700), 0);
    run_well(&options);
    list_begins_with(in_work("empty"), "earlier-1", false);
}

static void a_link_to_a_disk_that_is_away_ends_the_run_before_it_trains(void **state)
{
    struct run_options options = steps("away", "train.max_steps=2");
    struct run run;

    (void)state;
    assert_int_equal(mkdir(in_work("away"), 0700), 0);
    assert_int_equal(symlink(in_work("no-such-disk"), in_work("away/checkpoints")), 0);
    run = run_badly(&options);
    assert_says(&run, "err", 0, "away/checkpoints is a link to what is not there");
}

static void a_run_that_cannot_be_put_aside_whole_stays_where_it_was(void **state)
{
    struct run_options options = steps("halfway", "train.max_steps=2");
    struct run run;

    (void)state;
    NEED_FAILING_CALLS();
    run_well(&options);
    options.arguments[2] = "train.resume=none";
    for (int i = 0; i < 2; i++) { /* whichever is moved last */
        let_fail(i == 0 ? "earlier-1/checkpoints" : "earlier-1/metrics.jsonl", EBUSY, NULL);
        run = run_badly(&options);
        let_be();
        assert_says(&run, "err", 0, "Device or resource busy");
    }
    assert_untouched("halfway");
}

/* Run one rank in @p run_dir to @p most steps as a launcher would that sets @p a, @p b and @p c. */
static void run_as(const char *run_dir, int most, const char *a, const char *b, const char *c)
{
    struct launched job = {0};

    launcher_start_program(&job, "env",
                           (const char *const[]){a, b, c,
                                                 argument("%s", launcher_path("src/cddp-train")),
                                                 in_work("small.conf"), run_dir_argument(run_dir),
                                                 "train.tensorboard=false", "train.resume=none",
                                                 argument("train.max_steps=%d", most), NULL});
    launcher_wait(&job);
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    launcher_end(&job);
}

/* Steps that were done before the last start, or -1: it began anew and put the rest aside. */
static int begun_at(const char *run_dir)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    const char *last = NULL;
    int step = -1;

    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "{\"kind\":\"run\"")) != NULL; at++) {
        last = at;
    }
    assert_non_null(last);
    (void)sscanf(last, "{\"kind\":\"run\",\"step\":%d,", &step);
    free(text);
    return step == 0 && access(in_work("%s/earlier-1", run_dir), F_OK) == 0 ? -1 : step;
}

static void a_job_that_its_launcher_starts_again_goes_on(void **state)
{
    static const struct {
        const char *a, *b, *b_again, *c;
    } launchers[] = {
        {"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_RESTART_COUNT=1",
         "X=1"},
        {"TORCHELASTIC_RUN_ID=100",
         "TORCHELASTIC_ERROR_FILE=/tmp/te_x/100_y/attempt_0/0/error.json",
         "TORCHELASTIC_ERROR_FILE=/tmp/te_x/100_y/attempt_1/0/error.json", "X=1"},
        {"SLURM_JOB_ID=77", "SLURM_RESTART_COUNT=0", "SLURM_RESTART_COUNT=2", "SLURM_STEP_ID=0"},
        {"CDDP_JOB=4f2a-11", "X=1", "X=2", "X=3"},
        /* cddp-run in a batch script, which has an id of its own each time */
        {"SLURM_JOB_ID=78", "CDDP_JOB=first", "CDDP_JOB=second", "CDDP_GENERATION=0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        char *name = argument("again-%zu", i);

        run_as(name, 2, launchers[i].a, launchers[i].b, launchers[i].c);
        if (i == 4) {
            setenv("SLURM_RESTART_COUNT", "1", 1);
        }
        run_as(name, 3, launchers[i].a, launchers[i].b_again, launchers[i].c);
        unsetenv("SLURM_RESTART_COUNT");
        if (begun_at(name) != 2) {
            fail_msg("%s, %s began at %d", launchers[i].a, launchers[i].b_again, begun_at(name));
        }
    }
}

static void another_job_in_the_same_folder_begins_anew(void **state)
{
    static const struct {
        const char *a, *b, *a_again, *b_again;
    } launchers[] = {
        {"TORCHELASTIC_RUN_ID=none", "X=1", "TORCHELASTIC_RUN_ID=none",
         "TORCHELASTIC_RESTART_COUNT=0"},
        {"TORCHELASTIC_RUN_ID=1", "X=1", "TORCHELASTIC_RUN_ID=2", "TORCHELASTIC_RESTART_COUNT=1"},
        {"TORCHELASTIC_RUN_ID=100",
         "TORCHELASTIC_ERROR_FILE=/tmp/te_x/100_y/attempt_0/0/error.json",
         "TORCHELASTIC_RUN_ID=100",
         "TORCHELASTIC_ERROR_FILE=/tmp/te_z/100_y/attempt_0/0/error.json"},
        {"SLURM_JOB_ID=77", "SLURM_RESTART_COUNT=0", "SLURM_JOB_ID=78", "SLURM_RESTART_COUNT=1"},
        {"SLURM_JOB_ID=77", "X=1", "SLURM_JOB_ID=77", "X=2"},
        {"CDDP_JOB=one", "X=1", "CDDP_JOB=two", "X=1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        char *name = argument("other-%zu", i);

        run_as(name, 2, launchers[i].a, launchers[i].b, "X=0");
        run_as(name, 2, launchers[i].a_again, launchers[i].b_again, "X=0");
        if (begun_at(name) != -1) {
            fail_msg("%s, %s began at %d", launchers[i].a_again, launchers[i].b_again,
                     begun_at(name));
        }
    }
}

/* Reverse the @p bytes at @p at of a file below the folder. */
static void reverse(const char *name, size_t at, size_t bytes)
{
    size_t all = 0;
    char *data = get_file(in_work("%s", name), &all);

    assert_true(at + bytes <= all);
    for (size_t i = 0; i < bytes / 2; i++) {
        char first = data[at + i];

        data[at + i] = data[at + bytes - 1 - i];
        data[at + bytes - 1 - i] = first;
    }
    support_write_file(in_work("%s", name), data, all);
    free(data);
}

/* The run in @p run_dir must not go on, and says @p says; with train.resume_data=any it does. */
static void assert_noticed(struct run_options *options, const char *says)
{
    struct run run;

    options->arguments[1] = "train.max_steps=3";
    run = run_badly(options);
    assert_says(&run, "err", 0, says);
    assert_says(&run, "err", 0, "set train.resume_data = \"any\" to continue with these");
    options->arguments[4] = "train.resume_data=any";
    run = run_well(options);
    assert_says(&run, "err", 0, says);
    assert_says(&run, "err", 0, "warning: ");
    options->arguments[1] = "train.max_steps=4"; /* the new checkpoint is of the new data */
    options->arguments[4] = NULL;
    run = run_well(options);
    assert_says(&run, "err", 0, "step-00000003: step 3");
}

static void data_of_other_contents_are_noticed(void **state)
{
    struct run_options options = steps("labels", "train.max_steps=2");

    (void)state;
    run_well(&options);
    reverse("train-labels", 8, TRAIN_SAMPLES);
    assert_noticed(&options, "data.train_labels: the data have other contents");
    options.arguments[0] = run_dir_argument("pixels");
    options.arguments[1] = "train.max_steps=2";
    run_well(&options);
    reverse("train-images", 16 + 3 * SIDE * SIDE, (size_t)SIDE * SIDE);
    assert_noticed(&options, "data.train_images: the data have other contents");
    options.arguments[0] = run_dir_argument("texts");
    options.arguments[1] = "train.max_steps=2";
    options.conf = "text.conf";
    run_well(&options);
    reverse("words.txt", 1000, 200);
    assert_noticed(&options, "data.train: the data have other contents");
}

static void the_same_data_packed_otherwise_and_elsewhere_are_the_same(void **state)
{
    struct run_options options = steps("packed", "train.max_steps=2");
    struct run run;

    (void)state;
    run_well(&options);
    assert_int_equal(system(argument("gzip -c '%s' >'%s'", in_work("train-labels"),
                                     in_work("packed-labels.gz"))),
                     0);
    options.ranks = 2;
    options.arguments[1] = "train.max_steps=3";
    options.arguments[4] = argument("data.train_labels=%s", in_work("packed-labels.gz"));
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000002: step 2");
}

/* Take what earlier versions did not write from a checkpoint. */
static void make_old(const char *path)
{
    json_t *document = json_load_file(path, 0, NULL);

    assert_non_null(document);
    assert_int_equal(json_object_del(json_object_get(document, "state"), "data"), 0);
    (void)json_object_del(json_object_get(document, "state"), "context");
    assert_true(cddpi_state_seal(document));
    assert_int_equal(json_dump_file(document, path, 0), 0);
    json_decref(document);
}

static void a_checkpoint_of_an_earlier_version_goes_on(void **state)
{
    struct run_options options = steps("old", "train.max_steps=2");
    struct run run;

    (void)state;
    run_well(&options);
    make_old(in_work("old/checkpoints/step-00000002/state.json"));
    options.arguments[1] = "train.max_steps=3";
    run = run_well(&options);
    assert_says(&run, "err", 0, "step-00000002: step 2");
}

/* Go on as generation @p generation of @p ranks ranks up to step @p most. Returns how often the run
 * says that its bits depend on that number. */
static int go_on(struct run_options *options, int generation, int ranks, int most)
{
    struct run run;
    char *err;
    int count;

    support_setenv_number("CDDP_GENERATION", generation);
    options->ranks = ranks;
    options->arguments[1] = argument("train.max_steps=%d", most);
    run = run_well(options);
    if (generation > 0) {
        assert_says(&run, "err", 0, argument(": step %d, ", most - 2));
    }
    err = output(&run, "err", 0);
    count = launcher_count(err, argument("the run goes on with %d ranks instead of %d: without "
                                         "train.micro_batch, its bits depend on",
                                         ranks, ranks == 2 ? 4 : 2));
    free(err);
    return count;
}

static void a_run_goes_on_with_other_ranks_and_says_once_what_that_means(void **state)
{
    static const char *const kinds[] = {"train.accumulate=1", "ddp.shard_optimizer=true",
                                        "parallel.pipeline=2", "train.micro_batch=8"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *name = argument("ranks-%d", i);
        struct run_options options = steps(name, "");
        char *text;

        options.arguments[4] = kinds[i];
        options.arguments[5] = "model.hidden=[16,16]";
        assert_int_equal(go_on(&options, 0, 4, 2), 0);
        setenv("CDDP_GENERATION_REASON", "rank 1 \033[2J leaves", 1);
        assert_int_equal(go_on(&options, 1, 2, 4), i == 3 ? 0 : 1);
        unsetenv("CDDP_GENERATION_REASON");
        assert_int_equal(go_on(&options, 2, 4, 6), 0);
        text = get_file(in_work("%s/metrics.jsonl", name), NULL);
        launcher_need_text(text, "\"generation\":1,\"reason\":\"rank 1 \\\\x1b[2J leaves\"", name);
        launcher_need_text(text, "\"generation\":2", name);
        assert_int_equal(launcher_count(text, "\"reason\""), 1);
        free(text);
        if (i == 3) {
            options.arguments[0] = run_dir_argument("ranks-whole");
            assert_int_equal(go_on(&options, 0, 4, 6), 0);
            assert_same_checkpoint(name, "ranks-whole", 6);
        }
    }
    unsetenv("CDDP_GENERATION");
}

static void another_context_is_named_by_its_key(void **state)
{
    struct run_options options = steps("context", "train.max_steps=2");
    struct run run;

    (void)state;
    options.conf = "text.conf";
    run_well(&options);
    options.arguments[1] = "train.max_steps=3";
    options.arguments[4] = "model.context=7";
    run = run_badly(&options);
    assert_says(&run, "err", 0, "model.context: is 7, but ");
    assert_says(&run, "err", 0, " was made with 15");
    make_old(in_work("context/checkpoints/step-00000002/state.json"));
    run = run_badly(&options);
    assert_says(&run, "err", 0, "or another model.context, ");
}

static void a_run_that_is_through_says_so(void **state)
{
    struct run_options options = steps("through", "train.max_steps=2");
    struct run run;
    char *text;

    (void)state;
    for (int i = 0; i < 2; i++) {
        run_well(&options);
        run = run_well(&options);
        text = output(&run, "err", 0);
        assert_null(strstr(text, ", epoch"));
        free(text);
        assert_says(&run, "err", 0,
                    i == 0 ? "step-00000002: step 2: the run is already complete; a larger "
                             "train.max_steps (now 2) would train longer"
                           : "step-00000030: step 30: the run is already complete; a larger "
                             "train.epochs (now 3) would train longer");
        options.arguments[1] = "train.epochs=3";
    }
}

static void a_last_checkpoint_that_fails_for_a_passing_reason_is_tried_again(void **state)
{
    static const int errors[] = {EMFILE, ENFILE, EIO, ESTALE, ETIMEDOUT, EDQUOT, EACCES, EROFS};
    char text[128];

    (void)state;
    NEED_FAILING_CALLS();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct run_options options = steps(argument("passing-%zu", i), "train.max_steps=2");
        struct run run;

        setenv("FAILING_CALLS", "1", 1);
        let_fail("model.safetensors", errors[i], NULL);
        run = run_well(&options);
        let_be();
        assert_says(&run, "err", 0, strerror_r(errors[i], text, sizeof text));
        assert_says(&run, "err", 0, "etrying for 600 s (train.full_disk_seconds)");
        list_begins_with(in_work("passing-%zu/checkpoints", i), "step-00000002", true);
    }
}

static void a_last_checkpoint_whose_name_is_wrong_fails_at_once(void **state)
{
    struct run_options options = steps("final", "train.max_steps=2");
    struct run run;

    (void)state;
    NEED_FAILING_CALLS();
    let_fail("model.safetensors", ENAMETOOLONG, NULL);
    run = run_badly(&options);
    let_be();
    assert_says(&run, "err", 0, "checkpoint of step 2: ");
}

/* What is made in the work folder, and what is said where train.resume names it. */
static const struct {
    const char *file; /* by which it is there; NULL: it is not, or a run has made it */
    const char *named;
    const char *says[2];
} odd[] = {
    {NULL, "not-there", {"not-there: "}},
    {"hf/model.safetensors",
     "hf",
     {"/hf holds the weights of a model (model.safetensors), but no checkpoint, so a run cannot "
      "continue ",
      "To begin a new run with these weights, set model.weights"}},
    {"hf/config.json", "hf/", {"/hf holds the weights of a model (model.safetensors), "}},
    {NULL, "hf/model.safetensors", {"/hf/model.safetensors is a file of weights", "model.weights"}},
    {NULL, "hf/config.json", {"must be the folder of a checkpoint or of a run"}},
    {"shards/model.safetensors.index.json",
     "shards",
     {"(model.safetensors.index.json)", "model.weights"}},
    {"theirs/pytorch_model.bin", "theirs", {"(pytorch_model.bin)", "model.weights"}},
    {"tuned/checkpoint-500/optimizer.pt",
     "tuned/checkpoint-500",
     {"(optimizer.pt)", "model.weights"}},
    {"other/readme.txt",
     "other",
     {"/other is neither a checkpoint nor the folder of a run: it holds readme.txt only"}},
    {"bare/", "bare", {"/bare is empty"}},
    {"begun/checkpoints/", "begun", {"/begun has no checkpoint yet"}},
    {"begun/checkpoints/latest",
     "begun/checkpoints/latest",
     {"is a file of a run: name its folder, ", "/begun/checkpoints"}},
    {"cut/checkpoints/step-00000002/model.safetensors",
     "cut",
     {"no checkpoint is complete", "state.json"}},
    {NULL, "cut/checkpoints/step-00000002", {"is incomplete: it lacks state.json"}},
    {"many/a/checkpoints/", "many", {"holds the folder of 1 run: name", "/many/a"}},
    {"many/b/checkpoints/", "many", {"holds the folders of 2 runs: name", "/many/a"}},
    {NULL, "odd/train.conf", {"is a file of a run: name its folder, ", "/odd"}},
    {NULL,
     "odd/checkpoints/step-00000002/model.safetensors",
     {"is a file of a checkpoint: name the checkpoint's folder, ", "/step-00000002"}},
};

static void make_with_folders(const char *name)
{
    for (const char *at = strchr(name, '/'); at != NULL; at = strchr(at + 1, '/')) {
        (void)mkdir(in_work("%.*s", (int)(at - name), name), 0700);
    }
    if (name[strlen(name) - 1] != '/') {
        support_write_file(in_work("%s", name), "x", 1);
    }
}

static void what_is_no_checkpoint_is_called_what_it_is(void **state)
{
    struct run_options options = steps("odd", "train.max_steps=2");

    (void)state;
    run_well(&options);
    options.arguments[0] = run_dir_argument("not-odd");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct run run;
        char *err;

        if (odd[i].file != NULL) {
            make_with_folders(odd[i].file);
        }
        options.arguments[2] = argument("train.resume=%s", in_work("%s", odd[i].named));
        run = run_badly(&options);
        assert_says(&run, "err", 0, "train.resume: ");
        for (int s = 0; s < 2 && odd[i].says[s] != NULL; s++) {
            assert_says(&run, "err", 0, odd[i].says[s]);
        }
        err = output(&run, "err", 0);
        assert_null(strstr(err, "train.resume: train.resume"));
        free(err);
        assert_int_not_equal(access(in_work("not-odd/checkpoints"), F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_that_cannot_be_read_are_not_taken_for_none),
        cmocka_unit_test(a_folder_of_a_run_that_cannot_be_read_is_left_alone),
        cmocka_unit_test(a_whole_checkpoint_that_cannot_be_opened_is_not_passed_over),
        cmocka_unit_test(what_cannot_be_put_aside_stays_whole),
        cmocka_unit_test(checkpoints_made_beforehand_as_a_link_are_used),
        cmocka_unit_test(an_empty_folder_of_checkpoints_is_no_earlier_run),
        cmocka_unit_test(a_link_to_a_disk_that_is_away_ends_the_run_before_it_trains),
        cmocka_unit_test(a_run_that_cannot_be_put_aside_whole_stays_where_it_was),
        cmocka_unit_test(a_job_that_its_launcher_starts_again_goes_on),
        cmocka_unit_test(another_job_in_the_same_folder_begins_anew),
        cmocka_unit_test(data_of_other_contents_are_noticed),
        cmocka_unit_test(the_same_data_packed_otherwise_and_elsewhere_are_the_same),
        cmocka_unit_test(a_checkpoint_of_an_earlier_version_goes_on),
        cmocka_unit_test(a_run_goes_on_with_other_ranks_and_says_once_what_that_means),
        cmocka_unit_test(another_context_is_named_by_its_key),
        cmocka_unit_test(a_run_that_is_through_says_so),
        cmocka_unit_test(a_last_checkpoint_that_fails_for_a_passing_reason_is_tried_again),
        cmocka_unit_test(what_is_no_checkpoint_is_called_what_it_is),
        cmocka_unit_test(a_last_checkpoint_whose_name_is_wrong_fails_at_once),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
