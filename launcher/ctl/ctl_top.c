/* ctl_top.c - owns the terminal while a job is shown. */
#include "launcher/ctl/ctl_top.h"

#include "launcher/ctl/ctl_print.h"
#include "launcher/ctl/ctl_run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/streams.h"
#include "base/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { EVERY_MS = 1000, TITLE_COLUMNS = 8 };

static volatile sig_atomic_t is_over;

static void end(int number)
{
    (void)number;
    is_over = 1;
}

struct top {
    const struct cddpi_ctl_job *job;
    struct cddpi_ctl_answer *answer;
    bool on_terminal, has_keys, is_utf8;
    struct termios before; /* of stdin, if has_keys */
};

static void write_text(const char *text, size_t bytes)
{
    (void)!fwrite(text, 1, bytes, stdout);
}

/* Use the terminal's other screen, without a cursor, and get keys at once. */
static void open_screen(struct top *top)
{
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = end};
    struct termios raw;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)sigaction(numbers[i], &action, NULL);
    }
    if (!top->on_terminal) {
        return;
    }
    (void)signal(SIGTSTP, SIG_IGN); /* the shell would get this screen */
    top->has_keys = tcgetattr(STDIN_FILENO, &top->before) == 0;
    if (top->has_keys) {
        raw = top->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout);
}

static void close_screen(struct top *top)
{
    if (!top->on_terminal) {
        return;
    }
    fputs("\033[?25h\033[?1049l", stdout);
    (void)fflush(stdout);
    if (top->has_keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
    }
}

/* Wait for the next time to draw. Returns false if the user has seen enough. */
static bool wait_for_keys(const struct top *top, int64_t until_ns)
{
    struct pollfd keys = {top->has_keys ? STDIN_FILENO : -1, POLLIN, 0};
    int left_ms;

    while (!is_over && (left_ms = cddpi_left_ms(until_ns)) > 0) {
        char key = 0;

        if (poll(&keys, 1, left_ms) > 0) {
            ssize_t got = read(STDIN_FILENO, &key, 1);

            if (key == 'q' || key == 'Q') {
                return false;
            }
            if (got <= 0) {
                keys.fd = -1; /* no more keys */
            }
        }
    }
    return !is_over;
}

static int count_rows(void)
{
    struct winsize size = {0};

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row : 24;
}

/* Put the lines of @p text on the screen: as many as fit, each no wider than it. */
static void draw_lines(const char *text, int columns)
{
    int rows = count_rows();

    fputs("\033[H", stdout);
    for (int row = 0; row < rows - 1 && *text != '\0'; row++) {
        size_t bytes = strcspn(text, "\n");

        write_text(text, cddpi_terminal_fit(text, bytes, columns));
        fputs("\033[K\n", stdout);
        text += bytes + (text[bytes] == '\n');
    }
    fputs("\033[J", stdout);
}

static void show(const struct top *top)
{
    int columns = cddpi_terminal_columns(STDOUT_FILENO);
    struct cddpi_ctl_run run;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL) {
        return;
    }
    cddpi_ctl_run_read(top->job->remote == NULL ? top->job->name : NULL, &run);
    if (top->on_terminal) {
        cddpi_say(to, "%s  (q: leave)\n", top->job->name);
        cddpi_ctl_print(top->answer, &run,
                        columns > 2 * TITLE_COLUMNS ? columns - TITLE_COLUMNS - 1 : 0, top->is_utf8,
                        to);
    } else {
        cddpi_ctl_print_line(top->answer, &run, to);
    }
    cddpi_ctl_run_fini(&run);
    if (fclose(to) == 0) {
        if (top->on_terminal) {
            draw_lines(text, columns);
        } else {
            write_text(text, bytes);
        }
    }
    free(text);
    (void)fflush(stdout);
}

/* Whether the reader of our output is gone. */
static bool is_unread(void)
{
    return ferror(stdout) != 0;
}

cddp_status cddpi_ctl_top(const struct cddpi_ctl_job *job, uint32_t timeout_ms)
{
    static const struct cddpi_ctl_request request = {.command = CDDPI_CTL_STATUS, .number = -1};
    struct top top = {.job = job, .answer = cddpi_zalloc(sizeof *top.answer)};
    bool has_begun = false;
    cddp_status status;

    CDDPI_TRY_MEMORY(top.answer != NULL, "no memory for an answer");
    top.on_terminal = cddpi_terminal_redraws(STDOUT_FILENO);
    (void)setlocale(LC_CTYPE, "");
    top.is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    status = cddpi_ctl_ask(job, &request, timeout_ms, top.answer);
    if (status == CDDP_OK) {
        int64_t next_ns = cddpi_now_ns();

        open_screen(&top);
        do {
            has_begun = true;
            show(&top);
            next_ns += EVERY_MS * INT64_C(1000000);
            if (is_unread() || !wait_for_keys(&top, next_ns)) {
                break;
            }
            status = cddpi_ctl_ask(job, &request, timeout_ms, top.answer);
        } while (status == CDDP_OK);
        close_screen(&top);
    }
    cddpi_free(top.answer);
    if (has_begun && (status == CDDP_ERR_NOT_FOUND || status == CDDP_ERR_CLOSED)) {
        cddpi_say(stdout, "the job of %s has ended\n", job->name);
        return CDDP_OK;
    }
    return status;
}
