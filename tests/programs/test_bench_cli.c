/* test_bench_cli.c - cddp-bench as a user runs it: it measures correct results, and what it
 * prints. */
#include "support/bench_cli.h"
#include "support/mpirun.h"
#include "support/tokenize.h"

#include <jansson.h>

static const char *const types[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8", "i8", "bool"};
static const char *const ops[] = {"sum", "mean", "min", "max", "prod"};
static const char *const bit_ops[] = {"and", "or", "xor"};
static const char *const bit_types[] = {"i32", "i64", "u8", "i8", "bool"};
static const char *const collectives[] = {"all_reduce",     "broadcast",  "reduce",
                                          "all_gather",     "gather",     "scatter",
                                          "reduce_scatter", "all_to_all", "send_recv"};

enum { TYPES = 9, OPS = 5, BIT_OPS = 3, BIT_TYPES = 5, COLLECTIVES = 9 };

/* One element, and more than a chunk of what is compared at a time. */
#define FEW "--min", "1", "--max", "40001", "--factor", "40000", "-n", "1", "-w", "0"

static void check_all_types(int ranks)
{
    struct launched job = {0};
    char what[64];

    for (int c = 0; c < COLLECTIVES; c++) {
        for (int t = 0; t < TYPES; t++) {
            BENCH(&job, ranks, collectives[c], "--check", "--type", types[t], FEW);
            snprintf(what, sizeof what, "%s of %s, %d ranks", collectives[c], types[t], ranks);
            bench_found_nothing_wrong(&job, what);
        }
    }
    launcher_end(&job);
}

static void three_ranks_get_the_right_bits_of_every_collective_and_type(void **state)
{
    (void)state;
    check_all_types(3);
}

static void two_ranks_do(void **state)
{
    (void)state;
    check_all_types(2);
}

static void a_lone_rank_does_but_for_ping_pong(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int c = 0; c < COLLECTIVES - 1; c++) {
        BENCH(&job, 1, collectives[c], "--check", "--type", types[c % TYPES], FEW);
        bench_found_nothing_wrong(&job, collectives[c]);
    }
    BENCH(&job, 1, "send_recv");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "send_recv needs two ranks");
    launcher_end(&job);
}

static void every_operation_is_checked(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int o = 0; o < OPS; o++) {
        BENCH(&job, 3, "all_reduce", "--check", "--op", ops[o], "--type", types[(o + 2) % 7], FEW);
        bench_found_nothing_wrong(&job, ops[o]);
        BENCH(&job, 3, "reduce_scatter", "--check", "--op", ops[o], "--in-place", FEW);
        bench_found_nothing_wrong(&job, ops[o]);
    }
    for (int i = 0; i < BIT_OPS * BIT_TYPES; i++) {
        BENCH(&job, 3, "all_reduce", "--check", "--op", bit_ops[i % BIT_OPS], "--type",
              bit_types[i / BIT_OPS], FEW);
        bench_found_nothing_wrong(&job, bit_ops[i % BIT_OPS]);
    }
    BENCH(&job, 2, "all_reduce", "--type", "f32", "--op", "xor", FEW);
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "xor");
    BENCH(&job, 2, "all_reduce", "--type", "bool", "--op", "mean", FEW);
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "mean");
    launcher_end(&job);
}

static void results_may_replace_their_inputs_in_any_memory(void **state)
{
    static const char *const in_place[] = {"all_reduce", "broadcast",      "reduce",
                                           "all_gather", "reduce_scatter", "all_to_all"};
    struct launched job = {0};

    (void)state;
    for (size_t c = 0; c < sizeof in_place / sizeof *in_place; c++) {
        BENCH(&job, 3, in_place[c], "--check", "--in-place", "--alloc", "malloc", FEW);
        bench_found_nothing_wrong(&job, in_place[c]);
    }
    launcher_end(&job);
}

