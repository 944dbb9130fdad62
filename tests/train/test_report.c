/* test_report.c - the file of a report page: the JSON of its runs, and that no text in it becomes
 * markup; and the file for Prometheus. test_report_browser.c looks at the page. */
#include "report/prometheus.h"
#include "report/report_page.h"
#include "report/timeline.h"
#include "support/failure.h"
#include "support/launcher.h"
#include "support/report.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>

static char *read_page(void)
{
    char *page = launcher_read(folder, "page.html");

    assert_non_null(page);
    return page;
}

/* What the page's script gets: the array of its runs. */
static json_t *read_runs(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"runs\">\n";
    const char *text = strstr(page, begin);
    const char *end = text != NULL ? strstr(text, "</script>") : NULL;
    json_t *runs;

    assert_non_null(end);
    text += sizeof begin - 1;
    assert_null(memchr(text, '<', (size_t)(end - text)));
    runs = json_loadb(text, (size_t)(end - text), 0, NULL);
    assert_true(json_is_array(runs));
    return runs;
}

static double number_of(json_t *run, const char *column, const char *name)
{
    json_t *value = json_object_get(json_object_get(json_object_get(run, "metrics"), column), name);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Point @p index of a column's x or y; negative: the one so far from the end. */
static double point_of(json_t *run, const char *column, const char *axis, int index)
{
    json_t *values = json_object_get(json_object_get(json_object_get(run, "metrics"), column),
                                     axis);
    size_t count = json_array_size(values);

    return json_number_value(
        json_array_get(values, index < 0 ? count - (size_t)-index : (size_t)index));
}

static const char *text_of(json_t *run, const char *name)
{
    const char *text = json_string_value(json_object_get(run, name));

    assert_non_null(text);
    return text;
}

static void all_of_a_run_is_in_its_page(void **state)
{
    char *dirs[] = {report_make_run("first")};
    json_t *runs;
    json_t *run;
    char *page;

    (void)state;
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    assert_int_equal(json_array_size(runs), 1);
    run = json_array_get(runs, 0);
    assert_string_equal(text_of(run, "name"), "first");
    assert_string_equal(text_of(run, "dir"), dirs[0]);
    assert_string_equal(text_of(run, "config"), "// " REPORT_EVIL "\n");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(run, "begin"), "world_size")), 2);
    assert_string_equal(text_of(json_object_get(run, "begin"), "seed"), "9007199254740993");
    assert_true(json_number_value(json_object_get(json_object_get(run, "end"), "peak_rss_mib")) ==
                60);
    assert_true(number_of(run, "step", "last") == 200);
    assert_true(number_of(run, "loss", "last") == 0.1);
    assert_true(number_of(run, "eval_accuracy", "last") == 0.875);
    assert_true(number_of(run, "exposed_comm_ms", "typical") == 1.5);
    assert_true(point_of(run, "loss", "x", 19) == 200 && point_of(run, "loss", "y", 19) == 0.1);
    assert_true(point_of(run, "eval_loss", "x", -1) == 200 &&
                point_of(run, "eval_loss", "y", 0) == 0.25);
    assert_null(json_object_get(json_object_get(run, "metrics"), "grad_norm"));
    json_decref(runs);
    launcher_need_absence(page, "src=\"", "the page");
    launcher_need_absence(page, "https:", "the page");
    launcher_need_absence(page, "url(", "the page");
    launcher_need_absence(page, "@import", "the page");
    launcher_need_absence(page, "unsafe", "the page");
    assert_int_equal(launcher_count(page, "http:"), 1); /* the name of SVG */
    free(page);
}

static void the_last_texts_of_a_language_model_are_in_its_page(void **state)
{
    char *dirs[] = {report_make_text_run("text")};
    json_t *texts;
    json_t *runs;
    char *page;

    (void)state;
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    texts = json_object_get(json_array_get(runs, 0), "texts");
    assert_int_equal(json_array_size(texts), 2);
    assert_string_equal(text_of(json_array_get(texts, 0), "text"), " be");
    assert_string_equal(text_of(json_array_get(texts, 1), "text"), "\n</pre>or <b>not");
    assert_true(json_number_value(json_object_get(json_array_get(texts, 1), "step")) == 20);
    assert_true(number_of(json_array_get(runs, 0), "eval_perplexity", "last") == 7.389);
    assert_true(number_of(json_array_get(runs, 0), "tokens_per_s", "typical") == 6400);
    json_decref(runs);
    free(page);
}

