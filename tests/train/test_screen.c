/* test_screen.c - what a user sees on a terminal: progress in one row of any width, also after the
 * window got another size, and colours where they are wanted. */
#include "support/job.h"

#include "base/terminal.h"
#include "report/report_progress.h"

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>

static const struct cddpi_progress_state far_on = {.epoch = 9,
                                                   .epochs = 10,
                                                   .step = 123456,
                                                   .steps = 234567,
                                                   .loss = 0.1234,
                                                   .rate = 56789,
                                                   .unit = "samples",
                                                   .mfu_percent = 41.2,
                                                   .exposed_percent = 3.4,
                                                   .seconds_left = 7384};

/* A terminal of the test, with this process's stderr put there. */
struct screen {
    int master, slave, saved;
};

static void set_columns(int fd, int columns)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};

    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
}

static struct screen open_screen(int columns)
{
    struct screen screen = {.saved = dup(STDERR_FILENO)};

    assert_int_equal(openpty(&screen.master, &screen.slave, NULL, NULL, NULL), 0);
    set_columns(screen.master, columns);
    assert_true(dup2(screen.slave, STDERR_FILENO) >= 0);
    return screen;
}

static void close_screen(struct screen *screen)
{
    (void)dup2(screen->saved, STDERR_FILENO);
    close(screen->saved);
    close(screen->slave);
    close(screen->master);
}

/* Show a line of progress, and return what the terminal got. */
static const char *show_step(struct screen *screen, struct cddpi_progress *progress)
{
    static char text[1000];
    ssize_t got;

    progress->shown_ns = 0; /* no pause between lines */
    cddpi_progress_step(progress, &far_on);
    got = read(screen->master, text, sizeof text - 1);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* The columns of the widest line of @p text, without colours. A redrawn line begins anew. */
static int widest(const char *text)
{
    int most = 0;
    int columns = 0;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\033') {
            at += strcspn(at, "mK");
        } else if (*at == '\r' || *at == '\n') {
            columns = 0;
        } else {
            columns += ((unsigned char)*at & 0xc0) != 0x80;
        }
        most = columns > most ? columns : most;
    }
    return most;
}

static void a_narrow_terminal_loses_fields_from_the_right(void **state)
{
    static const struct {
        int columns;
        const char *text;
    } cases[] = {
        {200, "\r\033[0Kstep 123456/234567  loss 0.1234  2:03:04 left  epoch 9/10  56789 samples/s"
              "  exposed comm 3.4 %  MFU 41.2 %"},
        {80, "\r\033[0Kstep 123456/234567  loss 0.1234  2:03:04 left  epoch 9/10  56789 samples/s"},
        {75, "\r\033[0Kstep 123456/234567  loss 0.1234  2:03:04 left  epoch 9/10  56789 samples/s"},
        {74, "\r\033[0Kstep 123456/234567  loss 0.1234  2:03:04 left  epoch 9/10"},
        {50, "\r\033[0Kstep 123456/234567  loss 0.1234  2:03:04 left"},
        {20, "\r\033[0Kstep 123456/234567"},
        {10, "\r\033[0Kstep 1234"},
        {1, "\r\033[0K"},
    };

    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct screen screen = open_screen(cases[i].columns);
        struct cddpi_progress progress;
        char got[1000];

        cddpi_progress_init(&progress, false);
        snprintf(got, sizeof got, "%s", show_step(&screen, &progress));
        close_screen(&screen);
        assert_string_equal(got, cases[i].text);
    }
}

static void the_next_line_fits_a_window_of_another_size(void **state)
{
    struct screen screen = open_screen(120);
    struct cddpi_progress progress;
    int before, smaller, larger;

    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    cddpi_progress_init(&progress, false);
    before = widest(show_step(&screen, &progress));
    set_columns(screen.master, 30);
    smaller = widest(show_step(&screen, &progress));
    set_columns(screen.master, 80);
    larger = widest(show_step(&screen, &progress));
    close_screen(&screen);
    assert_true(before > 80 && before < 120);
    assert_true(smaller > 0 && smaller < 30);
    assert_true(larger > 50 && larger < 80);
}