static void another_root_gives_and_gets(void **state)
{
    static const char *const rooted[] = {"broadcast", "reduce", "gather", "scatter"};
    struct launched job = {0};

    (void)state;
    for (size_t c = 0; c < sizeof rooted / sizeof *rooted; c++) {
        BENCH(&job, 3, rooted[c], "--check", "--root", "2", FEW);
        bench_found_nothing_wrong(&job, rooted[c]);
    }
    launcher_end(&job);
}

/* Ranks that make other elements than their peers think. */
static void wrong_elements_are_counted_and_are_a_failure(void **state)
{
    struct launched job = {0};
    char command[4400];

    (void)state;
    snprintf(command, sizeof command,
             "exec %s all_gather --check --seed $CDDP_RANK --min 4K --max 4K -n 1", bench_path());
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c", command);
    assert_int_equal(job.exit_status, 1);
    assert_out(&job, "# wrong elements: 1024\n"); /* each rank's 512 of the other */
    launcher_end(&job);
}

static void a_barrier_has_times_and_no_data(void **state)
{
    struct launched job = {0};

    (void)state;
    BENCH(&job, 2, "barrier", "-n", "10");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "            0            0   none   none    -1 ");
    assert_out(&job, "     N/A ");
    launcher_end(&job);
}

static double real(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (!json_is_number(value)) {
        fail_msg("there is no number %s", key);
    }
    return json_number_value(value);
}

static void look_at_rows(json_t *root)
{
    const json_t *rows = json_object_get(root, "rows");
    static const double sizes[] = {1020, 8184, 65532};

    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "collective")), "all_gather");
    assert_string_equal(json_string_value(json_object_get(root, "op")), "none");
    assert_float_equal(real(root, "ranks"), 3, 0);
    assert_float_equal(real(root, "hosts"), 1, 0);
    assert_true(json_is_null(json_object_get(root, "carrier")));
    assert_float_equal(real(root, "wrong"), 0, 0);
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < 3; i++) { /* whole elements of three ranks */
        const json_t *row = json_array_get(rows, i);

        assert_float_equal(real(row, "bytes"), sizes[i], 0);
        assert_float_equal(real(row, "count"), sizes[i] / 12, 0);
        assert_float_equal(real(row, "iterations"), 5, 0);
        assert_true(real(row, "min_us") <= real(row, "median_us"));
        assert_float_equal(real(row, "algbw_gb_per_s"), sizes[i] / real(row, "time_us") / 1e3,
                           1e-6 * real(row, "algbw_gb_per_s"));
        assert_float_equal(real(row, "busbw_gb_per_s"), real(row, "algbw_gb_per_s") * 2 / 3,
                           1e-6 * real(row, "algbw_gb_per_s"));
    }
    json_decref(root);
}

static void figures_can_be_read_by_programs(void **state)
{
    struct launched job = {0};
    char *text;

    (void)state;
    BENCH(&job, 3, "all_gather", "--min", "1K", "--max", "64KiB", "--factor", "8", "-n", "5",
          "--check", "--json", "-");
    assert_int_equal(job.exit_status, 0);
    look_at_rows(json_loads(job.out, 0, NULL));
    BENCH(&job, 3, "all_gather", "--min", "1024", "--max", "64K", "--factor", "8", "-n", "5",
          "--check", "--json", "figures.json");
    bench_found_nothing_wrong(&job, "a file");
    text = launcher_read(job.dir, "figures.json");
    assert_non_null(text);
    look_at_rows(json_loads(text, 0, NULL));
    free(text);
    BENCH(&job, 2, "barrier", "-n", "1", "--json", "nowhere/figures.json");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "nowhere/figures.json");
    launcher_end(&job);
}

