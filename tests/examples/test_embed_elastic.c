/* test_embed_elastic.c - examples/embed_elastic, whose ranks are killed, leave and come at any
 * moment: the job goes on from its last step, and prints what a job prints that nobody disturbs. */
#include "examples/told_steps.h"
#include "support/ctl_run.h"
#include "support/recovery.h"

#include <sys/mman.h>

/* LONG_STEPS: as tests/examples/meson.build says. The example prints the loss of each 20th step,
 * and of the last one. */
enum { LONG_STEPS = 8000, LINES = LONG_STEPS / 20 + 1, TEXT_BYTES = 40, MOMENT_MS = 40 };

/* What is printed after "loss" or "weights". */
struct said {
    char losses[LINES][TEXT_BYTES];
    char weights[MOST_RANKS][TEXT_BYTES];
};

struct elastic {
    struct launched job;
    const char *name; /* of the run folder, by which processes are found */
    struct told_steps *told;
};

/* A disturbance. Returns the number of ranks with which the job goes on. */
typedef int (*disturb_fn)(const struct elastic *at);

/* By hand, $TEST_DRAWS draws other moments and ranks. */
static int draw(int below)
{
    static uint32_t random;

    if (random == 0) {
        const char *draws = getenv("TEST_DRAWS");

        random = draws != NULL ? (uint32_t)atoi(draws) : 1;
    }
    random = random * 1664525U + 1013904223U;
    return (int)((random >> 16) % (uint32_t)below);
}

static const char *program_path(const char *name)
{
    return argument("%s", launcher_path(argument("tests/examples/%s", name)));
}

/* @p dies: told_steps.dies. */
static void start_elastic(struct elastic *at, const char *program, int dies,
                          const char *const *options)
{
    static int number;
    const char *words[16] = {NULL};
    const char *path;
    int count = 0;
    int fd;

    *at = (struct elastic){.name = argument("run-%d", number++)};
    path = in_work("%s.told", at->name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, sizeof *at->told) == 0);
    at->told = mmap(NULL, sizeof *at->told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at->told != MAP_FAILED);
    close(fd);
    at->told->dies = dies;
    setenv(TOLD_STEPS, path, 1);
    assert_int_equal(mkdir(in_work("%s", at->name), 0700), 0);
    while (*options != NULL) {
        words[count++] = *options++;
    }
    words[count++] = "--run-dir";
    words[count++] = argument("%s", in_work("%s", at->name));
    words[count++] = "--";
    words[count++] = program_path(program);
    words[count] = run_dir_argument(at->name); /* find_rank() reads it, the trainer does not */
    launcher_start(&at->job, words);
}

#define START_ELASTIC(at, program, dies, ...)                                                      \
    start_elastic((at), (program), (dies), (const char *const[]){__VA_ARGS__, NULL})

static void end_elastic(struct elastic *at)
{
    assert_no_orphan(at->name);
    munmap(at->told, sizeof *at->told);
    launcher_end(&at->job);
}

