/* test_arrivals.c - CDDP_ARRIVALS: the file says when the gradients of a step were ready. */
#include "support/launcher.h"

#include <jansson.h>

static const char conf[] =
    "model = { type = \"mlp\"; hidden = [400]; };\n"
    "data = { type = \"synthetic\"; samples = 640; };\n"
    "ddp = { first_bucket_bytes = 100000; bucket_bytes = 1000000; };\n"
    "train = { max_steps = 70; batch_size = 8; log_steps = 70; eval_epochs = 100; };\n";

static void train(struct launched *job, const char *file)
{
    *job = (struct launched){.dir = support_mkdtemp()};
    launcher_write(job->dir, "small.conf", conf);
    setenv("CDDP_ARRIVALS", file, 1);
    LAUNCH(job, "--nproc", "2", "--run-dir", "run", "small.conf");
    unsetenv("CDDP_ARRIVALS");
}

static double seconds(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);

    if (!json_is_real(value)) {
        fail_msg("there is no time %s", key);
    }
    assert_true(json_real_value(value) >= 0);
    return json_real_value(value);
}

struct seen {
    json_int_t gradient_bytes, bucket_bytes;
    int gradients, buckets, totals;
    double last_gradient, last_bucket;
};

static void look_at(const json_t *line, struct seen *seen)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    json_int_t bytes = json_integer_value(json_object_get(line, "bytes"));

    if (json_object_get(line, "gradient") != NULL) {
        double ready = seconds(line, "ready_s");

        assert_true(seen->gradients < 4);
        assert_string_equal(json_string_value(json_object_get(line, "gradient")),
                            names[seen->gradients++]);
        seen->gradient_bytes += bytes;
        seen->last_gradient = ready > seen->last_gradient ? ready : seen->last_gradient;
    } else if (json_object_get(line, "bucket") != NULL) {
        assert_int_equal(json_integer_value(json_object_get(line, "bucket")), seen->buckets++);
        seen->bucket_bytes += bytes;
        assert_true(seconds(line, "ready_s") >= seen->last_bucket);
        seen->last_bucket = seconds(line, "ready_s");
        assert_true(seconds(line, "done_s") >= 0);
    } else {
        seen->totals++;
        assert_true(seconds(line, "forward_end_s") > 0);
        assert_true(seconds(line, "backward_end_s") >= seen->last_gradient);
        assert_true(seconds(line, "step_s") > 0);
        (void)seconds(line, "exposed_s");
        assert_int_equal(json_integer_value(json_object_get(line, "steps")), 64);
    }
}

static void a_run_writes_when_gradients_and_buckets_were_ready(void **state)
{
    struct launched job;
    struct seen seen = {0};
    char *text;

    (void)state;
    train(&job, "arrivals.jsonl");
    assert_int_equal(job.exit_status, 0);
    text = launcher_read(job.dir, "arrivals.jsonl");
    assert_non_null(text);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *json = json_loads(line, 0, NULL);

        assert_non_null(json);
        look_at(json, &seen);
        json_decref(json);
    }
    assert_int_equal(seen.gradients, 4);
    assert_true(seen.buckets >= 1);
    assert_int_equal(seen.totals, 1);
    assert_true(seen.bucket_bytes >= seen.gradient_bytes); /* with padding */
    free(text);
    launcher_end(&job);
}

static void a_file_that_cannot_be_written_is_a_failure(void **state)
{
    struct launched job;

    (void)state;
    train(&job, "nowhere/arrivals.jsonl");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "nowhere/arrivals.jsonl");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_writes_when_gradients_and_buckets_were_ready),
        cmocka_unit_test(a_file_that_cannot_be_written_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
