/* command.c - finds the command that the ranks execute, and asks cddp-train about a train.conf. */
#include "launcher/supervise/job.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Timeouts of our calls of cddp-train. The alarm that enforces them also works if we die. */
enum {
    ANSWER_SECONDS = 10,
    VALIDATE_SECONDS = 60,
    DRY_RUN_SECONDS = 600 /* a large model on a slow machine takes a while */
};

/* Returns 0 if @p path can be executed, else an errno. */
static int why_not_executable(const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0) {
        return errno;
    }
    if (!S_ISREG(status.st_mode)) {
        return S_ISDIR(status.st_mode) ? EISDIR : EACCES;
    }
    return access(path, X_OK) == 0 ? 0 : errno;
}

static cddp_status keep_path(const char *path, char **out)
{
    *out = cddpi_strdup(path);
    return *out != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a path");
}

/* Look for @p name in every folder of $PATH, as execvp() does. */
static cddp_status find_in_path(const char *name, char **out)
{
    const char *folder = getenv("PATH");
    bool is_there = false;
    char path[PATH_MAX];

    if (folder == NULL) {
        folder = "/usr/local/bin:/usr/bin:/bin";
    }
    for (;;) {
        size_t length = strcspn(folder, ":");
        int error;

        if (snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder, length > 0 ? "/" : "./",
                     name) < (int)sizeof path) {
            error = why_not_executable(path);
            if (error == 0) {
                return keep_path(path, out);
            }
            is_there = is_there || error == EACCES;
        }
        if (folder[length] == '\0') {
            break;
        }
        folder += length + 1;
    }
    return is_there
               ? cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: found in $PATH, but not executable", name)
               : cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: no such program in $PATH", name);
}

static cddp_status find_program(const char *name, char **out)
{
    int error;

    if (strchr(name, '/') == NULL) {
        return find_in_path(name, out);
    }
    error = why_not_executable(name);
    if (error == 0) {
        return keep_path(name, out);
    }
    return cddpi_fail_errno(error == ENOENT || error == ENOTDIR ? CDDP_ERR_NOT_FOUND
                                                                : CDDP_ERR_UNAVAILABLE,
                            error, "%s", name);
}

/* Find cddp-train: beside our own binary, where the build tree has it, or in $PATH. */
static cddp_status find_train(char **out)
{
    static const char *const places[] = {"cddp-train", "../src/cddp-train"};
    char self[PATH_MAX];
    char path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int error = errno;

    if (length > 0) {
        self[length] = '\0';
        *strrchr(self, '/') = '\0';
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s", self, places[i]);
            if (why_not_executable(path) == 0) {
                return keep_path(path, out);
            }
        }
    }
    if (find_in_path("cddp-train", out) == CDDP_OK) {
        return CDDP_OK;
    }
    if (length < 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "cddp-train is not in $PATH, and /proc/self/exe does not say where "
                          "cddp-run lies: %s (is /proc mounted?)",
                          strerror(error));
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND, "cddp-train is neither beside cddp-run nor in $PATH");
}

/* Whether @p path can be read only once or only by us. We read the train.conf, and so does each
 * rank: a pipe would be empty after the first reader, and ranks do not have our descriptors. */
static bool is_readable_once(const char *path, const struct stat *status)
{
    static const char *const ours[] = {"/dev/fd/", "/dev/stdin", "/proc/self/"};
    bool found = S_ISFIFO(status->st_mode) || S_ISSOCK(status->st_mode);

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        found = found || strncmp(path, ours[i], strlen(ours[i])) == 0;
    }
    return found;
}

/* Whether @p path looks like a program, by its first bytes or its name. */
static bool is_program(const char *path)
{
    size_t length = strlen(path);
    char begin[4] = "";
    FILE *file = fopen(path, "re");
    size_t got = file != NULL ? fread(begin, 1, sizeof begin, file) : 0;

    cddpi_stream_close(file);
    return (got == sizeof begin && memcmp(begin, "\177ELF", 4) == 0) ||
           (got >= 2 && memcmp(begin, "#!", 2) == 0) ||
           (length > 3 && strcmp(path + length - 3, ".py") == 0);
}

