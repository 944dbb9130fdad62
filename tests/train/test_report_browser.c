/* test_report_browser.c - the report page of a run in a browser: what it shows, that text stays
 * text, and that it works on all screens, by mouse and by keyboard. report_harness.html looks at
 * all pages in one start of the browser; the cases here check what it found. */
#include "support/launcher.h"
#include "support/report.h"

static const char *browser; /* NULL: there is none */
static char *found;         /* the harness after its checks */
static char *found_dark;    /* the same on a dark screen */

/* Open @p address with @p option and @p doing. Returns what the browser prints; free() it. */
static char *browse(const char *address, const char *option, const char *doing)
{
    struct launched job = {.dir = folder};
    char profile[5000];

    snprintf(profile, sizeof profile, "--user-data-dir=%s", in_folder("profile"));
    launcher_start_program(
        &job, browser,
        (const char *const[]){"--headless", "--no-sandbox", "--disable-gpu",
                              "--disable-dev-shm-usage", "--allow-file-access-from-files",
                              "--window-size=1200,2000", profile, option, doing, address, NULL});
    launcher_wait(&job);
    free(job.err);
    return job.out;
}

static char *harness(const char *checks, const char *option)
{
    char address[6000];

    snprintf(address, sizeof address,
             "file://%s/tests/train/report_harness.html?folder=file://%s%s",
             getenv("CDDP_TEST_SOURCE"), folder, checks);
    return browse(address, option, "--dump-dom");
}

/* Put @p text at @p place of a page, over @p bytes of what is there. */
static void change_page(const char *name, const char *place, size_t bytes, const char *text)
{
    char *page = launcher_read(folder, name);
    char *at = page != NULL ? strstr(page, place) : NULL;
    FILE *file = fopen(in_folder(name), "we");

    assert_non_null(at);
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(at - page), page, text, at + bytes);
    fclose(file);
    free(page);
}

/* Even text that became markup could do nothing. */
static const char intruders[] =
    "<script>document.title='evil'</script><style>body{display:grid}</style>"
    "<p class=intruder style='position:fixed' onclick='document.title=1'>p</p>"
    "<img class=intruder src='data:image/gif;base64,"
    "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7' onload='document.title=2' "
    "onerror='document.title=3'><a class=intruder href='javascript:document.title=4'>a</a>";

/* Steps between which doubles have no others, values whose difference overflows, and names that
 * objects of JavaScript have anyway. */
static const char odd[] =
    "{\"kind\":\"run\",\"step\":0,\"seed\":{\"__proto__\":[null,true]},\"job\":null,"
    "\"__proto__\":1,\"constructor\":\"<\"}\n"
    "{\"step\":100000000000000000,\"loss\":1e308,\"lr\":1e-300,\"step_ms\":0,\"data_ms\":-1}\n"
    "{\"step\":100000000000000032,\"loss\":-1e308,\"lr\":1e-300,\"step_ms\":-1}\n"
    "{\"step\":-1e300,\"eval_loss\":0,\"grad_norm\":5}\n";

/* A job that goes on with other numbers of ranks, and then by hand under an earlier version. */
static const char generations[] =
    "{\"kind\":\"run\",\"step\":0,\"world_size\":3,\"generation\":0}\n"
    "{\"step\":10,\"loss\":2,\"slowest_rank_ms\":5,\"median_rank_ms\":3}\n"
    "{\"kind\":\"run\",\"step\":50,\"world_size\":2,\"generation\":1,"
    "\"reason\":\"rank 1 leaves <b>\\u0001\"}\n"
    "{\"kind\":\"run\",\"step\":100,\"world_size\":3,\"generation\":2,\"reason\":7}\n"
    "{\"kind\":\"run\",\"step\":120,\"world_size\":-1,\"generation\":2}\n"
    "{\"kind\":\"run\",\"step\":150,\"world_size\":1}\n"
    "{\"step\":200,\"loss\":1,\"slowest_rank_ms\":9,\"median_rank_ms\":3}\n";

enum { FIRST, SECOND, THIRD, EVIL, LONG, ODD, TEXT, IMAGES, SLOW, FAST, CHANGING, RUNS };

