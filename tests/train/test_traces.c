/* test_traces.c - the traces of ranks: written by runs, put on one clock, merged, and what is
 * reported about them. */
#include "report/timeline.h"
#include "report/traces.h"
#include "support/failure.h"
#include "support/launcher.h"

#include <jansson.h>
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

static char *in_folder(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *in_folder(const char *format, ...)
{
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    int used = snprintf(path, sizeof paths[0], "%s/", folder);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(path + used, sizeof paths[0] - (size_t)used, format, arguments);
    va_end(arguments);
    return path;
}

static void write_text(const char *path, const char *text)
{
    support_write_file(path, text, strlen(text));
}

/* Barriers that take at most 40 us, and a step of which the wait begins at @p wait_us: of a rank
 * whose clock is @p ahead_ns ahead. */
static void write_rank(int rank, const char *machine, int64_t ahead_ns, int wait_us)
{
    json_t *json = json_pack("{s:s, s:i, s:i, s:s, s:s, s:[], s:[]}", "kind", "trace", "rank", rank,
                             "world_size", 2, "host", machine, "machine", machine, "spans",
                             "calls");
    json_t *spans = json_object_get(json, "spans");
    json_t *calls = json_object_get(json, "calls");

    for (int i = 0; i < 8; i++) { /* rank 0 comes first to one, rank 1 to the next */
        int64_t begin = ahead_ns + i * 50000 + (i % 2 == rank ? 0 : 30000);
        int64_t end = ahead_ns + i * 50000 + 40000;

        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I}", "operation",
                                        "barrier", "state", "done", "type", "u8", "number", i + 1,
                                        "enqueued_ns", (json_int_t)begin, "started_ns",
                                        (json_int_t)begin, "finished_ns", (json_int_t)end));
    }
    json_array_append_new(spans, json_pack("{s:s, s:i, s:I, s:I}", "name", "wait", "step", 3,
                                           "begin_ns", (json_int_t)(ahead_ns + wait_us * 1000),
                                           "end_ns", (json_int_t)(ahead_ns + 900000)));
    json_array_append_new(spans, json_pack("{s:s, s:i, s:I, s:I}", "name", "step", "step", 3,
                                           "begin_ns", (json_int_t)(ahead_ns + 400000), "end_ns",
                                           (json_int_t)(ahead_ns + 1000000)));
    assert_int_equal(json_dump_file(json, in_folder("rank-%d.json", rank), 0), 0);
    json_decref(json);
}

static void read_two(struct cddpi_traces *out)
{
    char *paths[] = {in_folder("rank-1.json"), in_folder("rank-0.json")}; /* in any order */

    assert_int_equal(cddpi_traces_read(paths, 2, out), CDDP_OK);
    assert_int_equal(out->count, 2);
    assert_int_equal(out->ranks[0].rank, 0);
}

static void clocks_of_two_machines_are_compared_by_their_collectives(void **state)
{
    struct cddpi_traces traces;
    struct cddpi_traced_step step;
    const int64_t ahead_ns = 5000000000123;

    (void)state;
    write_rank(0, "a", 1000, 500);
    write_rank(1, "b", 1000 + ahead_ns, 700);
    read_two(&traces);
    assert_true(fabs(traces.ranks[1].offset_ns + (double)ahead_ns) <=
                traces.ranks[1].uncertainty_ns);
    assert_true(traces.ranks[1].uncertainty_ns <= 40000);
    assert_true(cddpi_traces_step(&traces, 0, &step));
    assert_int_equal(step.step, 3);
    assert_int_equal(step.last, 1);
    assert_true(fabs(step.late_ns - 200000 / 2.0) <= 40000 / 2.0); /* rank 0 waits for rank 1 */
    assert_true(fabs(step.exposed_ns - (400000 + 200000) / 2.0) < 1);
    assert_false(cddpi_traces_step(&traces, 1, &step));
    cddpi_traces_fini(&traces);
}

static void one_machine_has_one_clock(void **state)
{
    struct cddpi_traces traces;

    (void)state;
    write_rank(0, "a", 0, 800);
    write_rank(1, "a", 7000, 500);
    read_two(&traces);
    assert_true(traces.ranks[1].offset_ns == 0 && traces.ranks[1].uncertainty_ns == 0);
    cddpi_traces_fini(&traces);
}

static char *printed(const struct cddpi_traces *traces)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    cddpi_traces_print(traces, memory);
    fclose(memory);
    return text;
}

static void need(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("there is no \"%s\" in:\n%s", part, text != NULL ? text : "nothing");
    }
}

