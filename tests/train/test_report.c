/* test_report.c - pages about runs: what they show, that nothing in them is markup but their own,
 * and that a browser takes them; and the file for Prometheus. */
#include "report/html.h"
#include "report/prometheus.h"
#include "report/report_page.h"
#include "support/launcher.h"

#include <ctype.h>
#include <math.h>

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

static char *in_folder(const char *name)
{
    static char paths[8][700];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void need(const char *text, const char *part)
{
    if (text == NULL || strstr(text, part) == NULL) {
        fail_msg("there is no %s in: %.3000s", part, text != NULL ? text : "nothing");
    }
}

static void need_absence(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("there is %s in the page: %.200s", part, strstr(text, part));
    }
}

/* What tries to be more than text. */
#define EVIL "</title></pre><script>alert(1)</script><img src=x onerror=alert(1)>'\"&"

/* A run of that name, with twenty lines of metrics. */
static char *make_run(const char *name)
{
    char *dir = in_folder(name);
    char path[800];
    FILE *file;

    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/train.conf", dir);
    support_write_file(path, "// " EVIL "\n", strlen("// " EVIL "\n"));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "{\"kind\":\"run\",\"step\":0,\"world_size\":2,\"device\":\"processor\","
                  "\"host\":\"<b>host</b><script>alert(2)</script>\"}\n");
    for (int i = 1; i <= 20; i++) {
        fprintf(file,
                "{\"step\":%d,\"epoch\":1,\"loss\":%g,\"accuracy\":%g,\"samples_per_s\":1000,"
                "\"step_ms\":10,\"data_ms\":1,\"forward_ms\":3,\"backward_ms\":4,"
                "\"exposed_comm_ms\":1.5,\"optimizer_ms\":0.5,\"lr\":0.1,\"grad_norm\":null,"
                "\"peak_rss_mib\":50}\n",
                i * 10, 2.0 / i, 1 - 0.9 / i);
    }
    fprintf(file, "this is no line of metrics <script>alert(3)</script>\n[1]\n{\"step\":\"x\"}\n");
    fprintf(file, "{\"step\":200,\"epoch\":1,\"eval_loss\":0.25,\"eval_accuracy\":0.875}\n");
    fprintf(file, "{\"kind\":\"end\",\"step\":200,\"stopped\":false,\"seconds\":2,"
                  "\"peak_rss_mib\":60}\n");
    fclose(file);
    return dir;
}

static int count(const char *text, const char *part)
{
    int found = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) {
        found++;
    }
    return found;
}

/* The page about @p dirs. */
static char *make_page(char *const *dirs, int runs)
{
    if (cddpi_report_page_write(dirs, runs, in_folder("page.html")) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    return launcher_read(folder, "page.html");
}

static void all_of_a_run_is_shown(void **state)
{
    static const char *const parts[] = {"<h1>first</h1>",
                                        "87.50 %",
                                        "15.0 %",
                                        "60 MiB",
                                        "loss</text>",
                                        "accuracy</text>",
                                        "throughput</text>",
                                        "exposed communication</text>",
                                        "peak memory of rank 0</text>",
                                        "Where a step&#39;s time goes",
                                        "world_size",
                                        "processor",
                                        "data-y=\"0.25\"",
                                        "prefers-color-scheme:dark"};
    char *dirs[] = {make_run("first")};
    char *page = make_page(dirs, 1);

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(parts[i], "Where a step&#39;s time goes") == 0) {
            need(page, "Where a step's time goes");
            continue;
        }
        need(page, parts[i]);
    }
    need_absence(page, "src=\"");
    need_absence(page, "http:");
    need_absence(page, "https:");
    need_absence(page, "@import");
    free(page);
}

static void several_runs_lie_over_each_other(void **state)
{
    char *dirs[] = {make_run("first"), make_run("second"), make_run("third")};
    char *page = make_page(dirs, 3);

    (void)state;
    need(page, "<h1>3 runs</h1>");
    assert_int_equal(count(page, "data-name=\"second\""), 7); /* one in each picture */
    assert_int_equal(count(page, "data-name=\"second, training\""), 2);
    need(page, "third/train.conf");
    free(page);
}

