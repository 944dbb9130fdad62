/* test_train_meters.c - what the driver measures on GPUs (memory, clocks, power, temperature) is in
 * the run's metrics, and a card that is slowed down is named. */
#include "support/job.h"
#include "support/train_cuda.h"

#define METERS "1000,1980,2619,500,700,60"
#define CARD_1 "cuda:1 (GPU-cacacaca-caca-caca-caca-cacacacaca01)"
#define DEVICES "\"kind\":\"devices\""

/* Start a long job with two ranks. */
#define START_MEASURED(job, name, ...)                                                             \
    JOB_START(job, "--nproc", "2", LONG_RUN, CUDA, run_dir_argument(name), "train.log_steps=1",    \
              __VA_ARGS__)

/* Wait until rank 1's measurements are in @p lines lines. */
static void await_lines(const char *name, int lines)
{
    for (int waited_ms = 0; waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 20) {
        char *text = launcher_read(in_work("%s", name), "metrics.jsonl");
        int found = text != NULL ? launcher_count(text, "{\"rank\":1,\"host\":") : 0;

        free(text);
        if (found >= lines) {
            return;
        }
        support_sleep_ms(20);
    }
    fail_msg("%s: not %d lines about devices", name, lines);
}

/* The last line of metrics that has @p part. */
static json_t *last_line(const char *name, const char *part)
{
    char *text = launcher_read(in_work("%s", name), "metrics.jsonl");
    json_t *found = NULL;

    assert_non_null(text);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strstr(line, part) != NULL) {
            json_decref(found);
            found = json_loads(line, 0, NULL);
        }
    }
    free(text);
    assert_non_null(found);
    return found;
}

static void assert_number(const json_t *object, const char *name, double wanted)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_number(value) || json_number_value(value) != wanted) {
        fail_msg("%s is %g, not %g", name, json_number_value(value), wanted);
    }
}

static void assert_absent(const char *name, const char *part)
{
    char *text = launcher_read(in_work("%s", name), "metrics.jsonl");

    assert_non_null(text);
    launcher_need_absence(text, part, "metrics.jsonl");
    free(text);
}

/* Each rank computes on a card of its own, with its own numbers. */
static void what_is_measured_arrives(void **state)
{
    struct launched job = {0};
    json_t *line;
    json_t *row;
    char *text;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_NVML_METERS", METERS, 1);
    setenv("CDDP_FAKE_NVML_THROTTLE", "4", 1); /* the power limit */
    START_MEASURED(&job, "arrives", argument("train.prometheus=\"%s\"", in_work("arrives.prom")));
    await_lines("arrives", 1);
    (void)stop(&job, "arrives", SIGTERM);
    unsetenv("CDDP_FAKE_NVML_METERS");
    unsetenv("CDDP_FAKE_NVML_THROTTLE");
    assert_no_err(&job, "throttled");

    line = last_line("arrives", "{\"rank\":1,\"host\":");
    assert_string_equal(json_string_value(json_object_get(line, "kind")), "devices");
    row = json_array_get(json_object_get(line, "devices"), 1);
    assert_number(row, "rank", 1);
    assert_number(row, "index", 1);
    assert_number(row, "memory_mib", 1001);
    assert_number(row, "memory_total_mib", 81920);
    assert_number(row, "clock_mhz", 1981);
    assert_number(row, "memory_clock_mhz", 2620);
    assert_number(row, "power_w", 501);
    assert_number(row, "power_limit_w", 701);
    assert_number(row, "temperature_c", 61);
    assert_number(row, "ecc_corrected", 8);
    assert_number(row, "ecc_uncorrected", 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(row, "throttle"), 0)),
                        "power");
    json_decref(line);

    line = last_line("arrives", "\"gpu_temperature_c\":61");
    assert_number(line, "gpu_memory_mib", 1001);
    assert_number(line, "gpu_clock_mhz", 1980);
    assert_number(line, "gpu_power_w", 1001);
    assert_number(line, "throttled_ranks", 0);
    json_decref(line);
    text = launcher_read(in_work("%s", "."), "arrives.prom");
    assert_non_null(text);
    launcher_need_text(text, "\ncddp_train_gpu_clock_hertz{", "arrives.prom");
    launcher_need_text(text, "\"} 1980000000\n", "arrives.prom");
    launcher_need_text(text, "\ncddp_train_gpu_temperature_celsius{", "arrives.prom");
    free(text);
    launcher_end(&job);
}

static void a_throttled_card_is_named_once_with_its_rank_and_host(void **state)
{
    struct launched job = {0};
    char host[256] = "";
    json_t *line;
    const json_t *reasons;

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    setenv("CDDP_FAKE_NVML_METERS", METERS, 1);
    setenv("CDDP_FAKE_NVML_THROTTLE", "76", 1); /* heat (64, and 8 for the hardware), power */
    setenv("CDDP_FAKE_NVML_CARD", "1", 1);
    START_MEASURED(&job, "hot", "train.eval_epochs=1000000");
    await_lines("hot", 2);
    (void)stop(&job, "hot", SIGTERM);
    unsetenv("CDDP_FAKE_NVML_METERS");
    unsetenv("CDDP_FAKE_NVML_THROTTLE");
    unsetenv("CDDP_FAKE_NVML_CARD");
    assert_err(&job,
               argument("cddp-train: warning: rank 1 on %.63s: " CARD_1 " is throttled: it is "
                        "too hot, 61 degrees Celsius, 501 W, 1981 MHz\n",
                        host));
    assert_int_equal(launcher_count(job.err, "is throttled"), 1);
    line = last_line("hot", DEVICES);
    reasons = json_object_get(json_array_get(json_object_get(line, "devices"), 1), "throttle");
    assert_int_equal(json_array_size(reasons), 2);
    assert_string_equal(json_string_value(json_array_get(reasons, 0)), "heat");
    json_decref(line);
    line = last_line("hot", "\"throttled_ranks\"");
    assert_number(line, "throttled_ranks", 1);
    json_decref(line);
    launcher_end(&job);
}

/* A step later than the first lines about devices in other runs. */
static void run_without(const char *name)
{
    struct launched job = {0};

    START_MEASURED(&job, name, "train.eval_epochs=1000000");
    launcher_await_text(in_work("%s", name), "metrics.jsonl", "\"step\":100,");
    (void)stop(&job, name, SIGTERM);
    assert_no_err(&job, "NVML");
    assert_absent(name, DEVICES);
    assert_absent(name, "gpu_");
    assert_absent(name, "throttled");
    launcher_end(&job);
}

static void without_nvml_nothing_is_written(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_NVML_METERS", METERS, 1);
    setenv("CDDP_FAKE_CUDA_WITHOUT", "nvml", 1);
    run_without("without");
    unsetenv("CDDP_FAKE_CUDA_WITHOUT");
    unsetenv("CDDP_FAKE_NVML_METERS");
    run_without("unmeasured"); /* NVML is there, and measures nothing on these cards */
}

static void nvml_that_does_not_answer_holds_no_step_up(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_NVML_METERS", METERS, 1);
    setenv("CDDP_FAKE_NVML_HANG", "measure", 1);
    run_without("hangs");
    unsetenv("CDDP_FAKE_NVML_HANG");
    unsetenv("CDDP_FAKE_NVML_METERS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_measured_arrives),
        cmocka_unit_test(a_throttled_card_is_named_once_with_its_rank_and_host),
        cmocka_unit_test(without_nvml_nothing_is_written),
        cmocka_unit_test(nvml_that_does_not_answer_holds_no_step_up),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