static bool has_ended(const struct elastic *at, long waited_ms)
{
    siginfo_t ended = {.si_pid = 0};

    assert_int_equal(waitid(P_PID, (id_t)at->job.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    if (waited_ms >= SUPPORT_TIMEOUT_MS) {
        fail_msg("what should come did not: %s", launcher_read(at->job.dir, "err"));
    }
    return ended.si_pid != 0;
}

/* Wait until the job has begun a few steps more. False: it ends before. */
static bool await_steps(const struct elastic *at)
{
    uint64_t before = at->told->most;

    for (long waited_ms = 0; at->told->most < before + 3; waited_ms += 2) {
        if (has_ended(at, waited_ms)) {
            return false;
        }
        support_sleep_ms(2);
    }
    return true;
}

/* Wait until another generation than the first @p before has begun. */
static bool await_generation(const struct elastic *at, int before)
{
    for (long waited_ms = 0; at->told->begun <= before; waited_ms += 2) {
        if (has_ended(at, waited_ms)) {
            return false;
        }
        support_sleep_ms(2);
    }
    return true;
}

static pid_t signal_rank(const struct elastic *at, int rank, int number)
{
    pid_t pid = find_rank(at->name, rank);

    return pid > 0 && kill(pid, number) == 0 ? pid : 0;
}

static int kill_any(const struct elastic *at)
{
    (void)signal_rank(at, draw(at->told->ranks), SIGKILL);
    return at->told->ranks;
}

static int kill_first(const struct elastic *at)
{
    (void)signal_rank(at, 0, SIGKILL);
    return at->told->ranks;
}

static int kill_all(const struct elastic *at)
{
    int ranks = at->told->ranks;
    pid_t pids[MOST_RANKS];

    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = find_rank(at->name, rank);
    }
    for (int rank = 0; rank < ranks; rank++) {
        (void)(pids[rank] > 0 && kill(pids[rank], SIGKILL));
    }
    return ranks;
}

/* All but one may be gone before the launcher hears of the first. */
static int kill_most(const struct elastic *at)
{
    int ranks = at->told->ranks;

    for (int rank = ranks > 1; rank < ranks; rank++) {
        pid_t pid = signal_rank(at, rank, SIGKILL);

        (void)(pid > 0 && launcher_is_gone(pid));
    }
    return ranks;
}

/* Kill a rank, and soon after one more: of the next generation while it starts, or already ends. */
static int kill_twice(const struct elastic *at)
{
    int ranks = kill_any(at);

    support_sleep_ms(draw(4 * MOMENT_MS));
    (void)signal_rank(at, draw(ranks), SIGKILL);
    return ranks;
}

/* Ask a rank to stop: all do, and the job begins again. */
static int ask_any(const struct elastic *at)
{
    (void)signal_rank(at, draw(at->told->ranks), SIGTERM);
    return at->told->ranks;
}

/* In a job of --elastic, the rank leaves. */
static int let_leave(const struct elastic *at)
{
    return ask_any(at) - 1;
}

static int let_come(const struct elastic *at)
{
    int ranks = at->told->ranks;
    struct launched ctl = {0};

    CTL(&ctl, in_work("%s", at->name), "add", "1");
    if (ctl.exit_status != 0 && at->told->most < LONG_STEPS) { /* else the job ends now */
        fail_msg("exit status %d: %s%s", ctl.exit_status, ctl.out, ctl.err);
    }
    launcher_end(&ctl);
    return ranks + 1;
}

/* Copy the rest of the line after @p at. */
static void copy_line(const char *at, char *out)
{
    size_t bytes = strcspn(at, "\n");

    assert_true(bytes > 0 && bytes < TEXT_BYTES);
    memcpy(out, at, bytes);
    out[bytes] = '\0';
}

/* Read what @p job has printed, if need be several times, and always the same. */
static void read_said(const struct launched *job, struct said *out)
{
    memset(out, 0, sizeof *out);
    for (const char *line = job->out; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *text = *line == '[' ? line + 4 : line; /* "[1] " */
        char here[TEXT_BYTES];
        char *there;
        int number;

        assert_non_null(strchr(text, '\n')); /* lines are whole */
        if (sscanf(text, "step %d loss", &number) == 1) {
            assert_in_range(number, 0, LONG_STEPS - 1);
            there = out->losses[(number + 19) / 20];
            copy_line(strstr(text, "loss"), here);
        } else {
            assert_int_equal(sscanf(text, "rank %d weights", &number), 1);
            assert_in_range(number, 0, MOST_RANKS - 1);
            there = out->weights[number];
            copy_line(strstr(text, "weights"), here);
        }
        if (there[0] != '\0' && strcmp(here, there) != 0) {
            fail_msg("%.*s, but before it was %s", (int)strcspn(text, "\n"), text, there);
        }
        memcpy(there, here, sizeof here);
    }
}

/* The job has printed what an undisturbed one prints: all of it, or the first @p lines lines. */
static void compare(const struct elastic *at, const struct said *whole, int lines)
{
    struct said said;

    read_said(&at->job, &said);
    for (int i = 0; i < lines; i++) {
        if (strcmp(said.losses[i], whole->losses[i]) != 0) {
            fail_msg("step %d: \"%s\", but undisturbed \"%s\"", i * 20, said.losses[i],
                     whole->losses[i]);
        }
    }
    for (int rank = 0; lines == LINES && rank < at->told->ranks; rank++) {
        assert_string_equal(said.weights[rank], whole->weights[0]);
    }
    assert_no_err(&at->job, "recovery");
}

/* Disturb the job at random moments until it ends, or has been disturbed in all ways from the
 * @p next-th on. Returns the next one. */
static int disturb(const struct elastic *at, const disturb_fn *ways, int next, int count)
{
    while (next < count && await_steps(at)) {
        int begun = at->told->begun;
        int ranks;

        support_sleep_ms(draw(MOMENT_MS));
        ranks = ways[next](at);
        if (!await_generation(at, begun)) {
            return next;
        }
        assert_int_equal(at->told->ranks, ranks);
        assert_true(at->told->restored > 0);
        if (ways[next] == ask_any || ways[next] == let_leave || ways[next] == let_come) {
            assert_int_equal(at->told->restored, at->told->stopped);
        }
        next++;
    }
    return next;
}

/* Start jobs, and disturb them in all ways; mostly, one is enough. */
static void go_through(const char *program, const char *const *options, const disturb_fn *ways,
                       int count, const struct said *whole)
{
    for (int next = 0; next < count;) {
        struct elastic at;

        start_elastic(&at, program, -1, options);
        next = disturb(&at, ways, next, count);
        launcher_wait(&at.job);
        if (at.job.exit_status != 0) {
            fail_msg("exit status %d: %s", at.job.exit_status, at.job.err);
        }
        assert_in_range(at.told->lost, 0, 1); /* the step that was not complete */
        compare(&at, whole, LINES);
        end_elastic(&at);
    }
}

#define GO_THROUGH(program, ways, whole, ...)                                                      \
    go_through((program), (const char *const[]){__VA_ARGS__, NULL}, (ways),                        \
               sizeof(ways) / sizeof *(ways), (whole))

/* What the trainer prints without what is tested here: a process alone, or on @p ranks ranks. */
static const struct said *undisturbed(const char *program, const char *ranks)
{
    static struct said said;
    struct launched job = {0};

    if (ranks == NULL) {
        launcher_start_program(&job, program_path(program), (const char *const[]){NULL});
        launcher_wait(&job);
    } else {
        LAUNCH(&job, "--nproc", ranks, "--", program_path(program));
    }
    assert_int_equal(job.exit_status, 0);
    read_said(&job, &said);
    assert_true(said.losses[LINES - 1][0] != '\0' && said.weights[0][0] != '\0');
    launcher_end(&job);
    return &said;
}

static void killed_ranks_lose_no_step(void **state)
{
    static const disturb_fn one[] = {kill_first, ask_any, kill_twice};
    static const disturb_fn two[] = {kill_any, kill_all, ask_any, kill_twice};
    static const disturb_fn three[] = {kill_first, kill_most, kill_twice, ask_any};
    static const disturb_fn five[] = {kill_all, kill_any, ask_any, kill_most};
    const struct said *whole = undisturbed("embed_same_bits_long", NULL);

    (void)state;
    GO_THROUGH("embed_elastic_long", one, whole, "--nproc", "1", "--max-restarts", "1000");
    GO_THROUGH("embed_elastic_long", two, whole, "--nproc", "2", "--max-restarts", "1000");
    GO_THROUGH("embed_elastic_long", three, whole, "--nproc", "3", "--max-restarts", "1000");
    GO_THROUGH("embed_elastic_long", five, whole, "--nproc", "5", "--max-restarts", "1000");
}

static void ranks_may_leave_and_come_and_be_killed(void **state)
{
    static const disturb_fn ways[] = {let_leave, kill_any,  let_come,   let_come, kill_all,
                                      let_come,  let_leave, kill_first, let_leave};
    const struct said *whole = undisturbed("embed_same_bits_long", NULL);

    (void)state;
    GO_THROUGH("embed_elastic_long", ways, whole, "--elastic", "1:6", "--nproc", "3");
}

/* Without micro-batches, sums depend on the number of ranks, but on nothing else. */
static void as_many_ranks_go_on_with_the_same_bits_in_any_trainer(void **state)
{
    static const disturb_fn ways[] = {kill_any, ask_any, kill_all, kill_first};
    const struct said *whole = undisturbed("embed_long", "3");

    (void)state;
    GO_THROUGH("embed_elastic_plain_long", ways, whole, "--nproc", "3", "--max-restarts", "1000");
}

static void a_job_that_is_asked_to_stop_ends_with_status_3(void **state)
{
    const struct said *whole = undisturbed("embed_same_bits_long", NULL);
    struct elastic at;
    bool is_early;

    (void)state;
    do {
        START_ELASTIC(&at, "embed_elastic_long", -1, "--nproc", "2");
        is_early = await_steps(&at);
        kill(at.job.pid, SIGTERM);
        launcher_wait(&at.job);
        is_early = is_early && at.told->stopped < LONG_STEPS && at.job.exit_status != 0;
        if (is_early) {
            assert_int_equal(at.job.exit_status, 3);
            assert_true(at.told->stopped > 0);
            compare(&at, whole, (int)at.told->stopped / 20);
            assert_null(strstr(at.job.out, "weights"));
        }
        end_elastic(&at);
    } while (!is_early);
}

static void a_rank_that_dies_when_all_is_done_lets_nothing_begin_anew(void **state)
{
    const struct said *whole = undisturbed("embed_same_bits_long", NULL);

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct elastic at;

        START_ELASTIC(&at, "embed_elastic_long", rank, "--nproc", "2", "--max-restarts", "1000");
        launcher_wait(&at.job);
        assert_int_equal(at.job.exit_status, 0);
        assert_int_equal(at.told->begun, 2);
        assert_int_equal(at.told->restored, LONG_STEPS);
        compare(&at, whole, LINES);
        end_elastic(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_lose_no_step),
        cmocka_unit_test(ranks_may_leave_and_come_and_be_killed),
        cmocka_unit_test(as_many_ranks_go_on_with_the_same_bits_in_any_trainer),
        cmocka_unit_test(a_job_that_is_asked_to_stop_ends_with_status_3),
        cmocka_unit_test(a_rank_that_dies_when_all_is_done_lets_nothing_begin_anew),
    };

    if (access(program_path("embed_elastic_long"), X_OK) != 0) {
        printf("the examples were not built: the program patch is missing\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