/* @p term NULL: unset. Returns whether there was a colour. */
static bool is_coloured(const char *term, const char *no_color, int columns)
{
    struct screen screen = open_screen(columns);
    struct cddpi_progress progress;
    bool found;

    if (term != NULL) {
        setenv("TERM", term, 1);
    } else {
        unsetenv("TERM");
    }
    if (no_color != NULL) {
        setenv("NO_COLOR", no_color, 1);
    } else {
        unsetenv("NO_COLOR");
    }
    cddpi_progress_init(&progress, false);
    found = strstr(show_step(&screen, &progress), "\033[32m2:03:04 left\033[m") != NULL;
    close_screen(&screen);
    return found;
}

static void colours_come_where_they_are_wanted_and_take_no_room(void **state)
{
    (void)state;
    assert_true(is_coloured("xterm-256color", NULL, 80));
    assert_true(is_coloured("xterm-256color", "", 80));
    assert_true(is_coloured("xterm-256color", NULL, 46)); /* 45 columns up to "left" */
    assert_false(is_coloured("xterm-256color", NULL, 45));
    assert_false(is_coloured("xterm-256color", "1", 80));
    assert_false(is_coloured(NULL, NULL, 80));
    assert_false(is_coloured("dumb", NULL, 80));
}

static void a_dumb_terminal_gets_plain_lines(void **state)
{
    struct screen screen;
    struct cddpi_progress progress;
    char got[1000];

    (void)state;
    setenv("TERM", "dumb", 1);
    screen = open_screen(80);
    cddpi_progress_init(&progress, false);
    snprintf(got, sizeof got, "%s", show_step(&screen, &progress));
    close_screen(&screen);
    assert_string_equal(got,
                        "epoch 9/10  step 123456/234567  loss 0.1234  56789 samples/s  MFU 41.2 %"
                        "  exposed comm 3.4 %  2:03:04 left\r\n");
}

static void a_terminal_without_a_size_takes_columns_or_eighty(void **state)
{
    struct screen screen = open_screen(0);

    (void)state;
    setenv("COLUMNS", "33", 1);
    assert_int_equal(cddpi_terminal_columns(screen.slave), 33);
    setenv("COLUMNS", "-1", 1);
    assert_int_equal(cddpi_terminal_columns(screen.slave), 80);
    unsetenv("COLUMNS");
    assert_int_equal(cddpi_terminal_columns(screen.slave), 80);
    close_screen(&screen);
}

/* Start a program of ours in a terminal. */
static pid_t start_in_terminal(int columns, const char *const *words, int *out_fd)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    pid_t pid;

    fflush(NULL);
    pid = forkpty(out_fd, NULL, NULL, &size);
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        unsetenv("NO_COLOR");
        alarm(SUPPORT_LIMIT_S);
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(98);
    }
    assert_true(pid > 0);
    return pid;
}

/* Read up to @p part, or to the end (NULL). */
static char *read_screen(int fd, const char *part)
{
    static char text[1 << 18];
    size_t used = 0;

    text[0] = '\0';
    while (used < sizeof text - 1 && (part == NULL || strstr(text, part) == NULL)) {
        struct pollfd readable = {fd, POLLIN, 0};
        ssize_t got = poll(&readable, 1, SUPPORT_TIMEOUT_MS) > 0
                          ? read(fd, text + used, sizeof text - 1 - used)
                          : 0;

        if (got <= 0) {
            break; /* EIO: nobody has the terminal open any more */
        }
        used += (size_t)got;
        text[used] = '\0';
    }
    if (part != NULL && strstr(text, part) == NULL) {
        fail_msg("no \"%s\" on the terminal, but: %s", part, text);
    }
    return text;
}

/* Assert that each redrawn line of @p text fits. Lines that stay end with a newline, which the
 * terminal shows as \r\n, and may be longer. Returns how many are redrawn. */
