/* test_report_browser.c - the page of a run in a browser: what it shows, that text stays text, and
 * that it works on all screens, by mouse and by keyboard. */
#include "support/launcher.h"
#include "support/report.h"

static const char *find_browser(void)
{
    static const char *const paths[] = {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                                        "/usr/bin/google-chrome"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (access(paths[i], X_OK) == 0) {
            return paths[i];
        }
    }
    return NULL;
}

/* Open @p address with @p option and @p doing. Returns what the browser prints; free() it. */
static char *browse(const char *address, const char *option, const char *doing)
{
    struct launched job = {.dir = folder};
    char profile[800];

    snprintf(profile, sizeof profile, "--user-data-dir=%s", in_folder("profile"));
    launcher_start_program(
        &job, find_browser(),
        (const char *const[]){"--headless", "--no-sandbox", "--disable-gpu",
                              "--disable-dev-shm-usage", "--allow-file-access-from-files",
                              "--window-size=1200,2000", profile, option, doing, address, NULL});
    launcher_wait(&job);
    free(job.err);
    return job.out;
}

/* Let report_harness.html look at page.html. */
static void check_page(const char *check, int width, const char *option)
{
    char address[3000];
    char *said;

    snprintf(address, sizeof address,
             "file://%s/tests/train/report_harness.html?page=file://%s&check=%s&width=%d",
             getenv("CDDP_TEST_SOURCE"), in_folder("page.html"), check, width);
    said = browse(address, option, "--dump-dom");
    if (strstr(said, "<pre id=\"said\">as it should be</pre>") == NULL) {
        const char *what = strstr(said, "<pre");

        fail_msg("%s: %.1000s", check, what != NULL ? what : said);
    }
    free(said);
}

static int needs_browser(void **state)
{
    int result = make_folder(state);

    setenv("HOME", folder, 1);
    return result;
}

#define NEED_BROWSER()                                                                             \
    do {                                                                                           \
        if (find_browser() == NULL) {                                                              \
            print_message("no chromium is installed\n");                                           \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

static void all_of_a_run_is_shown(void **state)
{
    char *dirs[] = {report_make_run("first")};

    (void)state;
    NEED_BROWSER();
    report_add_trace(dirs[0]);
    report_make_page(dirs, 1);
    check_page("run", 1200, "--mute-audio");
}

static void several_runs_are_drawn_over_each_other(void **state)
{
    char *dirs[] = {report_make_run("first"), report_make_run("second"), report_make_run("third")};

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 3);
    check_page("runs", 1200, "--mute-audio");
}

static void text_of_strangers_stays_text(void **state)
{
    char *dirs[] = {report_make_run("<img src=x onerror=document.title=\"evil\">'&\xff"),
                    report_make_run("b")};

    (void)state;
    NEED_BROWSER();
    report_add_trace(dirs[0]);
    report_make_page(dirs, 2);
    check_page("strangers", 1200, "--mute-audio");
}

static void values_are_shown_by_pointer_and_by_keyboard(void **state)
{
    char *dirs[] = {report_make_run("first")};

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 1);
    check_page("values", 1200, "--mute-audio");
}

static void the_page_fits_narrow_and_wide_screens(void **state)
{
    char *dirs[] = {report_make_run("first"),
                    report_make_run("a-rather-long-name-that-a-phone-has-no-room-for-in-one-line")};

    (void)state;
    NEED_BROWSER();
    report_add_trace(dirs[0]);
    report_make_page(dirs, 2);
    check_page("narrow", 340, "--mute-audio");
    check_page("narrow", 2400, "--mute-audio");
}

static void the_page_is_light_or_dark_as_the_screen_is(void **state)
{
    char *dirs[] = {report_make_run("first")};

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 1);
    check_page("light", 1200, "--mute-audio");
    check_page("dark", 1200, "--force-dark-mode");
}

/* Even text that became markup could do nothing. */
static void what_gets_into_the_page_neither_runs_nor_loads(void **state)
{
    static const char intruders[] =
        "<script>document.title='evil'</script><style>body{display:grid}</style>"
        "<p class=intruder style='position:fixed' onclick='document.title=1'>p</p>"
        "<img class=intruder src='data:image/gif;base64,"
        "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7' onload='document.title=2' "
        "onerror='document.title=3'><a class=intruder href='javascript:document.title=4'>a</a>";
    char *dirs[] = {report_make_run("first")};
    char *page;
    char *place;
    FILE *file;

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 1);
    page = launcher_read(folder, "page.html");
    place = strstr(page, "<main>");
    assert_non_null(place);
    file = fopen(in_folder("page.html"), "we");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(place - page), page, intruders, place);
    fclose(file);
    free(page);
    check_page("intruders", 1200, "--mute-audio");
}

/* Steps between which doubles have no others, values whose difference overflows, and names that
 * objects of JavaScript have anyway. */
static void odd_numbers_do_no_harm(void **state)
{
    static const char metrics[] =
        "{\"kind\":\"run\",\"step\":0,\"seed\":{\"__proto__\":[null,true]},\"job\":null,"
        "\"__proto__\":1,\"constructor\":\"<\"}\n"
        "{\"step\":100000000000000000,\"loss\":1e308,\"lr\":1e-300,\"step_ms\":0,\"data_ms\":-1}\n"
        "{\"step\":100000000000000032,\"loss\":-1e308,\"lr\":1e-300,\"step_ms\":-1}\n"
        "{\"step\":-1e300,\"eval_loss\":0,\"grad_norm\":5}\n";
    char *dirs[] = {report_make_run_of("odd", metrics)};

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 1);
    check_page("odd", 1200, "--mute-audio");
}

static void the_page_can_be_printed_and_pictured(void **state)
{
    char *dirs[] = {report_make_run("first"), report_make_run("second")};
    char address[800];
    char *bytes;

    (void)state;
    NEED_BROWSER();
    report_make_page(dirs, 2);
    snprintf(address, sizeof address, "file://%s", in_folder("page.html"));
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

#define CASE(test) cmocka_unit_test_setup_teardown(test, needs_browser, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_of_a_run_is_shown),
        CASE(several_runs_are_drawn_over_each_other),
        CASE(text_of_strangers_stays_text),
        CASE(values_are_shown_by_pointer_and_by_keyboard),
        CASE(the_page_fits_narrow_and_wide_screens),
        CASE(the_page_is_light_or_dark_as_the_screen_is),
        CASE(what_gets_into_the_page_neither_runs_nor_loads),
        CASE(odd_numbers_do_no_harm),
        CASE(the_page_can_be_printed_and_pictured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