static cddp_status check_config(const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0 || access(path, R_OK) != 0) {
        return cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    if (is_readable_once(path, &status)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%s: a pipe, or a descriptor that the ranks do not have: they all read "
                          "the train.conf, so it has to be a file",
                          path);
    }
    if (S_ISREG(status.st_mode) && is_program(path)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%s: a program, not a train.conf; to start it write cddp-run ... -- %s%s",
                          path, access(path, X_OK) == 0 ? "" : "INTERPRETER ", path);
    }
    return CDDP_OK;
}

cddp_status cddpi_command_find(const struct cddpi_launch_options *options,
                               struct cddpi_command *out)
{
    struct cddpi_command command = {NULL, NULL};
    int used = 0;

    if (options->config != NULL) {
        CDDPI_TRY(check_config(options->config));
        CDDPI_TRY(find_train(&command.path));
    } else {
        CDDPI_TRY(find_program(options->arguments[0], &command.path));
    }
    command.argv = cddpi_zalloc_array((size_t)options->argument_count + 3, sizeof *command.argv);
    if (command.argv == NULL) {
        cddpi_command_fini(&command);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d arguments",
                          options->argument_count);
    }
    if (options->config != NULL) {
        command.argv[used++] = command.path;
        command.argv[used++] = (char *)options->config;
    }
    for (int i = 0; i < options->argument_count; i++) {
        command.argv[used++] = options->arguments[i];
    }
    *out = command;
    return CDDP_OK;
}

void cddpi_command_fini(struct cddpi_command *command)
{
    cddpi_free(command->path);
    cddpi_free(command->argv);
    *command = (struct cddpi_command){NULL, NULL};
}

/* Start the command with @p option before its arguments. @p stdout_fd is -1 for our stdout. The
 * command is killed after @p seconds. Returns the pid, or -1 with a message. */
static pid_t start_with_option(const struct cddpi_command *command, const char *option,
                               unsigned seconds, int stdout_fd, bool shows_errors)
{
    pid_t self = getpid();
    size_t count = 0;
    char **argv;
    pid_t pid;

    while (command->argv[count] != NULL) {
        count++;
    }
    argv = cddpi_zalloc_array(count + 2, sizeof *argv);
    if (argv == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu arguments", count);
        return -1;
    }
    argv[0] = command->argv[0];
    argv[1] = (char *)option;
    memcpy(argv + 2, command->argv + 1, (count - 1) * sizeof *argv);
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        const char *why;

        if (!cddpi_child_begin(self, seconds)) {
            _exit(127);
        }
        if (null >= 0) {
            dup2(null, STDIN_FILENO);
        }
        if (stdout_fd >= 0) {
            dup2(stdout_fd, STDOUT_FILENO);
        }
        if (!shows_errors && null >= 0) {
            dup2(null, STDERR_FILENO);
        }
        execv(command->path, argv);
        why = strerrordesc_np(errno);
        (void)!write(STDERR_FILENO, "cddp-run: ", 10);
        (void)!write(STDERR_FILENO, command->path, strlen(command->path));
        (void)!write(STDERR_FILENO, " cannot be executed: ", 21);
        (void)!write(STDERR_FILENO, why != NULL ? why : "?", why != NULL ? strlen(why) : 1);
        (void)!write(STDERR_FILENO, "\n", 1);
        _exit(127);
    }
    if (pid < 0) {
        (void)cddpi_child_fail(errno, command->path);
    }
    cddpi_free(argv);
    return pid;
}