/* A page has no more than the last twenty, and of a long one the beginning. */
static void many_and_long_texts_are_cut(void **state)
{
    enum { TEXTS = 25, LONG = 40000 };
    char *metrics = calloc(TEXTS, LONG + 100);
    size_t used = 0;
    char *dirs[1];
    json_t *texts;
    json_t *runs;
    char *page;

    (void)state;
    assert_non_null(metrics);
    for (int i = 1; i <= TEXTS; i++) {
        used += (size_t)sprintf(metrics + used,
                                "{\"step\":%d,\"loss\":1}\n{\"kind\":\"sample\",\"step\":%d,"
                                "\"prompt\":\"\",\"text\":\"%0*d\"}\n",
                                i, i, LONG, 1);
    }
    dirs[0] = report_make_run_of("texts", metrics);
    free(metrics);
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    texts = json_object_get(json_array_get(runs, 0), "texts");
    assert_int_equal(json_array_size(texts), 20);
    assert_true(json_number_value(json_object_get(json_array_get(texts, 19), "step")) == TEXTS);
    assert_int_equal(strlen(text_of(json_array_get(texts, 19), "text")), 1 << 14);
    json_decref(runs);
    free(page);
}

static void sheets_of_images_are_in_the_page_and_nothing_else(void **state)
{
    char *dirs[] = {report_make_image_run("images")};
    json_t *sheets;
    json_t *runs;
    char *page;

    (void)state;
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    sheets = json_object_get(json_array_get(runs, 0), "sheets");
    assert_int_equal(json_array_size(sheets), 2);
    assert_string_equal(text_of(json_array_get(sheets, 0), "pixels"), "QXo=");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(sheets, 0), "width")), 2);
    assert_string_equal(text_of(json_array_get(sheets, 1), "pixels"), "YWJj");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(sheets, 1), "channels")), 3);
    json_decref(runs);
    free(page);
}

/* The first, the last, and others at even distances. */
static void a_page_has_six_of_many_sheets(void **state)
{
    static const int steps[] = {1, 20, 40, 60, 80, 100};
    static const char sheet[] = "P5\n1 1\n255\nA";
    char *dirs[1];
    json_t *sheets;
    json_t *runs;
    char *page;

    (void)state;
    (void)report_make_run("many");
    assert_int_equal(mkdir(in_folder("many/images"), 0777), 0);
    for (int step = 100; step >= 1; step--) {
        char name[64];

        snprintf(name, sizeof name, "many/images/step-%08d.pgm", step);
        support_write_file(in_folder(name), sheet, sizeof sheet - 1);
    }
    dirs[0] = in_folder("many");
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    sheets = json_object_get(json_array_get(runs, 0), "sheets");
    assert_int_equal(json_array_size(sheets), 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(json_integer_value(json_object_get(json_array_get(sheets, i), "step")),
                         steps[i]);
    }
    json_decref(runs);
    free(page);
}

static void several_runs_are_in_one_page(void **state)
{
    static const char *const names[] = {"first", "second", "third"};
    char *dirs[] = {report_make_run("first"), report_make_run("second"), report_make_run("third")};
    char *page;
    json_t *runs;

    (void)state;
    report_make_page(dirs, 3, "page.html");
    page = read_page();
    runs = read_runs(page);
    assert_int_equal(json_array_size(runs), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(text_of(json_array_get(runs, i), "name"), names[i]);
    }
    json_decref(runs);
    free(page);
}

/* Groups within groups, values over several lines, keys that one run lacks, and a key whose name is
 * the end of another's. Which run is where is no difference. */
