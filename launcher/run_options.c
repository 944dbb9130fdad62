/* run_options.c - owns cddp-run's option table, from which options are parsed, helped with and
 * suggested. */
#include "launcher/run_options.h"

#include "launcher/hosts/host_list.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "base/options.h"
#include "group/launch/launch_node.h"

#include <string.h>

enum { HELP_COLUMN = 26 };

/* id, name, letter (0: no letter), argument (NULL: no argument), help text */
#define OPTION_MAP(X)                                                                              \
    X(NPROC, "nproc", 'n', "N|auto|gpu",                                                           \
      "ranks to start. auto (the default): one per physical core that this process may use, "      \
      "and with a train.conf no more than its batches can feed. gpu: one per CUDA device "         \
      "that CUDA_VISIBLE_DEVICES allows; ranks then compute there (CDDP_DEVICE=cuda)")             \
    X(RUN_DIR, "run-dir", 0, "DIR", "folder of this run's files; ranks get it as CDDP_RUN_DIR")    \
    X(LOG_DIR, "log-dir", 0, "DIR",                                                                \
      "also append each rank's output to DIR/rank-R.log. Default: RUN_DIR/logs with a "            \
      "train.conf and --run-dir, else no such files")                                              \
    X(MAX_RESTARTS, "max-restarts", 0, "K",                                                        \
      "after a failure, restart all ranks, at most K times (default 0)")                           \
    X(GRACE, "grace", 0, "SECONDS",                                                                \
      "how long the other ranks may take to end after a rank has failed, before they are "         \
      "killed (default 10). If you stop the job, three times as long")                             \
    X(BIND, "bind", 0, "auto|core|none",                                                           \
      "give each rank cores of its own; auto (the default) does so unless ranks outnumber "        \
      "cores")                                                                                     \
    X(TIMEOUT, "timeout", 0, "SECONDS",                                                            \
      "deadline for joining and for each collective; ranks get it as CDDP_TIMEOUT_MS")             \
    X(NNODES, "nnodes", 0, "K",                                                                    \
      "number of machines. Start cddp-run on each, with this option and --rdzv. Default: "         \
      "what Slurm, Kubernetes, Open MPI, Flux ... say if they started cddp-run, else 1")           \
    X(NODE_RANK, "node-rank", 0, "I",                                                              \
      "the number of this machine, from 0; ranks are numbered in this order. Default: "            \
      "machines are numbered as they arrive, after the one that serves the store")                 \
    X(RDZV, "rdzv", 0, "URL",                                                                      \
      "where the machines meet: tcp://HOST:PORT, an address of machine 0, or file:///FOLDER "      \
      "on a file system that all share")                                                           \
    X(TOKEN_FILE, "token-file", 0, "FILE",                                                         \
      "a file with the job's secret, which only you may read; the same secret on all "             \
      "machines. Default: CDDP_TOKEN")                                                             \
    X(HOSTS, "hosts", 'H', "A:N,B:N...",                                                           \
      "start cddp-run on these machines through ssh, with N ranks on each (without :N, as "        \
      "many as --nproc says)")                                                                     \
    X(HOSTFILE, "hostfile", 0, "FILE",                                                             \
      "the same from a file with lines of \"host slots=N\" or \"host:N\"")                         \
    X(SSH, "ssh", 0, "COMMAND",                                                                    \
      "the command that starts a program on a host; it gets the host and the program's "           \
      "words (default: ssh -o BatchMode=yes)")                                                     \
    X(EXPORT, "export", 0, "NAME,NAME=VALUE...",                                                   \
      "variables that ranks on other machines get, besides yours that begin with CDDP_")           \
    X(NETWORK_INTERFACE, "network-interface", 0, "NAMES",                                          \
      "network interfaces to use between machines: eth0, or ib0,ib1; ranks get them as "           \
      "CDDP_SOCKET_IFNAME (see --env)")                                                            \
    X(TAG_OUTPUT, "tag-output", 0, NULL,                                                           \
      "put \"[rank] \" before the lines of every rank, not only of those above 0")                 \
    X(NO_TAG, "no-tag", 0, NULL, "never put \"[rank] \" before a line")                            \
    X(DRY_RUN, "dry-run", 0, NULL,                                                                 \
      "start nothing: print the resolved configuration or the command, and a line for each "       \
      "rank")                                                                                      \
    X(AGENT, "agent", 0, NULL,                                                                     \
      "internal: --hosts starts cddp-run on each host with it; reads the token from "              \
      "standard input, and ends when that ends")                                                   \
    X(CHECK, "check", 0, NULL,                                                                     \
      "print what this machine has: libraries, GPUs, cores, memory, limits, launchers")            \
    X(ENV, "env", 0, NULL, "print every environment variable that cddp reads")                     \
    X(KEYS, "keys", 0, "[=NAME]",                                                                  \
      "print what each key of train.conf does, or only the keys that NAME names, like "            \
      "cddp-train --keys")                                                                         \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-run", OPTION_MAP);

