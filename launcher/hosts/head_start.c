/* head_start.c - starts a cddp-run on a host: its command line, its variables, its process. */
#include "launcher/hosts/head.h"

#include "launcher/hosts/parcel.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/error.h"
#include "base/file.h"
#include "base/streams.h"
#include "base/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A growing list of owned words. */
struct words {
    char **words;
    size_t count;
    size_t capacity;
    bool is_cut; /* a word is missing, for lack of memory */
};

void cddpi_head_free_words(char **words)
{
    for (char **word = words; word != NULL && *word != NULL; word++) {
        free(*word);
    }
    cddpi_free(words);
}

/* Append @p word, which malloc() allocated, and take ownership. */
static void add_word(struct words *words, char *word)
{
    if (words->count + 2 > words->capacity) {
        size_t capacity = 2 * words->capacity + 32;
        char **grown = cddpi_realloc(words->words, capacity * sizeof *grown);

        if (grown == NULL) {
            words->is_cut = true;
            free(word);
            return;
        }
        words->words = grown;
        words->capacity = capacity;
    }
    words->is_cut = words->is_cut || word == NULL;
    words->words[words->count++] = word;
    words->words[words->count] = NULL;
}

static void __attribute__((format(printf, 2, 3)))
add_text(struct words *words, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) {
        text = NULL;
    }
    va_end(arguments);
    add_word(words, text);
}

/* Append @p word, quoted for a shell. */
static void add_quoted(struct words *words, const char *word)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to != NULL) {
        cddpi_shell_quote(to, word);
        if (fclose(to) != 0) {
            free(text);
            text = NULL;
        }
    }
    add_word(words, text);
}

/* Append "--name=value", unless @p value is NULL. */
static void add_option(struct words *words, const char *name, const char *value)
{
    if (value != NULL) {
        add_text(words, "--%s=%s", name, value);
    }
}

static void add_nproc(struct words *words, const struct cddpi_launch_options *options,
                      const struct cddpi_host *host)
{
    if (host->slots > 0) {
        add_text(words, "--nproc=%d", host->slots);
    } else if (options->per_gpu) {
        add_text(words, "--nproc=gpu");
    } else if (options->nproc > 0) {
        add_text(words, "--nproc=%d", options->nproc);
    }
}

/* Append cddp-run's command line for host @p i. */
static void add_own(const struct cddpi_head *head, int i, const char *url, struct words *words)
{
    static const char *const binds[] = {CDDPI_BIND_MAP(CDDPI_CHOICE_WORD)};
    const struct cddpi_launch_options *options = head->options;
    char self[PATH_MAX] = "cddp-run";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int64_t timeout_ms = atoll(options->timeout_ms);

    if (length > 0) {
        self[length] = '\0';
    }
    add_text(words, "%s", self);
    add_text(words, "--agent");
    if (head->state.is_elastic) {
        add_text(words, "--nnodes=%d:%d", head->state.least, head->state.most);
    } else {
        add_text(words, "--nnodes=%d", head->hosts.count);
    }
    add_text(words, "--node-rank=%d", head->state.hosts != NULL ? head->state.hosts[i].node : i);
    add_text(words, "--rdzv=%s", url);
    add_nproc(words, options, &head->hosts.hosts[i]);
    add_option(words, "run-dir", options->run_dir);
    add_option(words, "log-dir", options->log_dir);
    add_option(words, "network-interface", options->network_interface);
    if (options->max_restarts >= 0) { /* else without limit */
        add_text(words, "--max-restarts=%d", options->max_restarts);
    }
    add_option(words, "replace-stragglers", options->replace_stragglers);
    add_text(words, "--grace=%g", (double)options->grace_ms / 1000);
    add_text(words, "--bind=%s", binds[options->bind]);
    if (timeout_ms > 0) {
        add_text(words, "--timeout=%.3f", (double)timeout_ms / 1000);
    }
    if (options->tag != CDDPI_TAG_AUTO) {
        add_text(words, options->tag == CDDPI_TAG_ALL ? "--tag-output" : "--no-tag");
    }
    add_text(words, "%s", options->config != NULL ? options->config : "--");
    for (int k = 0; k < options->argument_count; k++) {
        add_text(words, "%s", options->arguments[k]);
    }
}