static void make_pages(void)
{
    static const char *const names[] = {
        "first", "second", "third", "<img src=x onerror=document.title=\"evil\">'&\xff",
        "a-rather-long-name-that-a-phone-has-no-room-for-in-one-line"};
    char *dirs[RUNS];

    for (int i = 0; i < ODD; i++) {
        dirs[i] = strdup(report_make_run(names[i]));
    }
    dirs[ODD] = strdup(report_make_run_of("odd", odd));
    dirs[CHANGING] = strdup(report_make_run_of("changing", generations));
    dirs[TEXT] = strdup(report_make_text_run("texts"));
    dirs[IMAGES] = strdup(report_make_image_run("sheets"));
    dirs[SLOW] = strdup(report_make_run("slow"));
    dirs[FAST] = strdup(report_make_run("fast"));
    report_configure(dirs[SLOW], "train = {\n  epochs = 2;\n  run_dir = \"slow\";\n};\n"
                                 "optimizer = {\n  lr = 0.1;\n};\n");
    report_configure(dirs[FAST], "train = {\n  epochs = 2;\n  run_dir = \"fast\";\n};\n"
                                 "optimizer = {\n  lr = 0.5;\n  momentum = 0.9;\n};\n");
    report_add_trace(dirs[FIRST]);
    report_add_trace(dirs[EVIL]);
    report_make_page(&dirs[FIRST], 1, "run.html");
    report_make_page(&dirs[FIRST], 1, "values.html");
    report_make_page(&dirs[FIRST], 1, "light.html");
    report_make_page(&dirs[FIRST], 1, "dark.html");
    report_make_page(&dirs[FIRST], 3, "runs.html");
    report_make_page(&dirs[CHANGING], 1, "generations.html");
    report_make_page((char *const[]){dirs[SLOW], dirs[FAST]}, 2, "differ.html");
    report_make_page((char *const[]){dirs[EVIL], dirs[SECOND]}, 2, "strangers.html");
    report_make_page((char *const[]){dirs[FIRST], dirs[LONG]}, 2, "screen.html");
    report_make_page(&dirs[ODD], 1, "odd.html");
    report_make_page(&dirs[TEXT], 1, "text.html");
    report_make_page((char *const[]){dirs[TEXT], dirs[IMAGES]}, 2, "mixed.html");
    report_make_page(&dirs[IMAGES], 1, "images.html");
    report_make_page(&dirs[FIRST], 1, "small.html");
    report_make_page((char *const[]){dirs[FIRST], dirs[SECOND], dirs[THIRD], dirs[EVIL], dirs[LONG],
                                     dirs[FIRST], dirs[SECOND], dirs[THIRD]},
                     8, "many.html");
    report_make_page(&dirs[FIRST], 1, "intruders.html");
    change_page("intruders.html", "<main>", 0, intruders);
    report_make_page(&dirs[FIRST], 1, "blocked.html");
    change_page("blocked.html", "script-src 'sha256-", strlen("script-src"),
                "script-src 'none'; font-src");
    for (int i = 0; i < RUNS; i++) {
        free(dirs[i]);
    }
}

static int look_at_pages(void **state)
{
    static const char *const paths[] = {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                                        "/usr/bin/google-chrome"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0] && browser == NULL; i++) {
        browser = access(paths[i], X_OK) == 0 ? paths[i] : NULL;
    }
    if (make_folder(state) != 0 || browser == NULL) {
        return folder == NULL;
    }
    setenv("HOME", folder, 1);
    make_pages();
    found = harness("&check=run-1200&check=runs-1200&check=values-1200&check=strangers-1200"
                    "&check=text-1200&check=images-1200&check=mixed-1200&check=small-375"
                    "&check=screen-340&check=screen-2400&check=light-1200&check=intruders-1200"
                    "&check=differ-1200&check=blocked-1200&check=odd-1200&check=many-1200"
                    "&check=generations-1200",
                    "--mute-audio");
    found_dark = harness("&check=dark-1200", "--force-dark-mode");
    return 0;
}

static int forget_pages(void **state)
{
    free(found);
    free(found_dark);
    return remove_folder(state);
}

static void need_browser(void)
{
    if (browser == NULL) {
        print_message("no chromium is installed\n");
        skip();
    }
}

/* The harness has nothing to say against the check. */
static void need_check(const char *name, const char *text)
{
    char begin[80];
    const char *said;

    need_browser();
    snprintf(begin, sizeof begin, "<pre id=\"%s\">", name);
    said = strstr(text, begin);
    if (said == NULL) {
        fail_msg("%s: the browser says: %.1000s", name, text);
    }
    said += strlen(begin);
    if (strncmp(said, "as it should be<", strlen("as it should be<")) != 0) {
        fail_msg("%s: %.*s", name, (int)strcspn(said, "<"), said);
    }
}