static void a_wrong_command_line_gives_two_and_says_why(void **state)
{
    static const struct {
        const char *arguments[6];
        const char *text;
    } cases[] = {
        {{NULL}, "name one collective, such as all_reduce: see cddp-bench --help"},
        {{"all_reduce", "barrier"}, "name one collective"},
        {{"allreduce"}, "allreduce is not a collective: did you mean all_reduce?"},
        {{"x"}, "x is not a collective: see cddp-bench --help"},
        {{"all_reduce", "--chek"}, " --chek: "},
        {{"all_reduce", "--type", "f8"}, "--type f8"},
        {{"all_reduce", "--op", "avg"}, "--op avg"},
        {{"all_reduce", "--min", "4X"}, "--min 4X: not a size from 1 to 16T bytes"},
        {{"all_reduce", "--min", "0"}, "--min 0: not a size"},
        {{"all_reduce", "--max", "17T"}, "--max 17T: not a size"},
        {{"all_reduce", "--min", "4K", "--max", "4"}, "--max 4 is less than --min 4K"},
        {{"all_reduce", "--factor", "1"}, "--factor 1: "},
        {{"all_reduce", "--iterations", "0"}, "--iterations 0: "},
        {{"all_reduce", "--alloc", "new"}, "--alloc new"},
        {{"all_reduce", "--root", "0"}, "--root has no meaning with all_reduce"},
        {{"all_reduce", "--seed", "2"}, "--seed has no meaning without --check"},
        {{"broadcast", "--op", "sum"}, "--op has no meaning with broadcast"},
        {{"gather", "--in-place"}, "--in-place has no meaning with gather"},
        {{"barrier", "--max", "4"}, "--max has no meaning with barrier"},
        {{"reduce", "--root", "1"}, "--root 1: the group has only 1 rank\n"},
        {{"all_reduce", "--device", "abacus"}, "abacus"},
        {{"all_reduce", "--transport", "tcp"}, "--transport: tcp carries nothing, as all ranks"},
        {{"all_reduce", "--transport", "host:udp"}, "udp is not a carrier: choose tcp or mpi"},
        {{"all_reduce", "--transport", ":tcp"}, "--transport :tcp: name a backend, a carrier"},
        {{"all_reduce", "--transport", ""}, "--transport : name a backend, a carrier"},
        {{"all_reduce", "--transport", "host", "--backend", "host"}, "--backend has no meaning"},
        {{"all_reduce", "--ssh", "x"}, "--ssh has no meaning without --hosts or --hostfile"},
        {{"all_reduce", "--nproc", "0"}, "--nproc"},
        {{"all_reduce", "--nproc", "2", "--type", "f8"}, "cddp-bench: --type f8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct launched job = {0};

        launcher_start_program(&job, bench_path(), cases[i].arguments);
        launcher_wait(&job);
        if (job.exit_status != 2) {
            fail_msg("%s: exit status %d: %s", cases[i].text, job.exit_status, job.err);
        }
        assert_err(&job, cases[i].text);
        launcher_end(&job);
    }
}

static void a_backend_that_is_not_there_is_a_failure(void **state)
{
    struct launched job = {0};

    (void)state;
    BENCH(&job, 2, "all_reduce", "--backend", "best");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "cddp-bench: there is no backend best");
    launcher_end(&job);
}

