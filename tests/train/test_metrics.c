/* test_metrics.c - the record of a run: event files byte by byte, and metrics.jsonl across resumes.
 */
#include "base/file.h"
#include "report/metrics.h"
#include "report/tfevents.h"
#include "support/failure.h"
#include "support/folder.h"

#include <cddp/status.h>

#include <dirent.h>
#include <math.h>
#include <sys/resource.h>

/* All of @p name below the folder. */
static char *slurp(const char *name, size_t *out_bytes)
{
    char path[8192];
    char *text = calloc(1, 1 << 16);
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    assert_non_null(file);
    *out_bytes = fread(text, 1, (1 << 16) - 1, file);
    fclose(file);
    return text;
}

/* Vectors of RFC 3720, appendix B.4. */
static void crc32c_gives_the_published_numbers(void **state)
{
    uint8_t data[32];

    (void)state;
    memset(data, 0, sizeof data);
    assert_int_equal(cddpi_crc32c(data, sizeof data), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    assert_int_equal(cddpi_crc32c(data, sizeof data), 0x62a8ab43);
    for (int i = 0; i < 32; i++) {
        data[i] = (uint8_t)i;
    }
    assert_int_equal(cddpi_crc32c(data, sizeof data), 0x46dd794e);
    assert_int_equal(cddpi_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(cddpi_crc32c("", 0), 0);
}

static uint64_t little(const uint8_t *data, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)data[i] << (8 * i);
    }
    return value;
}

/* Check the record at @p at and return its data's length. */
static size_t check_record(const uint8_t *file, size_t bytes, size_t at)
{
    size_t length;

    assert_true(at + 16 <= bytes);
    length = (size_t)little(file + at, 8);
    assert_int_equal(little(file + at + 8, 4), cddpi_crc32c_masked(file + at, 8));
    assert_true(at + 16 + length <= bytes);
    assert_int_equal(little(file + at + 12 + length, 4),
                     cddpi_crc32c_masked(file + at + 12, length));
    return length;
}

static const char *event_file(void)
{
    static char name[512];
    DIR *dir = opendir(folder);
    struct dirent *entry;

    assert_non_null(dir);
    name[0] = '\0';
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            snprintf(name, sizeof name, "%.*s", 500, entry->d_name);
        }
    }
    closedir(dir);
    assert_true(name[0] != '\0');
    return name;
}