static void names_and_files_of_strangers_stay_text(void **state)
{
    char *dirs[] = {make_run("<img src=x onerror=alert(4)>\"'&\xff"), make_run("b")};
    char *page;

    (void)state;
    for (int runs = 1; runs <= 2; runs++) {
        page = make_page(dirs, runs);
        need_absence(page, "<img");
        need_absence(page, "<script>alert");
        need_absence(page, "<b>host");
        need_absence(page, "\xff");
        assert_int_equal(count(page, "<script>"), 1);
        assert_int_equal(count(page, "</script>"), 1);
        need(page, "&lt;img src=x onerror=alert(4)&gt;&quot;&#39;&amp;\xef\xbf\xbd");
        need(page, "&lt;/pre&gt;&lt;script&gt;alert(1)");
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
    assert_int_equal(cddpi_report_page_write(dirs, 1, in_folder("page.html")), CDDP_ERR_IO);
    need(cddp_last_error(), "none/metrics.jsonl");
    assert_int_equal(mkdir(dirs[0], 0777), 0);
    support_write_file(in_folder("none/metrics.jsonl"), "{}\n", 3);
    assert_int_equal(cddpi_report_page_write(dirs, 1, in_folder("page.html")), CDDP_ERR_FORMAT);
}

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

/* The script has run, nothing of the strangers' has, and every picture has its curves. */
static void a_browser_shows_the_page(void **state)
{
    const char *browser = find_browser();
    struct launched job = {.dir = folder};
    char *dirs[] = {make_run("<img src=x onerror=document.title=\"evil\">"), make_run("second")};
    char profile[800];
    char address[800];
    char *png;

    (void)state;
    if (browser == NULL) {
        print_message("no chromium is installed\n");
        skip();
    }
    free(make_page(dirs, 2));
    snprintf(profile, sizeof profile, "--user-data-dir=%s", in_folder("profile"));
    snprintf(address, sizeof address, "file://%s", in_folder("page.html"));
    setenv("HOME", folder, 1);
    launcher_start_program(&job, browser,
                           (const char *const[]){"--headless", "--no-sandbox", "--disable-gpu",
                                                 "--disable-dev-shm-usage", profile, "--dump-dom",
                                                 address, NULL});
    launcher_wait(&job);
    need(job.out, "data-ready=\"yes\"");
    need(job.out, "<title>cddp runs</title>");
    need_absence(job.out, "<img");
    assert_int_equal(count(job.out, "<svg class=\"chart\""), 7);
    free(job.out);
    free(job.err);
    launcher_start_program(&job, browser,
                           (const char *const[]){"--headless", "--no-sandbox", "--disable-gpu",
                                                 "--disable-dev-shm-usage", profile,
                                                 "--window-size=1200,2000", "--screenshot=page.png",
                                                 address, NULL});
    launcher_wait(&job);
    png = launcher_read(folder, "page.png");
    assert_non_null(png);
    assert_memory_equal(png, "\x89PNG", 4);
    free(png);
    free(job.out);
    free(job.err);
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
    assert_int_equal(cddpi_prometheus_open(in_folder("run.prom"), "a\"b\\c\nd", 3, &prometheus),
                     CDDP_OK);
    cddpi_prometheus_update(prometheus, 7, 1, names, (double[]){1.5, 20, NAN, 4}, 4);
    text = launcher_read(folder, "run.prom");
    assert_int_equal(check_prometheus(text), 6);
    need(text, "cddp_train_steps_total{run=\"a\\\"b\\\\c\\nd\"} 7\n");
    need(text, "cddp_train_step_seconds{run=\"a\\\"b\\\\c\\nd\"} 0.02\n");
    need_absence(text, "unknown");
    free(text);
    cddpi_prometheus_update(prometheus, 8, 1, (const char *const[]){"eval_accuracy"},
                            (double[]){0.5}, 1);
    cddpi_prometheus_close(prometheus); /* what came within the second is not lost */
    text = launcher_read(folder, "run.prom");
    assert_int_equal(check_prometheus(text), 7);
    need(text, "cddp_train_eval_accuracy_ratio");
    need(text, "cddp_train_steps_total{run=\"a\\\"b\\\\c\\nd\"} 8\n");
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

    (void)state;
    launcher_write(folder, "small.conf", conf);
    LAUNCH(&job, "--nproc", "2", "--run-dir", "run", "small.conf", "train.trace=12-14",
           "train.prometheus=run.prom");
    assert_int_equal(job.exit_status, 0);
    page = launcher_read(folder, "run/report.html");
    need(page, "<h1>run</h1>");
    need(page, "30 steps, complete");
    need(page, "One step of all ranks");
    need(page, ">rank 1</text>");
    need(page, "hidden = ");
    free(page);
    text = launcher_read(folder, "run.prom");
    assert_true(check_prometheus(text) > 12);
    need(text, "cddp_train_world_size{run=\"run\"} 2\n");
    need(text, "cddp_train_steps_total{run=\"run\"} 30\n");
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

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_of_a_run_is_shown),
        CASE(several_runs_lie_over_each_other),
        CASE(names_and_files_of_strangers_stay_text),
        CASE(every_character_that_is_markup_is_escaped),
        CASE(a_folder_without_metrics_is_named),
        CASE(a_browser_shows_the_page),
        CASE(prometheus_gets_a_file_in_its_format),
        CASE(a_run_ends_with_its_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
