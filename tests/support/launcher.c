/* launcher.c - starts the real cddp-run, with a time limit, and reads its output. */
#include "support/launcher.h"

#include <sys/prctl.h>

enum { LAUNCHER_ARGUMENTS = 32 };

const char *launcher_path(const char *below_build)
{
    static char path[4096];
    const char *build = getenv("CDDP_TEST_BUILD");

    snprintf(path, sizeof path, "%s/%s", build != NULL ? build : "build", below_build);
    return path;
}

char *launcher_read(const char *dir, const char *name)
{
    char path[4200];
    char *text;
    size_t used = 0;
    size_t room = 1 << 16;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    text = malloc(room + 1);
    for (size_t got; (got = fread(text + used, 1, room - used, file)) > 0;) {
        used += got;
        if (used == room) {
            room *= 2;
            text = realloc(text, room + 1);
        }
    }
    text[used] = '\0';
    fclose(file);
    return text;
}

void launcher_write(const char *dir, const char *name, const char *text)
{
    char path[4200];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, 0755);
}

void launcher_settle(int seconds)
{
    if (seconds > 0) {
        support_setenv_number("CDDP_SETTLE_MS", seconds * 1000);
    } else {
        unsetenv("CDDP_SETTLE_MS");
    }
}

void launcher_start_program(struct launched *job, const char *program, const char *const *arguments)
{
    const char *argv[LAUNCHER_ARGUMENTS + 2] = {program};

    for (int i = 0; i < LAUNCHER_ARGUMENTS && arguments[i] != NULL; i++) {
        argv[i + 1] = arguments[i];
    }
    if (job->dir == NULL) {
        job->dir = support_mkdtemp();
    }
    fflush(NULL);
    job->has_ended = false;
    job->pid = fork();
    assert_true(job->pid >= 0);
    if (job->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG,
                    SIGKILL); /* in case the test fails: it leaves no job behind */
        if (chdir(job->dir) != 0 || freopen("out", "w", stdout) == NULL ||
            freopen("err", "w", stderr) == NULL || freopen("/dev/null", "r", stdin) == NULL) {
            _exit(99);
        }
        signal(SIGHUP, SIG_DFL); /* nohup and shells' background jobs ignore these */
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        unsetenv("OMP_NUM_THREADS");
        unsetenv("OPENBLAS_NUM_THREADS");
        setenv("LC_ALL", "C", 1);
        execvp(program, (char *const *)argv);
        _exit(98);
    }
}

void launcher_start(struct launched *job, const char *const *arguments)
{
    launcher_start_program(job, launcher_path("launcher/cddp-run"), arguments);
}

void launcher_wait(struct launched *job)
{
    long left_ms = SUPPORT_LIMIT_S * 1000L;
    int status;

    if (job->has_ended) {
        return;
    }
    while (waitpid(job->pid, &status, WNOHANG) == 0) {
        support_sleep_ms(2);
        left_ms -= 2;
        if (left_ms <= 0) {
            kill(job->pid, SIGKILL);
            waitpid(job->pid, &status, 0);
            fail_msg("cddp-run did not end within %d s; stderr: %s", SUPPORT_LIMIT_S,
                     launcher_read(job->dir, "err"));
        }
    }
    job->has_ended = true;
    job->exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    job->out = launcher_read(job->dir, "out");
    job->err = launcher_read(job->dir, "err");
}

void launcher_end(struct launched *job)
{
    free(job->out);
    free(job->err);
    if (job->dir != NULL) {
        support_rmdir(job->dir);
    }
    *job = (struct launched){0};
}

void launcher_need_text(const char *text, const char *part, const char *where)
{
    if (text == NULL || strstr(text, part) == NULL) {
        fail_msg("there is no \"%s\" in %s:\n%s", part, where, text != NULL ? text : "(nothing)");
    }
}