static void runs_are_compared_key_by_key(void **state)
{
    static const char *const wanted[][3] = {
        {"model.layers", "( { type = \"fc\"; units = 4; }, { type = \"}; = {\"; } )",
         "( { type = \"fc\"; units = 4; } )"},
        {"train.log", "1", NULL},
        {"optimizer.schedule.type", "\"cosine\"", "\"none\""},
        {"optimizer.type", NULL, "\"sgd\""},
    };
    char *dirs[] = {report_make_run("a"), report_make_run("b"), report_make_run("none")};
    char *page;
    json_t *runs;

    (void)state;
    report_configure(dirs[0],
                     "model = {\n  type = \"layers\";\n  layers = (\n"
                     "    { type = \"fc\"; units = 4; },\n    { type = \"}; = {\"; }\n  );\n"
                     "};\ntrain = {\n  run_dir = \"a\";\n  log = 1;\n  epochs = 3;\n};\n"
                     "optimizer = {\n  schedule = {\n    type = \"cosine\";\n  };\n};\n");
    report_configure(dirs[1], "model = {\n  type = \"layers\";\n  layers = (\n"
                              "    { type = \"fc\"; units = 4; }\n  );\n"
                              "};\ntrain = {\n  run_dir = \"b\";\n  epochs = 3;\n};\n"
                              "optimizer = {\n  schedule = {\n    type = \"none\";\n  };\n"
                              "  type = \"sgd\";\n};\n");
    unlink(in_folder("none/train.conf"));
    report_make_page(dirs, 3, "page.html");
    page = read_page();
    runs = read_runs(page);
    for (size_t i = 0; i < 2; i++) {
        json_t *differs = json_object_get(json_array_get(runs, i), "differs");

        assert_int_equal(json_object_size(differs), sizeof wanted / sizeof *wanted);
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
            const char *value = json_string_value(json_object_get(differs, wanted[k][0]));

            assert_true((value == NULL) == (wanted[k][1 + i] == NULL));
            if (value != NULL) {
                assert_string_equal(value, wanted[k][1 + i]);
            }
        }
    }
    assert_int_equal(json_object_size(json_object_get(json_array_get(runs, 2), "differs")), 0);
    json_decref(runs);
    free(page);
}

/* What no run wrote: groups that do not end or begin, long names, no last line. */
static void odd_configurations_are_compared_without_harm(void **state)
{
    static char odd[20000];
    char *dirs[] = {report_make_run("a"), report_make_run("b")};
    char *page;
    json_t *runs;
    size_t used = (size_t)sprintf(odd, "};\n};\n= 3;\nx\ny = {\nlost = (\n;\n");

    (void)state;
    for (int i = 0; i < 1000; i++) {
        used += (size_t)sprintf(odd + used, "groupgroup = {\n");
    }
    sprintf(odd + used, "key = 1;\nkey = 2;\nlast = \"");
    report_configure(dirs[0], odd);
    report_configure(dirs[1], "");
    report_make_page(dirs, 2, "page.html");
    page = read_page();
    runs = read_runs(page);
    assert_int_equal(json_object_size(json_object_get(json_array_get(runs, 1), "differs")), 1);
    assert_string_equal(text_of(json_object_get(json_array_get(runs, 0), "differs"), "y.lost"),
                        "(");
    json_decref(runs);
    free(page);
}

/* Curves of a page have at most a thousand points; the last and the typical value are of all. */
static void a_long_run_is_summarized(void **state)
{
    enum { ROWS = 4999 };
    char *metrics = malloc(ROWS * 60);
    size_t used = 0;
    char *dirs[1];
    char *page;
    json_t *runs;
    json_t *run;

    (void)state;
    assert_non_null(metrics);
    for (int i = 1; i <= ROWS; i++) {
        used += (size_t)sprintf(metrics + used, "{\"step\":%d,\"loss\":%d%s}\n", i, 2 * i,
                                i % 1000 == 0 ? ",\"eval_loss\":7" : "");
    }
    dirs[0] = report_make_run_of("long", metrics);
    free(metrics);
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    run = json_array_get(runs, 0);
    assert_true(number_of(run, "loss", "last") == 2 * ROWS);
    assert_true(number_of(run, "loss", "typical") == ROWS + 1 + (ROWS - 1) / 2);
    assert_true(point_of(run, "loss", "x", 0) == 3 && point_of(run, "loss", "y", 0) == 6);
    assert_true(point_of(run, "loss", "x", 998) == 4993 &&
                point_of(run, "loss", "x", 999) == 4997.5);
    assert_true(point_of(run, "loss", "x", -1) == 4997.5);
    assert_true(point_of(run, "eval_loss", "x", 0) == 1000 &&
                point_of(run, "eval_loss", "x", -1) == 4000);
    json_decref(runs);
    free(page);
}