static void an_event_file_holds_the_version_and_the_scalars(void **state)
{
    static const char *const names[] = {"loss"};
    const double values[] = {0.5};
    /* after the time: step 300; summary { value { tag "train/loss", simple_value 0.5 } } */
    static const uint8_t expected[] = {0x10, 0xac, 0x02, 0x2a, 19,  0x0a, 17,  0x0a,
                                       10,   't',  'r',  'a',  'i', 'n',  '/', 'l',
                                       'o',  's',  's',  0x15, 0,   0,    0,   0x3f};
    struct cddpi_tfevents *events = NULL;
    uint8_t *file;
    size_t bytes;
    size_t length;
    size_t at;

    (void)state;
    assert_int_equal(cddpi_tfevents_open(folder, 0, &events), CDDP_OK);
    assert_int_equal(cddpi_tfevents_add(events, 300, "train", names, values, 1), CDDP_OK);
    cddpi_tfevents_close(events);
    file = (uint8_t *)slurp(event_file(), &bytes);
    length = check_record(file, bytes, 0);
    assert_memory_equal(file + 12 + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    at = 16 + length;
    length = check_record(file, bytes, at);
    assert_int_equal(length, 9 + sizeof expected);
    assert_memory_equal(file + at + 12 + 9, expected, sizeof expected);
    assert_int_equal(at + 16 + length, bytes);
    free(file);
}

/* Cut out what differs from run to run. */
static void drop_times(char *text)
{
    static const char key[] = ",\"time_ms\":";

    for (char *at = strstr(text, key); at != NULL; at = strstr(at, key)) {
        size_t length = strlen(key) + strspn(at + strlen(key), "0123456789");

        memmove(at, at + length, strlen(at + length) + 1);
    }
}

static void open_and_add(uint64_t from, uint64_t first, uint64_t last)
{
    static const char *const names[] = {"loss"};
    struct cddpi_metrics *metrics = NULL;

    assert_int_equal(cddpi_metrics_open(folder, from, false, &metrics), CDDP_OK);
    for (uint64_t step = first; step <= last; step++) {
        double value = (double)step;

        cddpi_metrics_add(metrics, "train", step, 1, names, &value, 1);
    }
    cddpi_metrics_close(metrics);
}

static void a_resumed_run_has_each_step_once(void **state)
{
    size_t bytes;
    char *text;
    char path[8192];
    FILE *file;

    (void)state;
    open_and_add(0, 1, 4);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    file = fopen(path, "ae");
    fputs("{\"step\":2,\"lo", file); /* a crash in the middle of a line */
    fclose(file);
    open_and_add(2, 3, 3);
    text = slurp("metrics.jsonl", &bytes);
    assert_non_null(strstr(text, "\"time_ms\":"));
    drop_times(text);
    assert_string_equal(text, "{\"step\":1,\"epoch\":1,\"loss\":1.0}\n"
                              "{\"step\":2,\"epoch\":1,\"loss\":2.0}\n"
                              "{\"step\":3,\"epoch\":1,\"loss\":3.0}\n");
    free(text);
}

/* An ended process says its seconds. A killed one has at least the time between its lines that are
 * kept. */
static void a_resumed_run_knows_the_seconds_before(void **state)
{
    static const char lines[] =
        "{\"kind\":\"run\",\"step\":0}\n"
        "{\"step\":1,\"time_ms\":1000}\n{\"step\":2,\"time_ms\":9000}\n"
        "{\"kind\":\"end\",\"step\":2,\"seconds\":10.5,\"run_seconds\":10.5}\n"
        "{\"kind\":\"run\",\"step\":2}\n"
        "{\"step\":3,\"time_ms\":20000}\n{\"step\":4,\"time_ms\":23250}\n"
        "{\"step\":5,\"time_ms\":99000}\n"
        "{\"kind\":\"run\",\"step\":4}\n"
        "{\"step\":3,\"time_ms\":50000}\n{\"step\":4,\"time_ms\":40000}\n"
        "{\"kind\":\"run\",\"step\":4}\n"
        "{\"kind\":\"end\",\"step\":4,\"seconds\":-7}\n"
        "{\"kind\":\"end\",\"step\":4,\"seconds\":\"many\"}\n";
    char path[8192];
    struct cddpi_metrics *metrics = NULL;

    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    support_write_file(path, lines, strlen(lines));
    assert_int_equal(cddpi_metrics_open(folder, 4, false, &metrics), CDDP_OK);
    assert_true(cddpi_metrics_earlier_seconds(metrics) == 10.5 + 3.25);
    cddpi_metrics_close(metrics);
    assert_int_equal(cddpi_metrics_open(folder, 0, false, &metrics), CDDP_OK);
    assert_true(cddpi_metrics_earlier_seconds(metrics) == 0);
    cddpi_metrics_close(metrics);
}

/* The number is known as long as it is always the same. */
static void a_resumed_run_knows_the_ranks_before(void **state)
{
    static const char lines[] = "{\"kind\":\"run\",\"step\":0,\"world_size\":3}\n"
                                "{\"kind\":\"run\",\"step\":2,\"world_size\":3}\n"
                                "{\"kind\":\"run\",\"step\":4,\"world_size\":2}\n"
                                "{\"kind\":\"run\",\"step\":5,\"world_size\":3}\n";
    static const int ranks[] = {3, 3, 3, 3, 0, 0};
    char path[8192];

    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    for (uint64_t step = 0; step < 6; step++) {
        struct cddpi_metrics *metrics = NULL;

        support_write_file(path, lines, strlen(lines));
        assert_int_equal(cddpi_metrics_open(folder, step, false, &metrics), CDDP_OK);
        assert_int_equal(cddpi_metrics_earlier_ranks(metrics), ranks[step]);
        cddpi_metrics_close(metrics);
    }
}

static int refuse_writes(const char *operation)
{
    return strcmp(operation, "write") == 0 ? ENOSPC : 0;
}

static long resident_kib(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

/* Anyone may have written the file: a line of 512 MiB without a newline, here. */
static int read_long_line(int rank, int world_size, void *argument)
{
    const struct cddpi_job_name name = {"job 7", true};
    const struct cddpi_job_name *found = NULL;
    struct cddpi_metrics *metrics;
    long before = resident_kib();

    (void)rank;
    (void)world_size;
    (void)argument;
    CHECK(cddpi_metrics_find_job(folder, &name, 1, &found) == CDDP_OK);
    CHECK(found == &name);
    CHECK(cddpi_metrics_open(folder, 5, false, &metrics) == CDDP_OK);
    cddpi_metrics_close(metrics);
    CHECK(resident_kib() - before < 128 << 10);
    return 0;
}

static void a_line_that_never_ends_takes_no_memory(void **state)
{
    static const char run[] = "\n{\"kind\":\"run\",\"step\":0,\"job\":\"job 7\"}\n";
    char path[8192];
    size_t bytes;
    char *text;
    FILE *file;

    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fputs("{\"step\":1}\n", file) >= 0, 1);
    assert_int_equal(fseek(file, 512L << 20, SEEK_CUR), 0);
    assert_int_equal(fputs(run, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run_ranks(1, read_long_line, NULL), 0);
    text = slurp("metrics.jsonl", &bytes);
    assert_string_equal(text, "{\"step\":1}\n{\"kind\":\"run\",\"step\":0,\"job\":\"job 7\"}\n");
    free(text);
}

static void a_disk_that_is_full_when_a_run_resumes_keeps_all_lines(void **state)
{
    struct cddpi_metrics *metrics = NULL;
    size_t bytes, bytes_after;
    char *before, *after;
    cddp_status status;

    (void)state;
    open_and_add(0, 1, 4);
    before = slurp("metrics.jsonl", &bytes);
    cddpi_file_set_hook(refuse_writes);
    status = cddpi_metrics_open(folder, 2, false, &metrics);
    cddpi_file_set_hook(NULL);
    assert_true(failure_is(status, CDDP_ERR_IO, -1, -1, "") && failure_errno_is(ENOSPC) &&
                last_error_has("/metrics.jsonl: "));
    after = slurp("metrics.jsonl", &bytes_after);
    assert_int_equal(bytes_after, bytes);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

static void what_is_no_number_becomes_null(void **state)
{
    static const char *const names[] = {"a", "b"};
    const double values[] = {NAN, 1.0};
    struct cddpi_metrics *metrics = NULL;
    size_t bytes;
    char *text;

    (void)state;
    assert_int_equal(cddpi_metrics_open(folder, 0, false, &metrics), CDDP_OK);
    cddpi_metrics_add(metrics, "train", 9, 1, names, values, 2);
    cddpi_metrics_close(metrics);
    text = slurp("metrics.jsonl", &bytes);
    assert_non_null(strstr(text, "\"time_ms\":"));
    drop_times(text);
    assert_string_equal(text, "{\"step\":9,\"epoch\":1,\"a\":null,\"b\":1.0}\n");
    free(text);
}

static void a_folder_that_is_missing_is_an_error_that_names_it(void **state)
{
    struct cddpi_metrics *metrics = NULL;

    (void)state;
    assert_true(
        failure_is(cddpi_metrics_open("missing/run", 0, true, &metrics), CDDP_ERR_IO, -1, -1, "") &&
        failure_errno_is(ENOENT) && last_error_has("missing/run/metrics.jsonl"));
    assert_null(metrics);
}

/* In a process of its own: the limit cannot be taken back. */
static int write_to_a_full_disk(int rank, int world_size, void *argument)
{
    static const char *const names[] = {"loss"};
    struct rlimit limit = {200, 200};
    struct cddpi_metrics *metrics = NULL;
    double value = 1;

    (void)rank;
    (void)world_size;
    (void)argument;
    setenv("CDDP_LOG", "off", 1);
    CHECK(cddpi_metrics_open(folder, 0, true, &metrics) == CDDP_OK);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (uint64_t step = 1; step < 100; step++) {
        cddpi_metrics_add(metrics, "train", step, 1, names, &value, 1);
    }
    cddpi_metrics_close(metrics);
    return 0;
}

static void a_full_disk_costs_lines_and_not_the_run(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, write_to_a_full_disk, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_gives_the_published_numbers),
        IN_FOLDER(an_event_file_holds_the_version_and_the_scalars),
        IN_FOLDER(a_resumed_run_has_each_step_once),
        IN_FOLDER(a_resumed_run_knows_the_seconds_before),
        IN_FOLDER(a_resumed_run_knows_the_ranks_before),
        IN_FOLDER(a_disk_that_is_full_when_a_run_resumes_keeps_all_lines),
        IN_FOLDER(a_line_that_never_ends_takes_no_memory),
        IN_FOLDER(what_is_no_number_becomes_null),
        cmocka_unit_test(a_folder_that_is_missing_is_an_error_that_names_it),
        IN_FOLDER(a_full_disk_costs_lines_and_not_the_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