/* Append the words of the --ssh command. */
static void add_ssh(struct words *words, const char *text)
{
    for (;;) {
        size_t bytes;

        text += strspn(text, " \t");
        bytes = strcspn(text, " \t");
        if (bytes == 0) {
            return;
        }
        add_text(words, "%.*s", (int)bytes, text);
        text += bytes;
    }
}

cddp_status cddpi_head_words(const struct cddpi_head *head, int i, const char *url, char ***out)
{
    const struct cddpi_host *host = &head->hosts.hosts[i];
    struct words own = {NULL, 0, 0, false};
    struct words words = {NULL, 0, 0, false};

    add_own(head, i, url, &own);
    /* this machine, as the same user, needs no ssh */
    if (strchr(host->name, '@') == NULL && cddpi_address_is_local(host->name, false)) {
        *out = own.words;
        return own.is_cut ? cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a command line")
                          : CDDP_OK;
    }
    add_ssh(&words, head->options->ssh);
    if (words.count == 0) {
        cddpi_head_free_words(own.words);
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--ssh: the command is empty");
    }
    add_text(&words, "%s", host->name);
    for (size_t k = 0; k < own.count && !own.is_cut; k++) {
        add_quoted(&words, own.words[k]);
    }
    words.is_cut = words.is_cut || own.is_cut;
    cddpi_head_free_words(own.words);
    *out = words.words;
    return words.is_cut ? cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a command line") : CDDP_OK;
}

/* Whether "NAME=value" is sent to other machines without --export: all variables named CDDP_...,
 * except those of one rank or one machine. */
static bool is_for_all(const char *variable)
{
    static const char *const own[] = {
        "CDDP_RANK=",      "CDDP_WORLD_SIZE=",   "CDDP_LOCAL_RANK=", "CDDP_LOCAL_WORLD_SIZE=",
        "CDDP_STORE=",     "CDDP_TOKEN=",        "CDDP_JOB=",        "CDDP_GENERATION=",
        "CDDP_REPORT_FD=", "CDDP_LAUNCHER_PID=", "CDDP_PROGRESS=",   "CDDP_GENERATION_REASON="};

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strncmp(variable, own[i], strlen(own[i])) == 0) {
            return false;
        }
    }
    return strncmp(variable, "CDDP_", 5) == 0 && strchr(variable, '=') != NULL;
}

/* Append the variables that --export names. */
static cddp_status add_exports(struct words *variables, const char *text)
{
    while (text != NULL && *text != '\0') {
        size_t bytes = strcspn(text, ",");
        char *word = strndup(text, bytes);
        const char *value = word != NULL ? getenv(word) : NULL;

        if (word == NULL || word[0] == '\0' || word[0] == '=') {
            free(word);
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--export %s: not NAME or NAME=VALUE", text);
        }
        if (strchr(word, '=') != NULL) {
            add_text(variables, "%s", word);
        } else if (value != NULL) {
            add_text(variables, "%s=%s", word, value);
        } /* a variable that is not set here is not sent */
        free(word);
        text += bytes + (text[bytes] == ',' ? 1 : 0);
    }
    return CDDP_OK;
}

/* Whether rank 0 may write colours: it writes to this program's terminal. */
static void add_terminal(struct words *variables)
{
    static const char *const names[] = {"TERM", "NO_COLOR"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (getenv(names[i]) != NULL) {
            add_text(variables, "%s=%s", names[i], getenv(names[i]));
        }
    }
}