void launcher_need_absence(const char *text, const char *part, const char *where)
{
    if (text != NULL && strstr(text, part) != NULL) {
        fail_msg("there is \"%s\" in %s:\n%s", part, where, text);
    }
}

int launcher_failures(const char *text, int *out_rank)
{
    int count = 0;
    int named = -1;

    for (const char *at = text; at != NULL && (at = strstr(at, "rank ")) != NULL; at++) {
        int rank;
        char word[16];

        if (sscanf(at, "rank %d (pid %*d) %15s", &rank, word) == 2 &&
            (strcmp(word, "exited") == 0 || strcmp(word, "was") == 0)) {
            named = named == -1 || named == rank ? rank : -2;
            count++;
        }
    }
    if (out_rank != NULL) {
        *out_rank = named;
    }
    return count;
}

bool launcher_names_node(const char *text, int node)
{
    char name[32];
    char first[64];

    snprintf(name, sizeof name, "cddp-run: node %d (", node);
    snprintf(first, sizeof first, "cddp-run: the first to fail was node %d (", node);
    return strstr(text, name) != NULL || strstr(text, first) != NULL;
}

void launcher_need_rank(const char *text, int rank)
{
    int named;

    (void)launcher_failures(text, &named);
    if (named != rank) {
        fail_msg("not rank %d but %d is told of as failed in:\n%s", rank, named, text);
    }
}

void launcher_need_node(const char *text, int node)
{
    if (!launcher_names_node(text, node)) {
        fail_msg("node %d is not named in:\n%s", node, text);
    }
}

int launcher_count(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = text; at != NULL && (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

long launcher_number(const struct launched *job, const char *name)
{
    for (long waited_ms = 0; waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 2) {
        char *text = launcher_read(job->dir, name);

        if (text != NULL && strchr(text, '\n') != NULL) {
            long number = atol(text);

            free(text);
            return number;
        }
        free(text);
        support_sleep_ms(2);
    }
    kill(job->pid, SIGKILL);
    fail_msg("no %s; stderr: %s", name, launcher_read(job->dir, "err"));
    return -1;
}

void launcher_await_text(const char *dir, const char *name, const char *part)
{
    launcher_await_text_after(dir, name, "", part);
}

void launcher_await_text_after(const char *dir, const char *name, const char *first,
                               const char *part)
{
    for (long waited_ms = 0;; waited_ms += 2) {
        char *text = launcher_read(dir, name);
        const char *from = text != NULL ? strstr(text, first) : NULL;
        int found = from != NULL && strstr(from, part) != NULL;

        if (!found && waited_ms >= SUPPORT_TIMEOUT_MS) {
            fail_msg("no \"%s\" after \"%s\" in %s/%s: %s", part, first, dir, name,
                     text != NULL ? text : "(none)");
        }
        free(text);
        if (found) {
            return;
        }
        support_sleep_ms(2);
    }
}

pid_t launcher_child(pid_t pid)
{
    char name[64];
    char *text;
    long child;

    snprintf(name, sizeof name, "%d/task/%d/children", pid, pid);
    text = launcher_read("/proc", name);
    assert_non_null(text);
    child = strtol(text, NULL, 10);
    free(text);
    assert_true(child > 1);
    return (pid_t)child;
}

int launcher_is_gone(pid_t pid)
{
    char path[64];
    char *text = NULL;

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    for (long waited_ms = 0; waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 2) {
        int is_zombie;

        text = launcher_read(path, "stat");
        if (text == NULL) {
            return 1;
        }
        is_zombie = strstr(text, ") Z ") != NULL || strstr(text, ") X ") != NULL;
        free(text);
        if (is_zombie) {
            return 1;
        }
        support_sleep_ms(2);
    }
    return 0;
}

void launcher_needs_orphans(void)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 0) != 0) {
        print_message("skipped: prctl(PR_SET_CHILD_SUBREAPER): %s\n", strerror(errno));
        skip();
    }
}