static void who_hangs_where_is_said_of_dumps(void **state)
{
    struct cddpi_traces traces;
    char *text;

    (void)state;
    write_text(in_folder("rank-0.json"),
               "{\"rank\":0,\"world_size\":2,\"machine\":\"a\",\"calls\":[{\"operation\":"
               "\"all_reduce\",\"number\":7,\"call\":3,\"type\":\"f32\",\"bytes\":400,\"state\":"
               "\"started\",\"enqueued_ns\":100,\"started_ns\":110,\"finished_ns\":null}]}");
    write_text(in_folder("rank-1.json"),
               "{\"rank\":1,\"world_size\":2,\"machine\":\"a\",\"calls\":[{\"operation\":"
               "\"broadcast\",\"number\":7,\"type\":\"f32\",\"bytes\":80,\"state\":\"failed\","
               "\"enqueued_ns\":900,\"started_ns\":910,\"finished_ns\":null}]}");
    read_two(&traces);
    text = printed(&traces);
    need(text, "rank 0 has not ended all_reduce #3 (number 7), 400 bytes of f32 (started); rank 1 "
               "called broadcast there");
    need(text, "rank 1 has not ended broadcast of cddp's own (number 7), 80 bytes of f32");
    assert_null(strstr(text, "took ms")); /* there are no steps */
    free(text);
    cddpi_traces_fini(&traces);
    write_text(in_folder("rank-1.json"),
               "{\"rank\":1,\"world_size\":2,\"machine\":\"a\",\"calls\":[]}");
    read_two(&traces);
    text = printed(&traces);
    need(text, "rank 1 has not called it");
    free(text);
    cddpi_traces_fini(&traces);
}

/* With time that grows as the square of the steps, this would take minutes: ranks traced 60,000
 * steps, and the second rank's file begins in the middle of the first one's calls. */
static void a_long_trace_is_printed_in_time_that_grows_with_its_length(void **state)
{
    enum { STEPS = 60000 };
    char *paths[] = {in_folder("rank-0.json"), in_folder("rank-1.json")};
    struct cddpi_traces traces;
    char *text;

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        FILE *file = fopen(paths[rank], "we");

        assert_non_null(file);
        fprintf(file,
                "{\"kind\":\"trace\",\"rank\":%d,\"world_size\":2,\"host\":\"a\",\"machine\":\"a\","
                "\"spans\":[",
                rank);
        for (long i = 0; i < STEPS; i++) {
            fprintf(file,
                    "%s{\"name\":\"wait\",\"step\":%ld,\"begin_ns\":%ld,\"end_ns\":%ld},"
                    "{\"name\":\"step\",\"step\":%ld,\"begin_ns\":%ld,\"end_ns\":%ld}",
                    i > 0 ? "," : "", i, i * 1000 + 500 + 100 * rank, i * 1000 + 900, i,
                    i * 1000 + 1, i * 1000 + 1000);
        }
        fprintf(file, "],\"calls\":[");
        for (long i = 0; i < STEPS; i++) {
            long number = i + rank * STEPS / 2;

            fprintf(file,
                    "%s{\"operation\":\"all_reduce\",\"state\":\"done\",\"type\":\"f32\","
                    "\"number\":%ld,"
                    "\"enqueued_ns\":%ld,\"finished_ns\":%ld}",
                    i > 0 ? "," : "", number, number * 1000 + 500 + 100 * rank,
                    number * 1000 + 900);
        }
        fprintf(file, "]}");
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(cddpi_traces_read(paths, 2, &traces), CDDP_OK);
    text = printed(&traces);
    need(text, "\n59999     0.001                      0.000                               0.000   "
               "        1\n");
    need(text, "rank 1 called 30000 of 30000 collectives last");
    free(text);
    cddpi_traces_fini(&traces);
}

static void what_is_no_trace_is_refused_by_name(void **state)
{
    static const char *const texts[] = {"",
                                        "[]",
                                        "{",
                                        "{\"rank\":0}",
                                        "{\"rank\":-1,\"world_size\":2,\"calls\":[]}",
                                        "{\"rank\":2,\"world_size\":2,\"calls\":[]}",
                                        "{\"rank\":0,\"world_size\":2,\"calls\":3}"};
    struct cddpi_traces traces;
    char *path = in_folder("rank-0.json");
    char *paths[] = {path, path};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text(path, texts[i]);
        assert_true(failure_is(cddpi_traces_read(paths, 1, &traces), CDDP_ERR_FORMAT, -1, -1, "") &&
                    last_error_has("rank-0.json"));
    }
    /* odd values are numbers of their own, and do no harm */
    write_text(path, "{\"rank\":0,\"world_size\":1,\"spans\":[3,{\"name\":7,\"step\":\"x\"},"
                     "{\"name\":\"forward\",\"device\":-7},{\"device\":1000000000000}],"
                     "\"calls\":[null,{\"number\":-5},{\"operation\":\"barrier\",\"state\":"
                     "\"done\",\"enqueued_ns\":-9223372036854775808,\"started_ns\":"
                     "9223372036854775807,\"finished_ns\":9223372036854775807}]}");
    assert_true(failure_is(cddpi_traces_read(paths, 2, &traces), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("two of the files are of rank 0"));
    assert_int_equal(cddpi_traces_read(paths, 1, &traces), CDDP_OK);
    free(printed(&traces));
    cddpi_traces_fini(&traces);
    assert_true(failure_is(cddpi_traces_read((char *[]){in_folder("none.json")}, 1, &traces),
                           CDDP_ERR_NOT_FOUND, -1, -1, "") &&
                failure_errno_is(ENOENT));
}