static int wait_for_exit(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return 1;
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Read one line from @p fd, cut to @p bytes. Stops reading at end of file, or after ANSWER_SECONDS
 * without data. */
static void read_answer(int fd, char *out, size_t bytes)
{
    struct pollfd readable = {fd, POLLIN, 0};
    size_t used = 0;

    while (used + 1 < bytes && poll(&readable, 1, ANSWER_SECONDS * 1000) > 0) {
        ssize_t got = read(fd, out + used, bytes - 1 - used);

        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    out[used] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

int cddpi_command_nproc(const struct cddpi_command *command, int cores)
{
    char text[64];
    int64_t nproc;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return cores;
    }
    snprintf(text, sizeof text, "%d", cores);
    setenv("CDDP_AVAILABLE_CORES", text, 1);
    pid = start_with_option(command, "--print-nproc", ANSWER_SECONDS, ends[1], false);
    unsetenv("CDDP_AVAILABLE_CORES");
    close(ends[1]);
    text[0] = '\0';
    if (pid > 0) {
        read_answer(ends[0], text, sizeof text);
    }
    close(ends[0]);
    if (pid > 0) {
        kill(pid, SIGKILL); /* it has answered, or its time is up */
        (void)wait_for_exit(pid);
    }
    return cddpi_parse_integer(text, 1, CDDPI_MAX_RANKS, &nproc) ? (int)nproc : cores;
}

/* Start the command with @p option for @p world_size ranks. Returns -1 with a message. */
static pid_t begin_with_option(const struct cddpi_command *command, const char *option,
                               unsigned seconds, int stdout_fd, int world_size)
{
    char text[16];

    snprintf(text, sizeof text, "%d", world_size);
    setenv("CDDP_WORLD_SIZE", text, 1); /* ranks get their own value of it */
    return start_with_option(command, option, seconds, stdout_fd, true);
}

/* It has ended with @p exit_status. */
static cddp_status end_with_option(const struct cddpi_command *command, const char *option,
                                   unsigned seconds, int exit_status)
{
    if (exit_status != 128 + SIGALRM) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_TIMEOUT,
                      "%s %s %s did not end within %u s and was killed: is there a file that "
                      "cannot be read to its end?",
                      command->path, option, command->argv[1], seconds);
}

/* Wait for @p pid, which begin_with_option() has returned. Returns its exit status, or 1 after
 * printing why there is none. */
static int wait_with_option(const struct cddpi_command *command, const char *option,
                            unsigned seconds, pid_t pid)
{
    int exit_status = pid > 0 ? wait_for_exit(pid) : 1;

    if (pid < 0 || end_with_option(command, option, seconds, exit_status) != CDDP_OK) {
        cddpi_say(stderr, "cddp-run: %s\n", cddp_last_error());
        return 1;
    }
    return exit_status;
}

pid_t cddpi_command_begin_validate(const struct cddpi_command *command, int world_size)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = begin_with_option(command, "--validate", VALIDATE_SECONDS, null, world_size);

    cddpi_fd_close(&null);
    return pid;
}

cddp_status cddpi_command_end_validate(const struct cddpi_command *command, int exit_status)
{
    return end_with_option(command, "--validate", VALIDATE_SECONDS, exit_status);
}

int cddpi_command_validate(const struct cddpi_command *command, int world_size)
{
    return wait_with_option(command, "--validate", VALIDATE_SECONDS,
                            cddpi_command_begin_validate(command, world_size));
}

int cddpi_command_dry_run(const struct cddpi_command *command, int world_size)
{
    fflush(NULL);
    return wait_with_option(
        command, "--dry-run", DRY_RUN_SECONDS,
        begin_with_option(command, "--dry-run", DRY_RUN_SECONDS, -1, world_size));
}

int cddpi_command_keys(const struct cddpi_launch_options *options)
{
    char **argv = cddpi_zalloc_array((size_t)options->argument_count + 5, sizeof *argv);
    char *path = NULL;
    int used = 0;

    if (argv == NULL || find_train(&path) != CDDP_OK) {
        fprintf(stderr, "cddp-run: %s\n", argv == NULL ? "no memory" : cddp_last_error());
        cddpi_free(argv);
        return 1;
    }
    argv[used++] = path;
    argv[used++] = (char *)"--keys";
    argv[used++] = (char *)"--";
    if (options->keys[0] != '\0') {
        argv[used++] = (char *)options->keys;
    }
    for (int i = 0; i < options->argument_count; i++) {
        argv[used++] = options->arguments[i];
    }
    execv(path, argv);
    cddpi_say(stderr, "cddp-run: %s cannot be executed: %s\n", path, strerror(errno));
    cddpi_free(argv);
    cddpi_free(path);
    return 1;
}