static int assert_lines_fit(char *text, int columns)
{
    int lines = 0;

    for (char *at = strstr(text, "\r\033[0K"); at != NULL;) {
        char *next = strstr(at + 5, "\r\033[0K");
        size_t length = strcspn(at + 5, "\r\n");
        char *line = strndup(at + 5, length);
        int found = widest(line);

        bool stays = strncmp(at + 5 + length, "\r\n", 2) == 0;

        if (!stays && found >= columns) {
            fail_msg("%d columns, but a line of %d: %s", columns, found, line);
        }
        lines += !stays && found > 0;
        free(line);
        at = next;
    }
    return lines;
}

/* Train in terminals of three widths; @p launched: by cddp-run, which owns the terminal then. */
static void train_in_terminals(bool launched)
{
    static const int widths[] = {80, 50, 20};
    const char *run = launcher_path("launcher/cddp-run");
    const char *train = argument("%s/src/cddp-train", getenv("CDDP_TEST_BUILD"));

    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const char *folder = run_dir_argument(argument("screen-%d-%d", launched, widths[i]));
        const char *const by_run[] = {run, "--nproc", "2", in_work("small.conf"), folder, NULL};
        const char *const alone[] = {train, in_work("small.conf"), folder, NULL};
        char *text;
        int status;
        int fd;
        pid_t pid = start_in_terminal(widths[i], launched ? by_run : alone, &fd);

        text = read_screen(fd, NULL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        close(fd);
        if (status != 0) {
            fail_msg("status %x: %s", (unsigned)status, text);
        }
        assert_true(assert_lines_fit(text, widths[i]) > 0);
        assert_non_null(strstr(text, "\033[0Kstep 1/"));
    }
}

static void progress_of_cddp_train_fits_any_terminal(void **state)
{
    (void)state;
    train_in_terminals(false);
}

static void progress_through_cddp_run_fits_any_terminal(void **state)
{
    (void)state;
    train_in_terminals(true);
}

/* The launcher cuts, as ranks cannot ask a terminal that they do not have. */
static void a_window_of_another_size_is_known_to_cddp_run(void **state)
{
    static const char script[] =
        "line='\\r\\033[0Kfirst field  second field  third field'; printf \"$line\" >&2;"
        " while [ ! -e \"$0-1\" ]; do sleep 0.01; done; printf \"$line\" >&2;"
        " while [ ! -e \"$0-2\" ]; do sleep 0.01; done; printf \"$line\" >&2;"
        " printf '\\r\\033[Kof another program: not cut' >&2;"
        " printf '\\r\\033[0Ka line that stays\\n' >&2; echo done";
    const char *const words[] = {launcher_path("launcher/cddp-run"),
                                 "-n",
                                 "1",
                                 "--",
                                 "sh",
                                 "-c",
                                 script,
                                 in_work("resized"),
                                 NULL};
    const char *text;
    int status;
    int fd;
    pid_t pid;

    (void)state;
    pid = start_in_terminal(80, words, &fd);
    (void)read_screen(fd, "\r\033[0Kfirst field  second field  third field");
    set_columns(fd, 30);
    support_write_file(in_work("resized-1"), "", 0);
    assert_null(strstr(read_screen(fd, "\r\033[0Kfirst field  second field"), "third"));
    set_columns(fd, 8);
    support_write_file(in_work("resized-2"), "", 0);
    text = read_screen(fd, "\r\033[0Ka line that stays\r\n");
    assert_null(strstr(text, "first fi"));
    assert_non_null(strstr(text, "\r\033[Kof another program: not cut"));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fd);
    assert_int_equal(status, 0);
}

static void characters_that_take_two_columns_or_none_are_counted_so(void **state)
{
    static const char line[] = "\u4e2d\u6587  e\u0301"; /* 4 columns, 2 spaces, 1 column */

    (void)state;
    assert_int_equal(cddpi_terminal_fit(line, sizeof line - 1, 8), sizeof line - 1);
    assert_int_equal(cddpi_terminal_fit(line, sizeof line - 1, 7), 6);
    assert_int_equal(cddpi_terminal_fit(line, sizeof line - 1, 4), 3);
}