/* Files of strangers: a line without an end, a null byte, one cut off. */
static void what_is_no_line_of_metrics_is_passed_over(void **state)
{
    enum { LONG = 33 << 20 };
    static const char first[] = "{\"step\":1,\"loss\":1}\n\0{\n{\"step\":2,\"loss\":5}\n";
    static const char last[] = "\"}\n{\"step\":3,\"loss\":2}\n{\"step\":4,\"lo";
    char *metrics = malloc(LONG + sizeof first + sizeof last);
    char *dirs[] = {report_make_run_of("odd", "")};
    char *page;
    json_t *runs;

    (void)state;
    assert_non_null(metrics);
    memcpy(metrics, first, sizeof first - 1);
    memset(metrics + sizeof first - 1, 'x', LONG);
    memcpy(metrics + sizeof first - 1, "{\"step\":9,\"loss\":9,\"x\":\"", 25);
    memcpy(metrics + sizeof first - 1 + LONG, last, sizeof last - 1);
    support_write_file(in_folder("odd/metrics.jsonl"), metrics,
                       LONG + sizeof first + sizeof last - 2);
    free(metrics);
    report_make_page(dirs, 1, "page.html");
    page = read_page();
    runs = read_runs(page);
    assert_true(number_of(json_array_get(runs, 0), "loss", "last") == 2);
    assert_true(point_of(json_array_get(runs, 0), "loss", "x", -2) == 2);
    json_decref(runs);
    free(page);
}

static void names_and_files_of_strangers_stay_text(void **state)
{
    char *dirs[] = {report_make_run("<img src=x onerror=alert(4)>\"'&\xff"), report_make_run("b")};

    (void)state;
    report_add_trace(dirs[0]);
    for (int count = 1; count <= 2; count++) {
        char *page;
        json_t *runs;

        report_make_page(dirs, count, "page.html");
        page = read_page();
        runs = read_runs(page);
        launcher_need_absence(page, "<img", "the page");
        launcher_need_absence(page, "<b>", "the page");
        launcher_need_absence(page, "<!--<", "the page");
        launcher_need_absence(page, "\xff", "the page");
        assert_int_equal(launcher_count(page, "<script"), 2);
        assert_int_equal(launcher_count(page, "</script"), 2);
        launcher_need_text(page, "<title>&lt;b&gt;reduce&lt;/b&gt;&lt;script&gt; #1", "the page");
        assert_string_equal(text_of(json_array_get(runs, 0), "name"),
                            "<img src=x onerror=alert(4)>\"'&\xef\xbf\xbd");
        json_decref(runs);
        free(page);
    }
}