/* What a program said; the folder stays. */
static void forget(struct launched *job)
{
    free(job->out);
    free(job->err);
    *job = (struct launched){.dir = folder};
}

static const char conf[] =
    "model = { type = \"mlp\"; hidden = [200, 100]; };\n"
    "data = { type = \"synthetic\"; samples = 640; };\n"
    "ddp = { first_bucket_bytes = 10000; bucket_bytes = 100000; shard_optimizer = false; };\n"
    "train = { max_steps = 12; batch_size = 8; accumulate = 2; eval_epochs = 100; };\n";

/* The events of a merged trace by name, each inside of a step where it belongs there. */
static int count_events(json_t *trace, const char *name, int rank)
{
    size_t i;
    json_t *event;
    int count = 0;

    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *text = json_string_value(json_object_get(event, "name"));

        assert_non_null(phase);
        if (strcmp(phase, "X") == 0) {
            assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
            assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
            count += strncmp(text, name, strlen(name)) == 0 &&
                     json_integer_value(json_object_get(event, "pid")) == rank;
        }
    }
    return count;
}

static void traced_steps_of_a_run_are_merged(void **state)
{
    struct launched job = {.dir = folder};
    json_t *trace;

    (void)state;
    launcher_write(folder, "small.conf", conf);
    LAUNCH(&job, "--nproc", "2", "--run-dir", "run", "small.conf", "train.trace=5-7");
    assert_int_equal(job.exit_status, 0);
    forget(&job);
    launcher_start_program(&job, launcher_path("src/cddp-trace"),
                           (const char *const[]){"run", "--svg", "step.svg", "--step", "6", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "2 of 2 ranks");
    assert_out(&job, "which perfect overlap would have hidden");
    assert_out(&job, "rank 1 called ");
    trace = json_load_file(in_folder("run/trace.json"), 0, NULL);
    assert_non_null(trace);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(count_events(trace, "step ", rank), 3);
        assert_int_equal(count_events(trace, "forward", rank), 6);
        assert_int_equal(count_events(trace, "backward", rank), 6);
        assert_int_equal(count_events(trace, "data", rank), 6);
        assert_int_equal(count_events(trace, "loader", rank), 6);
        assert_int_equal(count_events(trace, "optimizer", rank), 3);
        assert_int_equal(count_events(trace, "wait", rank), 3);
        assert_int_equal(count_events(trace, "barrier", rank), 8);
        assert_true(count_events(trace, "bucket ", rank) >= 6);
        assert_true(count_events(trace, "all_reduce", rank) >= 9); /* an agreement a step, too */
    }
    json_decref(trace);
    forget(&job);
    launcher_start_program(&job, launcher_path("src/cddp-trace"),
                           (const char *const[]){"run", "--svg", "x.svg", "--step", "8", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "step 8 is not in these traces");
    forget(&job);
}

/* Two samples a device; the loss is one more forward and backward, on the first. */
static void devices_of_a_rank_have_spans_and_rows_of_their_own(void **state)
{
    struct launched job = {.dir = folder};
    json_t *trace;
    char *picture;

    (void)state;
    launcher_write(folder, "small.conf", conf);
    LAUNCH(&job, "--nproc", "1", "--run-dir", "run", "small.conf", "train.trace=5-6",
           "parallel.type=data_parallel", "train.devices=[\"cpu:0\",\"cpu\"]");
    assert_int_equal(job.exit_status, 0);
    forget(&job);
    launcher_start_program(&job, launcher_path("src/cddp-trace"),
                           (const char *const[]){"run", "--svg", "step.svg", "--step", "6", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    trace = json_load_file(in_folder("run/trace.json"), 0, NULL);
    assert_non_null(trace);
    assert_int_equal(count_events(trace, "replicate", 0), 2 * 2);
    assert_int_equal(count_events(trace, "sum", 0), 2 * 2);
    assert_int_equal(count_events(trace, "forward", 0), 2 * 2 * (1 + 2 + 1));
    assert_int_equal(count_events(trace, "backward", 0), 2 * 2 * (1 + 2 + 1));
    assert_int_equal(count_events(trace, "step ", 0), 2);
    json_decref(trace);
    picture = launcher_read(folder, "step.svg");
    assert_non_null(picture);
    need(picture, ">device 0</text>");
    need(picture, ">device 1</text>");
    assert_null(strstr(picture, ">device 2</text>"));
    free(picture);
    forget(&job);
}

static void a_trainer_of_ones_own_is_traced_by_the_environment(void **state)
{
    struct launched job = {.dir = folder};
    char trainer[4096];
    struct cddpi_traces traces;
    struct cddpi_traced_step step;

    (void)state;
    snprintf(trainer, sizeof trainer, "%s/examples/embed_trainer", getenv("CDDP_TEST_BUILD"));
    setenv("CDDP_TRACE", "3-4", 1);
    LAUNCH(&job, "--nproc", "2", "--run-dir", "run", "--", trainer);
    unsetenv("CDDP_TRACE");
    assert_int_equal(job.exit_status, 0);
    forget(&job);
    assert_int_equal(cddpi_traces_read_folder(in_folder("run"), &traces), CDDP_OK);
    assert_int_equal(traces.count, 2);
    assert_true(cddpi_traces_step(&traces, 1, &step));
    assert_int_equal(step.step, 4);
    assert_true(cddpi_timeline_choose(&traces, &step));
    cddpi_traces_fini(&traces);
}

static void sigusr1_lets_a_run_write_what_it_did_last(void **state)
{
    struct launched job = {.dir = folder};

    (void)state;
    launcher_write(folder, "small.conf", conf);
    launcher_start(&job, (const char *const[]){"--nproc", "2", "--run-dir", "run", "small.conf",
                                               "train.max_steps=100000000",
                                               "train.epochs=100000000", NULL});
    for (int waited_ms = 0; access(in_folder("run/metrics.jsonl"), F_OK) != 0; waited_ms += 10) {
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(10);
    }
    launcher_await_text(in_folder("run"), "metrics.jsonl", "\"loss\"");
    kill(job.pid, SIGUSR1);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 3); /* with a checkpoint, as ever */
    for (int rank = 0; rank < 2; rank++) {
        json_t *dump = json_load_file(in_folder("run/collectives/rank-%d.json", rank), 0, NULL);

        assert_non_null(dump);
        assert_string_equal(json_string_value(json_object_get(dump, "reason")), "request");
        assert_true(json_array_size(json_object_get(dump, "calls")) > 0);
        json_decref(dump);
    }
    forget(&job);
}

static void debug_tells_the_plan_of_each_bucket(void **state)
{
    struct launched job = {.dir = folder};

    (void)state;
    launcher_write(folder, "small.conf", conf);
    setenv("CDDP_LOG", "debug", 1);
    LAUNCH(&job, "--nproc", "2", "--run-dir", "run", "small.conf");
    unsetenv("CDDP_LOG");
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "ddp: bucket 0 of 2: ");
    assert_err(&job, "ddp: bucket 1 of 2: ");
    assert_err(&job, "gradients, from fc3.bias to ");
    forget(&job);
}

static void steps_that_are_none_are_refused(void **state)
{
    static const char *const texts[] = {
        "0", "5-4", "x", "3-", "-3", "1-2-3", "99999999999999999999"};
    struct launched job = {.dir = folder};
    char word[100];

    (void)state;
    launcher_write(folder, "small.conf", conf);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        snprintf(word, sizeof word, "train.trace=\"%s\"", texts[i]);
        LAUNCH(&job, "--nproc", "1", "--run-dir", "run", "small.conf", word);
        assert_int_equal(job.exit_status, 2);
        assert_err(&job, "train.trace");
        forget(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clocks_of_two_machines_are_compared_by_their_collectives,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_machine_has_one_clock, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(who_hangs_where_is_said_of_dumps, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_long_trace_is_printed_in_time_that_grows_with_its_length,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_trace_is_refused_by_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(traced_steps_of_a_run_are_merged, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(devices_of_a_rank_have_spans_and_rows_of_their_own,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_trainer_of_ones_own_is_traced_by_the_environment,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(sigusr1_lets_a_run_write_what_it_did_last, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(debug_tells_the_plan_of_each_bucket, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(steps_that_are_none_are_refused, make_folder,
                                        remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