/* Assert that @p text has @p lines, each of which begins a line, in this order. */
static void assert_lines(const char *text, const char *const *lines)
{
    const char *at = text;

    for (int i = 0; lines[i] != NULL; i++) {
        const char *found = strstr(at, lines[i]);

        if (found == NULL || (found > text && found[-1] != '\n')) {
            fail_msg("no line \"%s\", but: %s", lines[i], text);
            return;
        }
        at = found;
    }
}

static void a_run_begins_with_five_lines_and_ends_with_where_to_go(void **state)
{
    struct launched job = {0};
    const char *folder = argument("%s", in_work("told"));
    const char *const lines[] = {
        "model   mlp: 1,108 parameters, f32\n",
        "ranks   2, each on cpu (processor); backend: host\n",
        "data    idx: 600 samples for training, 150 for evaluation\n",
        "batch   64 samples per step, on 2 replicas, each with 2 micro-batches"
        " of at most 16\n",
        argument("folder  %s\n", folder),
        "epoch 1/3  step 1/30  ",
        "the run took ",
        argument("report: %s/report.html\n", folder),
        argument("to train longer: %s --nproc 2 ", launcher_path("launcher/cddp-run")),
        NULL};
    char *again;

    (void)state;
    JOB_RUN_WELL(&job, "--nproc", "2", in_work("small.conf"), run_dir_argument("told"),
                 "train.accumulate=2", "train.epochs=3");
    assert_lines(job.err, lines);
    again = strdup(strstr(job.err, "to train longer: ") + strlen("to train longer: "));
    launcher_end(&job);
    again[strcspn(again, "\n")] = '\0';
    assert_non_null(strstr(again, " train.epochs=6 train.resume=auto"));
    assert_null(strstr(again, "train.epochs=3"));
    assert_int_equal(system(argument("%s >/dev/null 2>&1", again)), 0); /* it is a command */
    assert_true(isfinite(metric("told", 60, "loss")));
    free(again);
}

/* A number of the line @p number, from 0, of kind "end" of a run's metrics. */
static double end_number(const char *run_dir, int number, const char *name)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    const char *at = text;
    json_t *line;
    double value;

    for (int i = 0; i <= number; i++) {
        at = strstr(i == 0 ? at : at + 1, "{\"kind\":\"end\"");
        assert_non_null(at);
    }
    line = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    value = json_number_value(json_object_get(line, name));
    json_decref(line);
    free(text);
    return value;
}

static void seconds_of_a_resumed_run_count_from_its_first_start(void **state)
{
    struct launched job = {0};
    double first, second, both;

    (void)state;
    JOB_RUN_WELL(&job, "--nproc", "1", in_work("small.conf"), run_dir_argument("twice"),
                 "train.max_steps=10");
    launcher_end(&job);
    JOB_RUN_WELL(&job, "--nproc", "1", in_work("small.conf"), run_dir_argument("twice"),
                 "train.max_steps=20", "train.resume=auto");
    assert_non_null(strstr(job.err, " of them before it was resumed\n"));
    launcher_end(&job);
    first = end_number("twice", 0, "seconds");
    second = end_number("twice", 1, "seconds");
    both = end_number("twice", 1, "run_seconds");
    assert_true(first > 0 && second > 0);
    assert_true(fabs(both - (first + second)) < 1e-6 * both); /* JSON has 9 digits */
    assert_true(end_number("twice", 0, "run_seconds") == first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_narrow_terminal_loses_fields_from_the_right),
        cmocka_unit_test(the_next_line_fits_a_window_of_another_size),
        cmocka_unit_test(colours_come_where_they_are_wanted_and_take_no_room),
        cmocka_unit_test(a_dumb_terminal_gets_plain_lines),
        cmocka_unit_test(a_terminal_without_a_size_takes_columns_or_eighty),
        cmocka_unit_test(progress_of_cddp_train_fits_any_terminal),
        cmocka_unit_test(progress_through_cddp_run_fits_any_terminal),
        cmocka_unit_test(characters_that_take_two_columns_or_none_are_counted_so),
        cmocka_unit_test(a_window_of_another_size_is_known_to_cddp_run),
        cmocka_unit_test(a_run_begins_with_five_lines_and_ends_with_where_to_go),
        cmocka_unit_test(seconds_of_a_resumed_run_count_from_its_first_start),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
