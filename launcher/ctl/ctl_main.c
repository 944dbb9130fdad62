/* ctl_main.c - the program cddp-ctl: shows and controls a job that runs. */
#include "launcher/ctl/ctl_ask.h"
#include "launcher/ctl/ctl_print.h"
#include "launcher/ctl/ctl_remote.h"
#include "launcher/ctl/ctl_run.h"
#include "launcher/ctl/ctl_top.h"
#include "launcher/nodes/node_event.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "base/number.h"
#include "base/options.h"
#include "base/streams.h"

#include <string.h>

enum { FAILED = 1, USAGE = 2, NO_JOB = 3, COLUMN = 22, STATUS_MS = 10000, TIMEOUT_MS = 300000 };

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(JSON, "json", 0, NULL, "status: print a JSON object")                                        \
    X(TOKEN_FILE, "token-file", 0, "FILE",                                                         \
      "the job's secret, if RUN is tcp://HOST:PORT. Default: CDDP_TOKEN")                          \
    X(TIMEOUT, "timeout", 0, "SECONDS",                                                            \
      "how long to wait for what was asked for (default 300; status and top: 10)")                 \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-ctl", OPTION_MAP);

/* What the command line asks for. */
struct ctl_order {
    struct cddpi_ctl_job job;
    const char *token_file;
    bool is_top, is_json;
    uint32_t timeout_ms;
    struct cddpi_ctl_request request;
};

static int fail(int exit_status)
{
    fprintf(stderr, "cddp-ctl: %s\n", cddp_last_error());
    return exit_status;
}

static int fail_as(cddp_status status)
{
    return fail(status == CDDP_ERR_NOT_FOUND ? NO_JOB : FAILED);
}

/* The rank "3", the node "node:1", or a host. */
static cddp_status read_member(const char *word, struct cddpi_ctl_request *request)
{
    int64_t number = -1;

    if (cddpi_parse_integer(word, 0, 65535, &number)) {
        request->command = CDDPI_CTL_REMOVE_RANK;
    } else {
        request->command = CDDPI_CTL_REMOVE_NODE;
        if (strncmp(word, "node:", 5) == 0) {
            if (!cddpi_parse_integer(word + 5, 0, CDDPI_NODE_NUMBERS - 1, &number)) {
                return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: not the number of a node", word);
            }
        } else if (strlen(word) >= sizeof request->host || word[0] == '\0') {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: not the name of a host", word);
        } else {
            memcpy(request->host, word, strlen(word) + 1);
        }
    }
    request->number = (int)number;
    return CDDP_OK;
}

static cddp_status read_number(const char *word, struct cddpi_ctl_request *request)
{
    int64_t number;

    if (!cddpi_parse_integer(word, 1, 4096, &number)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "add %s: not a number of ranks", word);
    }
    request->command = CDDPI_CTL_ADD;
    request->number = (int)number;
    return CDDP_OK;
}

static cddp_status read_command(char **words, int count, struct ctl_order *order)
{
    static const struct {
        const char *name;
        int words;
        enum cddpi_ctl_command command;
    } commands[] = {{"status", 0, CDDPI_CTL_STATUS},
                    {"top", 0, CDDPI_CTL_STATUS},
                    {"checkpoint", 0, CDDPI_CTL_CHECKPOINT},
                    {"stop", 0, CDDPI_CTL_STOP},
                    {"add", 1, CDDPI_CTL_ADD},
                    {"remove", 1, CDDPI_CTL_REMOVE_RANK}};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(words[0], commands[i].name) != 0) {
            continue;
        }
        if (count - 1 != commands[i].words) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s takes %s: see cddp-ctl --help", words[0],
                              commands[i].words == 0 ? "no more words" : "one more word");
        }
        order->request.command = commands[i].command;
        order->is_top = strcmp(words[0], "top") == 0;
        return commands[i].words == 0                 ? CDDP_OK
               : commands[i].command == CDDPI_CTL_ADD ? read_number(words[1], &order->request)
                                                      : read_member(words[1], &order->request);
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s: not one of status, top, checkpoint, stop, add, remove", words[0]);
}

static cddp_status read_order(const char *const *values, char **words, int count,
                              struct ctl_order *order)
{
    double seconds = TIMEOUT_MS / 1000.0;

    if (count < 2) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "give a run folder and a command (see --help)");
    }
    order->job.name = words[0];
    order->token_file = values[OPTION_TOKEN_FILE];
    order->is_json = values[OPTION_JSON] != NULL;
    order->request.number = -1;
    CDDPI_TRY(read_command(words + 1, count - 1, order));
    if (values[OPTION_TIMEOUT] != NULL && (!cddpi_parse_real(values[OPTION_TIMEOUT], &seconds) ||
                                           seconds < 0.001 || seconds > 2000000)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--timeout %s: not a number of seconds from 0.001 to "
                          "2000000",
                          values[OPTION_TIMEOUT]);
    }
    if (order->is_json && (order->is_top || order->request.command != CDDPI_CTL_STATUS)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--json is for status");
    }
    order->timeout_ms = (uint32_t)(seconds * 1000);
    if (order->request.command == CDDPI_CTL_STATUS && values[OPTION_TIMEOUT] == NULL) {
        order->timeout_ms = STATUS_MS;
    }
    return CDDP_OK;
}