static cddp_status read_int(const char *const values[OPTION_COUNT], enum option_id id, int low,
                            int high, int *out)
{
    int64_t number = *out;
    cddp_status status = cddpi_option_whole(&table, values, (int)id, low, high, &number);

    *out = (int)number;
    return status;
}

static cddp_status read_seconds(const char *const values[OPTION_COUNT], enum option_id id,
                                double low, double high, int64_t *out_ms)
{
    double seconds;

    if (values[id] == NULL) {
        return CDDP_OK;
    }
    if (!cddpi_parse_real(values[id], &seconds) || seconds < low || seconds > high) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s %s: not a number of seconds from %g to %g",
                          rows[id].name, values[id], low, high);
    }
    *out_ms = (int64_t)(seconds * 1000 + 0.5);
    return CDDP_OK;
}

static cddp_status read_bind(const char *const values[OPTION_COUNT], enum cddpi_bind *out)
{
    static const char *const words[] = {CDDPI_BIND_MAP(CDDPI_CHOICE_WORD)};
    int word = (int)*out;
    cddp_status status = cddpi_option_word(&table, values, OPTION_BIND, words,
                                           CDDPI_CHOICE_COUNT(CDDPI_BIND_MAP), &word);

    *out = (enum cddpi_bind)word;
    return status;
}

static cddp_status read_tag(const char *const values[OPTION_COUNT], enum cddpi_tag *out)
{
    static const int ids[] = {OPTION_TAG_OUTPUT, OPTION_NO_TAG};
    int chosen = -1;
    cddp_status status = cddpi_option_choice(&table, values, ids, 2, &chosen);

    *out = chosen == OPTION_TAG_OUTPUT ? CDDPI_TAG_ALL
           : chosen == OPTION_NO_TAG   ? CDDPI_TAG_NONE
                                       : CDDPI_TAG_AUTO;
    return status;
}

/* Check --rdzv with --nnodes and --node-rank. The addresses after tcp:// are checked when they are
 * used. */
static cddp_status read_rdzv(const char *const values[OPTION_COUNT],
                             struct cddpi_launch_options *options)
{
    const char *url = options->rdzv;
    bool is_tcp = url != NULL && strncmp(url, "tcp://", 6) == 0;

    if (url == NULL && values[OPTION_NNODES] != NULL && options->nnodes > 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--nnodes %d: the machines have to meet: add --rdzv tcp://HOST:PORT, an "
                          "address of machine 0, or --rdzv file:///FOLDER",
                          options->nnodes);
    }
    if (url == NULL && values[OPTION_NODE_RANK] != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--node-rank needs --nnodes and --rdzv");
    }
    if (url != NULL && !is_tcp && strncmp(url, "file:///", 8) != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--rdzv %s: neither tcp://HOST:PORT nor file:///FOLDER", url);
    }
    if (options->node_rank >= options->nnodes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--node-rank %d: with --nnodes %d it is from 0 to %d",
                          options->node_rank, options->nnodes, options->nnodes - 1);
    }
    return CDDP_OK;
}

/* Take what no option says from the launcher that started this cddp-run, which may have started
 * others on other machines. */
static cddp_status ask_launcher(const char *const values[OPTION_COUNT],
                                struct cddpi_launch_options *options)
{
    static const int others[] = {OPTION_HELP, OPTION_VERSION, OPTION_CHECK,
                                 OPTION_ENV,  OPTION_KEYS,    OPTION_AGENT};
    struct cddpi_launch_given given = {.nodes = values[OPTION_NNODES] != NULL ? options->nnodes : 0,
                                       .has_rdzv = values[OPTION_RDZV] != NULL,
                                       .has_node = values[OPTION_NODE_RANK] != NULL,
                                       .starts_hosts = values[OPTION_HOSTS] != NULL ||
                                                       values[OPTION_HOSTFILE] != NULL};
    struct cddpi_launch_node *node;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (values[others[i]] != NULL) {
            return CDDP_OK;
        }
    }
    node = cddpi_zalloc(sizeof *node);
    CDDPI_TRY_MEMORY(node != NULL, "no memory to look at the environment");
    options->launcher = node;
    CDDPI_TRY(cddpi_launch_node_read(&given, node));
    if (node->nodes > CDDPI_MAX_NODES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: at most %d machines can be one job", node->says,
                          CDDPI_MAX_NODES);
    }
    if (values[OPTION_NPROC] == NULL) {
        options->nproc = node->nproc;
        options->per_gpu = node->per_gpu;
    }
    if (node->nodes > 1) {
        options->nnodes = node->nodes;
        options->node_rank = given.has_node ? options->node_rank : node->node;
        options->rdzv = given.has_rdzv ? options->rdzv : node->rdzv;
    }
    return CDDP_OK;
}

