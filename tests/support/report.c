/* report.c - makes runs and pages. */
#include "support/report.h"

#include "report/report_page.h"

#include <sys/stat.h>

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[900];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    support_write_file(path, text, strlen(text));
}

char *report_make_run_of(const char *name, const char *metrics)
{
    char *dir = in_folder(name);

    assert_int_equal(mkdir(dir, 0777), 0);
    write_file(dir, "train.conf", "// " REPORT_EVIL "\n");
    write_file(dir, "metrics.jsonl", metrics);
    return dir;
}

void report_configure(const char *dir, const char *text)
{
    write_file(dir, "train.conf", text);
}

char *report_make_run(const char *name)
{
    static char metrics[8000];
    size_t used = (size_t)snprintf(
        metrics, sizeof metrics,
        "{\"kind\":\"run\",\"step\":0,\"world_size\":2,\"device\":\"processor\",\"seed\":"
        "9007199254740993,\"job\":[\"<\",{\"a\":1}],\"host\":\"<b>host</b><script>alert(2)"
        "</script>\"}\n");

    for (int i = 1; i <= 20; i++) {
        used += (size_t)snprintf(
            metrics + used, sizeof metrics - used,
            "{\"step\":%d,\"epoch\":1,\"loss\":%g,\"accuracy\":%g,\"samples_per_s\":1000,"
            "\"step_ms\":10,\"data_ms\":1,\"forward_ms\":3,\"backward_ms\":4,"
            "\"exposed_comm_ms\":1.5,\"optimizer_ms\":0.5,\"lr\":0.1,\"grad_norm\":null,"
            "\"peak_rss_mib\":50}\n",
            i * 10, 2.0 / i, 1 - 0.9 / i);
    }
    snprintf(metrics + used, sizeof metrics - used,
             "this is no line of metrics <script>alert(3)</script>\n[1]\n{\"step\":\"x\"}\n"
             "{\"step\":200,\"epoch\":1,\"eval_loss\":0.25,\"eval_accuracy\":0.875}\n"
             "{\"kind\":\"end\",\"step\":200,\"stopped\":false,\"seconds\":2,"
             "\"peak_rss_mib\":60}\n");
    return report_make_run_of(name, metrics);
}

char *report_make_text_run(const char *name)
{
    return report_make_run_of(
        name,
        "{\"step\":10,\"loss\":2.5,\"step_ms\":10,\"samples_per_s\":100,\"tokens_per_s\":6400}\n"
        "{\"kind\":\"sample\",\"step\":10,\"prompt\":\"To\",\"text\":\" be\",\"tokens\":2}\n"
        "{\"kind\":\"sample\",\"step\":15,\"text\":7}\n"
        "{\"step\":20,\"loss\":2,\"step_ms\":10,\"samples_per_s\":100,\"tokens_per_s\":6400}\n"
        "{\"step\":20,\"eval_loss\":2,\"eval_accuracy\":0.5,\"eval_perplexity\":7.389}\n"
        "{\"kind\":\"sample\",\"step\":20,\"prompt\":\"To\",\"text\":\"\\n</pre>or <b>not\"}\n"
        "{\"kind\":\"end\",\"step\":20,\"stopped\":false,\"seconds\":2}\n");
}

char *report_make_image_run(const char *name)
{
    char *dir = report_make_run(name);
    char path[900];

    snprintf(path, sizeof path, "%s/images", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    write_file(dir, "images/step-00000010.pgm", "P5\n2 1\n255\nAz");
    write_file(dir, "images/step-00000020.ppm", "P6\n1 1\n255\nabc");
    write_file(dir, "images/step-00000030.pgm", "P5\n2 2\n255\nAz"); /* two pixels are missing */
    write_file(dir, "images/step-00000040.pgm", "P5\n99999 99999\n255\nAz");
    write_file(dir, "images/step-00000050.pgm", "P5\n2000 4000\n255\nAz");
    write_file(dir, "images/step-60.pgm", "P5\n2 1\n255\nAz");
    return dir;
}

void report_add_trace(const char *dir)
{
    char path[900];

    snprintf(path, sizeof path, "%s/trace", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    write_file(dir, "trace/rank-0.json",
               "{\"rank\":0,\"world_size\":1,\"machine\":\"a\",\"spans\":[{\"name\":\"step\","
               "\"step\":3,\"begin_ns\":0,\"end_ns\":4000000},{\"name\":\"forward\",\"step\":3,"
               "\"begin_ns\":0,\"end_ns\":1000000}],\"calls\":[{\"operation\":"
               "\"<b>reduce</b><script>\",\"state\":\"done\",\"type\":\"<i>\",\"number\":1,"
               "\"bytes\":80,\"enqueued_ns\":1000000,\"started_ns\":1000000,\"finished_ns\":"
               "2500000}]}");
}

void report_make_page(char *const *dirs, int count, const char *name)
{
    if (cddpi_report_page_write(dirs, count, in_folder(name)) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}