/* The last word on the job's end. */
static int say_end(const struct ctl_order *order, const struct cddpi_ctl_answer *answer,
                   const struct cddpi_ctl_run *run)
{
    bool is_well = answer->exit_status == 0 || answer->exit_status == 3;

    cddpi_say(stdout, "the job has ended with status %d%s\n", answer->exit_status,
              answer->exit_status == 0   ? ": it was complete"
              : answer->exit_status == 3 ? ": it has saved, and can go on"
                                         : "");
    if (run->checkpoint[0] != '\0') {
        cddpi_say(stdout, "%s\n", run->checkpoint);
    }
    /* after `checkpoint` the last checkpoint is newer than the request */
    return is_well && (order->request.command == CDDPI_CTL_STOP ||
                       order->request.command == CDDPI_CTL_CHECKPOINT)
               ? 0
               : FAILED;
}

static int say_answer(const struct ctl_order *order, const struct cddpi_ctl_answer *answer)
{
    struct cddpi_ctl_run run;
    int exit_status = 0;

    cddpi_ctl_run_read(order->job.remote == NULL ? order->job.name : NULL, &run);
    if (answer->is_over) {
        exit_status = say_end(order, answer, &run);
    } else if (!answer->is_done) {
        cddpi_say(stderr, "cddp-ctl: %s\n", answer->text);
        exit_status = FAILED;
    } else if (order->request.command == CDDPI_CTL_CHECKPOINT) {
        cddpi_say(stdout, "%s\n", order->job.remote == NULL ? run.checkpoint : answer->text);
    } else if (order->request.command != CDDPI_CTL_STATUS) {
        cddpi_say(stdout, "%s\n", answer->text);
    } else if (order->is_json) {
        exit_status = cddpi_ctl_print_json(answer, &run, stdout) ? 0 : FAILED;
    } else {
        cddpi_ctl_print(answer, &run, 0, false, stdout);
    }
    cddpi_ctl_run_fini(&run);
    return exit_status;
}

static int carry_out(const struct ctl_order *order)
{
    struct cddpi_ctl_answer *answer;
    cddp_status status;
    int exit_status;

    if (order->is_top) {
        status = cddpi_ctl_top(&order->job, order->timeout_ms);
        return status == CDDP_OK ? 0 : fail_as(status);
    }
    answer = cddpi_zalloc(sizeof *answer);
    status = answer != NULL ? cddpi_ctl_ask(&order->job, &order->request, order->timeout_ms, answer)
                            : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for an answer");
    exit_status = status == CDDP_OK ? say_answer(order, answer) : fail_as(status);
    cddpi_free(answer);
    return exit_status;
}

/* A job is reached through its folder, or through its store. */
static int connect_and_carry_out(struct ctl_order *order)
{
    int exit_status;

    if (strncmp(order->job.name, "tcp://", 6) == 0) {
        cddp_status status = cddpi_ctl_remote_open(
            order->job.name, order->token_file,
            order->timeout_ms < STATUS_MS ? order->timeout_ms : STATUS_MS, &order->job.remote);

        if (status != CDDP_OK) {
            return status == CDDP_ERR_ARGUMENT || status == CDDP_ERR_CONFIG ? fail(USAGE)
                   : status == CDDP_ERR_AUTH || status == CDDP_ERR_MISMATCH ? fail(FAILED)
                                                                            : fail(NO_JOB);
        }
    } else if (order->token_file != NULL) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "--token-file is for tcp://HOST:PORT");
        return fail(USAGE);
    }
    exit_status = carry_out(order);
    cddpi_ctl_remote_close(order->job.remote);
    return exit_status;
}

static void print_help(void)
{
    fputs(
        "usage: cddp-ctl [OPTIONS] RUN status        what the job does: members, step, loss, "
        "checkpoint\n"
        "       cddp-ctl [OPTIONS] RUN top           the same as a view that is drawn each second\n"
        "       cddp-ctl [OPTIONS] RUN checkpoint    write a checkpoint now, and go on\n"
        "       cddp-ctl [OPTIONS] RUN stop          write a checkpoint, and end the job\n"
        "       cddp-ctl [OPTIONS] RUN add N         go on with N more ranks\n"
        "       cddp-ctl [OPTIONS] RUN remove WHAT   go on without rank R, node:I or a host\n\n"
        "Controls a job that runs: RUN is its run folder, on the machine of rank 0, for the job's\n"
        "user and root; or from another machine tcp://HOST:PORT, as in its --rdzv, with its "
        "token.\n"
        "The number of ranks can change in jobs that were started with cddp-run --elastic MIN:MAX\n"
        "or --nnodes MIN:MAX; ranks are then numbered anew.\n\n",
        stdout);
    cddpi_options_print(&table, COLUMN, stdout);
    fputs("\nThe exit status is 0 if it is done, 1 if it is not, 2 if the command line is wrong, 3 "
          "if no\njob runs there. More: man cddp-ctl.\n",
          stdout);
}

int main(int argc, char **argv)
{
    const char *values[OPTION_COUNT] = {NULL};
    struct ctl_order order = {.job = {.name = NULL}};
    int count = 0;
    int exit_status = 0;

    cddpi_streams_open();
    if (cddpi_stack_ensure() != CDDP_OK) {
        return fail(FAILED);
    }
    if (cddpi_options_read(&table, argc, argv, values, &count) != CDDP_OK) {
        return fail(USAGE);
    }
    if (values[OPTION_HELP] != NULL) {
        print_help();
    } else if (values[OPTION_VERSION] != NULL) {
        printf("cddp-ctl %s\n", cddp_version());
    } else if (read_order(values, argv + 1, count, &order) != CDDP_OK) {
        exit_status = fail(USAGE);
    } else {
        exit_status = connect_and_carry_out(&order);
    }
    return cddpi_streams_end("cddp-ctl", exit_status);
}