/* Read the options that only --hosts and --hostfile use, and reject those that they exclude. */
static cddp_status read_hosts(const char *const values[OPTION_COUNT],
                              struct cddpi_launch_options *options)
{
    static const int lists[] = {OPTION_HOSTS, OPTION_HOSTFILE};
    static const int users[] = {OPTION_SSH, OPTION_EXPORT};
    static const int others[] = {OPTION_NNODES, OPTION_NODE_RANK, OPTION_RDZV};
    int list;

    CDDPI_TRY(cddpi_option_choice(&table, values, lists, 2, &list));
    options->hosts = values[OPTION_HOSTS];
    options->hostfile = values[OPTION_HOSTFILE];
    options->ssh = values[OPTION_SSH] != NULL ? values[OPTION_SSH] : "ssh -o BatchMode=yes";
    options->exports = values[OPTION_EXPORT];
    for (int i = 0; list < 0 && i < 2; i++) {
        if (values[users[i]] != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s needs --hosts or --hostfile",
                              rows[users[i]].name);
        }
    }
    for (int i = 0; list >= 0 && i < 3; i++) {
        if (values[others[i]] != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "--%s and --%s exclude each other: with a list of hosts one "
                              "cddp-run starts the others",
                              rows[list].name, rows[others[i]].name);
        }
    }
    return CDDP_OK;
}

static cddp_status read_nodes(const char *const values[OPTION_COUNT],
                              struct cddpi_launch_options *options)
{
    CDDPI_TRY(read_int(values, OPTION_NNODES, 1, CDDPI_MAX_NODES, &options->nnodes));
    CDDPI_TRY(read_int(values, OPTION_NODE_RANK, 0, CDDPI_MAX_NODES - 1, &options->node_rank));
    options->rdzv = values[OPTION_RDZV];
    CDDPI_TRY(ask_launcher(values, options));
    CDDPI_TRY(read_rdzv(values, options));
    CDDPI_TRY(read_hosts(values, options));
    options->token_file = values[OPTION_TOKEN_FILE];
    options->network_interface = values[OPTION_NETWORK_INTERFACE];
    options->is_agent = values[OPTION_AGENT] != NULL;
    if (options->is_agent && (options->rdzv == NULL || options->node_rank < 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--agent needs --nnodes, --node-rank and --rdzv");
    }
    return CDDP_OK;
}

/* Read a folder. An empty name is an error: a shell produces it from an unset variable. */
static cddp_status read_folder(const char *const values[OPTION_COUNT], enum option_id id,
                               const char **out)
{
    *out = values[id];
    return values[id] == NULL || values[id][0] != '\0'
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "--%s: the folder's name is empty", rows[id].name);
}

static cddp_status read_nproc(const char *const values[OPTION_COUNT],
                              struct cddpi_launch_options *options)
{
    const char *nproc = values[OPTION_NPROC];

    options->per_gpu = nproc != NULL && strcmp(nproc, "gpu") == 0;
    return nproc == NULL || options->per_gpu || strcmp(nproc, "auto") == 0
               ? CDDP_OK
               : read_int(values, OPTION_NPROC, 1, CDDPI_MAX_RANKS, &options->nproc);
}

static cddp_status read_timeout(const char *const values[OPTION_COUNT],
                                struct cddpi_launch_options *options)
{
    int64_t timeout_ms = 0;

    CDDPI_TRY(read_seconds(values, OPTION_TIMEOUT, 0.001, 2000000, &timeout_ms));
    if (values[OPTION_TIMEOUT] != NULL) {
        snprintf(options->timeout_ms, sizeof options->timeout_ms, "%lld", (long long)timeout_ms);
    }
    return CDDP_OK;
}

static cddp_status interpret(const char *const values[OPTION_COUNT],
                             struct cddpi_launch_options *options)
{
    CDDPI_TRY(read_nproc(values, options));
    CDDPI_TRY(read_int(values, OPTION_MAX_RESTARTS, 0, 1000000, &options->max_restarts));
    CDDPI_TRY(read_seconds(values, OPTION_GRACE, 0, 86400, &options->grace_ms));
    CDDPI_TRY(read_timeout(values, options));
    CDDPI_TRY(read_bind(values, &options->bind));
    CDDPI_TRY(read_folder(values, OPTION_RUN_DIR, &options->run_dir));
    CDDPI_TRY(read_folder(values, OPTION_LOG_DIR, &options->log_dir));
    CDDPI_TRY(read_tag(values, &options->tag));
    CDDPI_TRY(read_nodes(values, options));
    options->keys = values[OPTION_KEYS];
    options->action = values[OPTION_HELP] != NULL      ? CDDPI_ACTION_HELP
                      : values[OPTION_VERSION] != NULL ? CDDPI_ACTION_VERSION
                      : values[OPTION_CHECK] != NULL   ? CDDPI_ACTION_CHECK
                      : values[OPTION_ENV] != NULL     ? CDDPI_ACTION_ENV
                      : values[OPTION_KEYS] != NULL    ? CDDPI_ACTION_KEYS
                      : values[OPTION_DRY_RUN] != NULL ? CDDPI_ACTION_DRY_RUN
                                                       : CDDPI_ACTION_RUN;
    return CDDP_OK;
}