static cddp_status make_parcel(struct cddpi_head *head, int i)
{
    struct words variables = {NULL, 0, 0, false};
    char folder[PATH_MAX];
    struct cddpi_parcel parcel = {
        .token = head->rendezvous.token, .folder = folder, .host = head->hosts.hosts[i].name};
    const char *progress = getenv("CDDP_PROGRESS");
    cddp_status status;

    if (getcwd(folder, sizeof folder) == NULL) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "the working folder");
    }
    for (char **variable = environ; *variable != NULL; variable++) {
        if (is_for_all(*variable)) {
            add_text(&variables, "%s", *variable);
        }
    }
    if (progress != NULL) {
        add_text(&variables, "CDDP_PROGRESS=%s", progress);
    } else if ((i == 0 || head->state.is_elastic) && head->options->tag != CDDPI_TAG_ALL &&
               cddpi_terminal_redraws(STDERR_FILENO)) {
        add_text(&variables, "CDDP_PROGRESS=tty");
        add_terminal(&variables);
    }
    status = add_exports(&variables, head->options->exports);
    if (status == CDDP_OK && variables.is_cut) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for variables");
    }
    parcel.variables = variables.words;
    parcel.variable_count = (int)variables.count;
    if (status == CDDP_OK &&
        cddpi_message_encode(&cddpi_parcel_form, &parcel, &head->agents[i].parcel) != CDDP_OK) {
        status = cddpi_fail_prefix(CDDP_ERR_ARGUMENT, "the variables for other machines");
    }
    cddpi_head_free_words(variables.words);
    return status;
}

/* Runs in the child, so only async-signal-safe calls: the parent has threads. */
static void __attribute__((noreturn))
become_agent(const struct cddpi_agent *agent, const int fds[3], pid_t parent,
             const sigset_t *unblocked)
{
    static const char text[] = "cddp-run: cannot be executed: ";
    const char *why;

    setpgid(0, 0);
    if (!cddpi_child_begin(parent, 0)) {
        _exit(127);
    }
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGTTOU, SIG_DFL);
    sigprocmask(SIG_SETMASK, unblocked, NULL);
    if (dup2(fds[0], STDIN_FILENO) >= 0 && dup2(fds[1], STDOUT_FILENO) >= 0 &&
        dup2(fds[2], STDERR_FILENO) >= 0) {
        execvp(agent->argv[0], agent->argv);
    }
    why = strerrordesc_np(errno);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)!write(STDERR_FILENO, agent->argv[0], strlen(agent->argv[0]));
    if (why != NULL) {
        (void)!write(STDERR_FILENO, ": ", 2);
        (void)!write(STDERR_FILENO, why, strlen(why));
    }
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(127);
}

static void close_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++) {
        for (int end = 0; end < 2; end++) {
            cddpi_fd_close(&pipes[i][end]);
        }
    }
}

/* Keep the write end of the agent's input and the read ends of its outputs. */
static void keep_ends(struct cddpi_agent *agent, int pipes[3][2])
{
    agent->input = pipes[0][1];
    agent->out.fd = pipes[1][0];
    agent->err.fd = pipes[2][0];
    fcntl(agent->input, F_SETFL, O_NONBLOCK);
    fcntl(agent->out.fd, F_SETFL, O_NONBLOCK);
    fcntl(agent->err.fd, F_SETFL, O_NONBLOCK);
    pipes[0][1] = pipes[1][0] = pipes[2][0] = -1;
}

cddp_status cddpi_head_start(struct cddpi_head *head, int i)
{
    struct cddpi_agent *agent = &head->agents[i];
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t parent = getpid();
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_head_words(head, i, head->url, &agent->argv));
    CDDPI_TRY(make_parcel(head, i));
    for (int k = 0; k < 3; k++) {
        if (pipe2(pipes[k], O_CLOEXEC) != 0) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "making pipes for %s",
                                      head->hosts.hosts[i].name);
            close_pipes(pipes);
            return status;
        }
    }
    agent->pid = fork();
    if (agent->pid == 0) {
        const int fds[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};

        become_agent(agent, fds, parent, &head->monitor->inherited);
    }
    if (agent->pid < 0) {
        agent->pid = 0;
        status = cddpi_child_fail(errno, agent->argv[0]);
    } else {
        setpgid(agent->pid, agent->pid);
        keep_ends(agent, pipes);
    }
    close_pipes(pipes);
    return status;
}