static void every_character_that_is_markup_is_escaped(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    (void)state;
    cddpi_html_put(memory, "a<b>&\"'\x01\t\n\x7f\xc3\xa9\xc3\xed\xa0\x80z");
    fclose(memory);
    assert_string_equal(text, "a&lt;b&gt;&amp;&quot;&#39;\xef\xbf\xbd\t\n\xef\xbf\xbd\xc3\xa9"
                              "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
    free(text);
}

static void a_folder_without_metrics_is_named(void **state)
{
    char *dirs[] = {in_folder("none")};

    (void)state;
    assert_true(failure_is(cddpi_report_page_write(dirs, 1, in_folder("page.html")),
                           CDDP_ERR_NOT_FOUND, -1, -1, "") &&
                failure_errno_is(ENOENT) && last_error_has("none/metrics.jsonl"));
    assert_int_equal(mkdir(dirs[0], 0777), 0);
    support_write_file(in_folder("none/metrics.jsonl"), "{}\n", 3);
    assert_true(failure_is(cddpi_report_page_write(dirs, 1, in_folder("page.html")),
                           CDDP_ERR_FORMAT, -1, -1, ""));
}

/* As with runs/ *, of which some ended before they began to train. */
static void runs_without_metrics_are_left_out_of_a_comparison(void **state)
{
    char *dirs[] = {in_folder("none"), report_make_run("one"), in_folder("empty"),
                    report_make_run("two")};
    json_t *runs;
    char *page;

    (void)state;
    assert_int_equal(mkdir(dirs[0], 0777), 0);
    assert_int_equal(mkdir(dirs[2], 0777), 0);
    support_write_file(in_folder("empty/metrics.jsonl"), "", 0);
    report_add_trace(dirs[3]);
    report_make_page(dirs, 4, "page.html");
    page = read_page();
    runs = read_runs(page);
    assert_int_equal(json_array_size(runs), 2);
    assert_string_equal(text_of(json_array_get(runs, 1), "name"), "two");
    launcher_need_text(page, "data-run=\"1\"", "the page");
    json_decref(runs);
    free(page);
    unlink(in_folder("page.html"));
    dirs[1] = dirs[2];
    assert_int_equal(cddpi_report_page_write(dirs, 3, in_folder("page.html")), CDDP_ERR_FORMAT);
    assert_int_equal(access(in_folder("page.html"), F_OK), -1);
}

static void a_mistyped_folder_of_a_comparison_is_an_error(void **state)
{
    char *dirs[] = {report_make_run("right"), in_folder("rihgt"), report_make_run("other")};

    (void)state;
    assert_true(failure_is(cddpi_report_page_write(dirs, 3, in_folder("typo.html")),
                           CDDP_ERR_NOT_FOUND, -1, -1, "") &&
                last_error_has("rihgt/metrics.jsonl"));
    assert_int_equal(access(in_folder("typo.html"), F_OK), -1);
}

/* The text format as promtool checks it: every sample is of a family that HELP and TYPE announced,
 * once, with a name and labels as the format has them. Returns how many samples there are. */
static int check_prometheus(const char *text)
{
    char family[200] = "";
    char type[20] = "";
    int samples = 0;
    char *copy = strdup(text);
    char *rest = copy;
    char *line;

    assert_true(strlen(text) > 0 && text[strlen(text) - 1] == '\n');
    while ((line = strsep(&rest, "\n")) != NULL && line[0] != '\0') {
        char name[200];
        char *end;

        if (sscanf(line, "# HELP %199s", name) == 1) {
            assert_string_not_equal(name, family);
            snprintf(family, sizeof family, "%s", name);
            for (const char *c = name; *c != '\0'; c++) {
                assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
            }
            continue;
        }
        if (sscanf(line, "# TYPE %199s %19s", name, type) == 2) {
            assert_string_equal(name, family);
            assert_true(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0);
            assert_int_equal(strcmp(type, "counter") == 0,
                             strcmp(name + strlen(name) - 6, "_total") == 0);
            continue;
        }
        assert_memory_equal(line, family, strlen(family));
        line += strlen(family);
        assert_memory_equal(line, "{run=\"", 6);
        for (line += 6; *line != '"'; line++) {
            assert_true(*line != '\0');
            if (*line == '\\') {
                line++;
                assert_true(*line == '\\' || *line == '"' || *line == 'n');
            }
        }
        assert_memory_equal(line, "\"} ", 3);
        assert_true(isfinite(strtod(line + 3, &end)) && *end == '\0');
        samples++;
    }
    free(copy);
    return samples;
}

static void prometheus_gets_a_file_in_its_format(void **state)
{
    static const char *const names[] = {"loss", "step_ms", "grad_norm", "unknown"};
    struct cddpi_prometheus *prometheus;
    char *text;

    (void)state;
    assert_int_equal(cddpi_prometheus_open(in_folder("run.prom"), "a\"b\\c\nd", 3, 2, &prometheus),
                     CDDP_OK);
    cddpi_prometheus_update(prometheus, 7, 1, names, (double[]){1.5, 20, NAN, 4}, 4);
    text = launcher_read(folder, "run.prom");
    assert_int_equal(check_prometheus(text), 7);
    launcher_need_text(text, "cddp_train_world_size{run=\"a\\\"b\\\\c\\nd\"} 3\n", "run.prom");
    launcher_need_text(text, "cddp_train_generation{run=\"a\\\"b\\\\c\\nd\"} 2\n", "run.prom");
    launcher_need_text(text, "cddp_train_steps_total{run=\"a\\\"b\\\\c\\nd\"} 7\n", "run.prom");
    launcher_need_text(text, "cddp_train_step_seconds{run=\"a\\\"b\\\\c\\nd\"} 0.02\n", "run.prom");
    launcher_need_absence(text, "unknown", "run.prom");
    free(text);
    cddpi_prometheus_update(prometheus, 8, 1, (const char *const[]){"eval_accuracy"},
                            (double[]){0.5}, 1);
    cddpi_prometheus_close(prometheus); /* what came within the second is not lost */
    text = launcher_read(folder, "run.prom");
    assert_int_equal(check_prometheus(text), 8);
    launcher_need_text(text, "cddp_train_eval_accuracy_ratio", "run.prom");
    launcher_need_text(text, "cddp_train_steps_total{run=\"a\\\"b\\\\c\\nd\"} 8\n", "run.prom");
    free(text);
    cddpi_prometheus_close(NULL);
}

static const char conf[] = "model = { type = \"mlp\"; hidden = [100]; };\n"
                           "data = { type = \"synthetic\"; samples = 640; };\n"
                           "train = { max_steps = 30; batch_size = 8; eval_epochs = 100; };\n";

static void a_run_ends_with_its_page(void **state)
{
    struct launched job = {.dir = folder};
    char *page;
    char *text;
    json_t *runs;
    json_t *run;

    (void)state;
    launcher_write(folder, "small.conf", conf);
    LAUNCH(&job, "--nproc", "2", "--run-dir", "run", "small.conf", "train.trace=12-14",
           "train.prometheus=run.prom");
    assert_int_equal(job.exit_status, 0);
    page = launcher_read(folder, "run/report.html");
    runs = read_runs(page);
    run = json_array_get(runs, 0);
    assert_string_equal(text_of(run, "name"), "run");
    assert_true(number_of(run, "step", "last") == 30);
    assert_true(json_is_false(json_object_get(json_object_get(run, "end"), "stopped")));
    launcher_need_text(text_of(run, "config"), "hidden = ", "the configuration");
    launcher_need_text(page, "aria-label=\"timeline of step 1", "the page");
    launcher_need_text(page, ">rank 1</text>", "the page");
    json_decref(runs);
    free(page);
    text = launcher_read(folder, "run.prom");
    assert_true(check_prometheus(text) > 12);
    launcher_need_text(text, "cddp_train_world_size{run=\"run\"} 2\n", "run.prom");
    launcher_need_text(text, "cddp_train_steps_total{run=\"run\"} 30\n", "run.prom");
    free(text);
    free(job.out);
    free(job.err);
    job = (struct launched){.dir = folder};
    launcher_start_program(&job, launcher_path("src/cddp-report"),
                           (const char *const[]){"-o", "both.html", "run", "run/", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "both.html\n");
    free(job.out);
    free(job.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(all_of_a_run_is_in_its_page),
        IN_FOLDER(the_last_texts_of_a_language_model_are_in_its_page),
        IN_FOLDER(many_and_long_texts_are_cut),
        IN_FOLDER(sheets_of_images_are_in_the_page_and_nothing_else),
        IN_FOLDER(a_page_has_six_of_many_sheets),
        IN_FOLDER(several_runs_are_in_one_page),
        IN_FOLDER(runs_are_compared_key_by_key),
        IN_FOLDER(odd_configurations_are_compared_without_harm),
        IN_FOLDER(a_long_run_is_summarized),
        IN_FOLDER(what_is_no_line_of_metrics_is_passed_over),
        IN_FOLDER(names_and_files_of_strangers_stay_text),
        IN_FOLDER(every_character_that_is_markup_is_escaped),
        IN_FOLDER(a_folder_without_metrics_is_named),
        IN_FOLDER(runs_without_metrics_are_left_out_of_a_comparison),
        IN_FOLDER(a_mistyped_folder_of_a_comparison_is_an_error),
        IN_FOLDER(prometheus_gets_a_file_in_its_format),
        IN_FOLDER(a_run_ends_with_its_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