/* Find what to start: the program after "--", or a train.conf and its key=value arguments. */
static cddp_status take_command(struct cddpi_launch_options *options, bool after_dashes)
{
    if (options->action != CDDPI_ACTION_RUN && options->action != CDDPI_ACTION_DRY_RUN) {
        return CDDP_OK;
    }
    if (options->argument_count == 0) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            after_dashes ? "there is no program after --"
                         : "nothing to run: name a train.conf, or -- PROGRAM: see cddp-run --help");
    }
    if (after_dashes) {
        return CDDP_OK;
    }
    options->config = *options->arguments++;
    options->argument_count--;
    for (int i = 0; i < options->argument_count; i++) {
        if (strchr(options->arguments[i], '=') == NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "%s is not key=value; to start a program write cddp-run ... -- %s %s",
                              options->arguments[i], options->config, options->arguments[i]);
        }
    }
    return CDDP_OK;
}

/* Sort the arguments into options, whose @p values are set, and what is to run. */
static cddp_status sort_words(int argc, char **argv, const char *values[OPTION_COUNT],
                              bool *out_after_dashes, struct cddpi_launch_options *options)
{
    int word_count = 0;

    options->words[word_count++] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (!*out_after_dashes && strcmp(argv[i], "--") == 0) {
            *out_after_dashes = true;
            if (options->argument_count > 0) {
                return cddpi_fail(CDDP_ERR_ARGUMENT,
                                  "%s stands before --: give either a train.conf or -- and a "
                                  "program",
                                  options->arguments[0]);
            }
        } else if (!*out_after_dashes && argv[i][0] == '-' && argv[i][1] != '\0') {
            int first = i;

            CDDPI_TRY(cddpi_option_read(&table, argv, &i, values));
            while (first <= i) {
                options->words[word_count++] = argv[first++];
            }
        } else {
            options->arguments[options->argument_count++] = argv[i];
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_launch_options_parse(int argc, char **argv, struct cddpi_launch_options *out)
{
    struct cddpi_launch_options options = {.grace_ms = 10000, .nnodes = 1, .node_rank = -1};
    const char *values[OPTION_COUNT] = {NULL};
    bool after_dashes = false;
    cddp_status status;

    options.positional = cddpi_zalloc_array((size_t)argc + 1, sizeof *options.positional);
    options.words = cddpi_zalloc_array((size_t)argc + 1, sizeof *options.words);
    if (options.positional == NULL || options.words == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d arguments", argc);
        goto fail;
    }
    options.arguments = options.positional;
    CDDPI_TRY_GOTO(fail, status, sort_words(argc, argv, values, &after_dashes, &options));
    CDDPI_TRY_GOTO(fail, status, interpret(values, &options));
    CDDPI_TRY_GOTO(fail, status, take_command(&options, after_dashes));
    *out = options;
    return CDDP_OK;

fail:
    cddpi_launch_options_fini(&options);
    return status;
}

void cddpi_launch_options_fini(struct cddpi_launch_options *options)
{
    cddpi_free(options->launcher);
    cddpi_free(options->positional);
    cddpi_free(options->words);
    options->launcher = NULL;
    options->positional = NULL;
    options->words = NULL;
}

void cddpi_launch_options_help(FILE *to)
{
    fputs(
        "usage: cddp-run [OPTIONS] train.conf [key=value ...]   train what train.conf says\n"
        "       cddp-run [OPTIONS] -- PROGRAM [ARGUMENTS]       start any program once per rank\n"
        "\nStarts the ranks of a job, and ends them: if one fails, cddp-run stops the others, and "
        "if\n"
        "cddp-run dies, all ranks die. For several machines, either start cddp-run on each, with\n"
        "--nnodes and --rdzv, or on one of them, with --hosts.\n\n",
        to);
    cddpi_options_print(&table, HELP_COLUMN, to);
    fputs("\nThe exit status is 0 if every rank ended with 0, else that of the rank that failed "
          "first\n"
          "(128 plus the signal's number if a signal ended it), 2 if the command line is wrong, 3 "
          "if\n"
          "a signal stopped the job after a checkpoint, 127 if the program does not exist. More:\n"
          "man cddp-run.\n",
          to);
}