static void all_of_a_run_is_shown(void **state)
{
    (void)state;
    need_check("run-1200", found);
}

static void generations_of_a_job_are_a_band_over_its_curves(void **state)
{
    (void)state;
    need_check("generations-1200", found);
}

static void a_language_model_has_perplexity_tokens_and_its_texts(void **state)
{
    (void)state;
    need_check("text-1200", found);
}

static void a_generative_model_has_its_images(void **state)
{
    (void)state;
    need_check("images-1200", found);
}

static void runs_of_both_kinds_are_compared(void **state)
{
    (void)state;
    need_check("mixed-1200", found);
}

static void labels_can_be_read_on_a_phone(void **state)
{
    (void)state;
    need_check("small-375", found);
}

static void several_runs_are_drawn_over_each_other(void **state)
{
    (void)state;
    need_check("runs-1200", found);
}

static void keys_that_differ_are_shown_with_their_values(void **state)
{
    (void)state;
    need_check("differ-1200", found);
}

static void more_runs_than_colours_have_a_key_each(void **state)
{
    (void)state;
    need_check("many-1200", found);
}

static void text_of_strangers_stays_text(void **state)
{
    (void)state;
    need_check("strangers-1200", found);
}

static void values_are_shown_by_pointer_and_by_keyboard(void **state)
{
    (void)state;
    need_check("values-1200", found);
}

static void the_page_fits_narrow_and_wide_screens(void **state)
{
    (void)state;
    need_check("screen-340", found);
    need_check("screen-2400", found);
}

static void the_page_is_light_or_dark_as_the_screen_is(void **state)
{
    (void)state;
    need_check("light-1200", found);
    need_check("dark-1200", found_dark);
}

static void what_gets_into_the_page_neither_runs_nor_loads(void **state)
{
    (void)state;
    need_check("intruders-1200", found);
}

static void where_scripts_are_switched_off_the_page_says_so(void **state)
{
    (void)state;
    need_check("blocked-1200", found);
}

static void odd_numbers_do_no_harm(void **state)
{
    (void)state;
    need_check("odd-1200", found);
}

static void the_page_can_be_printed_and_pictured(void **state)
{
    char address[5000];
    char *bytes;

    (void)state;
    need_browser();
    snprintf(address, sizeof address, "file://%s", in_folder("runs.html"));
    free(browse(address, "--no-pdf-header-footer", "--print-to-pdf=page.pdf"));
    bytes = launcher_read(folder, "page.pdf");
    assert_non_null(bytes);
    assert_memory_equal(bytes, "%PDF", 4);
    free(bytes);
    free(browse(address, "--hide-scrollbars", "--screenshot=page.png"));
    bytes = launcher_read(folder, "page.png");
    assert_non_null(bytes);
    assert_memory_equal(bytes, "\x89PNG", 4);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_run_is_shown),
        cmocka_unit_test(generations_of_a_job_are_a_band_over_its_curves),
        cmocka_unit_test(a_language_model_has_perplexity_tokens_and_its_texts),
        cmocka_unit_test(a_generative_model_has_its_images),
        cmocka_unit_test(runs_of_both_kinds_are_compared),
        cmocka_unit_test(labels_can_be_read_on_a_phone),
        cmocka_unit_test(several_runs_are_drawn_over_each_other),
        cmocka_unit_test(keys_that_differ_are_shown_with_their_values),
        cmocka_unit_test(more_runs_than_colours_have_a_key_each),
        cmocka_unit_test(text_of_strangers_stays_text),
        cmocka_unit_test(values_are_shown_by_pointer_and_by_keyboard),
        cmocka_unit_test(the_page_fits_narrow_and_wide_screens),
        cmocka_unit_test(the_page_is_light_or_dark_as_the_screen_is),
        cmocka_unit_test(what_gets_into_the_page_neither_runs_nor_loads),
        cmocka_unit_test(where_scripts_are_switched_off_the_page_says_so),
        cmocka_unit_test(odd_numbers_do_no_harm),
        cmocka_unit_test(the_page_can_be_printed_and_pictured),
    };

    return cmocka_run_group_tests(tests, look_at_pages, forget_pages);
}