static void help_and_version_are_there(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(&job, bench_path(), (const char *const[]){"--help", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "usage: cddp-bench [OPTIONS] COLLECTIVE\n");
    for (int c = 0; c < COLLECTIVES; c++) {
        assert_out(&job, collectives[c]);
    }
    launcher_end(&job);
    launcher_start_program(&job, bench_path(), (const char *const[]){"--version", NULL});
    launcher_wait(&job);
    assert_out(&job, "cddp-bench 0.");
    launcher_end(&job);
}

static void mpirun_starts_it(void **state)
{
    struct launched job = {0};

    (void)state;
    if (system("command -v mpirun >/dev/null") != 0) {
        skip();
    }
    mpirun_start(&job, 2, NULL, bench_path(),
                 (const char *const[]){"all_reduce", "--check", FEW, NULL});
    launcher_wait(&job);
    bench_found_nothing_wrong(&job, "mpirun");
    assert_out(&job, ", 2 ranks on 1 host, ");
    launcher_end(&job);
}

/* Options go on to the ranks, whatever their form; those that say where do not. */
static void it_starts_its_ranks_itself(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(
        &job, bench_path(),
        (const char *const[]){"-ti8", "all_reduce", "--nproc=3", "-c", "--op", "xor", FEW, NULL});
    launcher_wait(&job);
    bench_found_nothing_wrong(&job, "--nproc");
    assert_out(&job, ": all_reduce, 3 ranks on 1 host, ");
    assert_out(&job, " i8    xor ");
    launcher_end(&job);
    BENCH(&job, 2, "all_reduce", "--nproc", "2");
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "--hosts, --hostfile and --nproc start ranks, but this is rank ");
    launcher_end(&job);
}

static json_t *read_figures(const struct launched *job)
{
    json_t *root = json_loads(job->out, 0, NULL);

    if (job->exit_status != 0 || root == NULL) {
        fail_msg("exit status %d: %s%s", job->exit_status, job->err, job->out);
    }
    return root;
}

/* The hosts are this one under other names, which are reached by a script. */
static void it_starts_ranks_on_hosts_and_names_what_carries(void **state)
{
    static const char reach[] = "#!/bin/sh\nCDDP_HOST_ID=$1\nexport CDDP_HOST_ID\nshift\n"
                                "exec sh -c \"$*\"\n";
    static const char *const transports[] = {"tcp", "net:tcp", "host"};
    struct launched job = {0};

    (void)state;
    job.dir = support_mkdtemp();
    launcher_write(job.dir, "reach", reach);
    launcher_write(job.dir, "hosts", "alpha slots=1\nbeta slots=2\n");
    for (int i = 0; i < 3; i++) {
        json_t *root;

        launcher_start_program(
            &job, bench_path(),
            (const char *const[]){"--ssh", "./reach", i == 0 ? "--hosts" : "--hostfile",
                                  i == 0 ? "alpha:1,beta:2" : "hosts", "--transport", transports[i],
                                  "all_reduce", "--check", "--json", "-", FEW, NULL});
        launcher_wait(&job);
        root = read_figures(&job);
        assert_float_equal(real(root, "ranks"), 3, 0);
        assert_float_equal(real(root, "hosts"), 2, 0);
        assert_float_equal(real(root, "wrong"), 0, 0);
        assert_string_equal(json_string_value(json_object_get(root, "backend")), "net");
        if (i < 2) {
            assert_string_equal(json_string_value(json_object_get(root, "carrier")), "tcp");
        } else {
            assert_non_null(json_string_value(json_object_get(root, "carrier")));
        }
        json_decref(root);
        forget_output(&job);
    }
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_ranks_get_the_right_bits_of_every_collective_and_type),
        cmocka_unit_test(two_ranks_do),
        cmocka_unit_test(a_lone_rank_does_but_for_ping_pong),
        cmocka_unit_test(every_operation_is_checked),
        cmocka_unit_test(results_may_replace_their_inputs_in_any_memory),
        cmocka_unit_test(another_root_gives_and_gets),
        cmocka_unit_test(wrong_elements_are_counted_and_are_a_failure),
        cmocka_unit_test(a_barrier_has_times_and_no_data),
        cmocka_unit_test(figures_can_be_read_by_programs),
        cmocka_unit_test(a_wrong_command_line_gives_two_and_says_why),
        cmocka_unit_test(a_backend_that_is_not_there_is_a_failure),
        cmocka_unit_test(help_and_version_are_there),
        cmocka_unit_test(mpirun_starts_it),
        cmocka_unit_test(it_starts_its_ranks_itself),
        cmocka_unit_test(it_starts_ranks_on_hosts_and_names_what_carries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
