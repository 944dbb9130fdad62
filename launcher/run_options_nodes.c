/* run_options_nodes.c - reads the options that say on which machines a job runs, and the variables
 * of launchers that say it if the options do not. */
#include "launcher/run_options_own.h"

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_event.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "group/launch/launch_node.h"

#include <string.h>

/* Whether this cddp-run starts the others. */
static bool has_hosts(const char *const values[OPTION_COUNT])
{
    return values[OPTION_HOSTS] != NULL || values[OPTION_HOSTFILE] != NULL;
}

/* Check --rdzv with --nnodes and --node-rank. The addresses after tcp:// are checked when they are
 * used. */
static cddp_status read_rdzv(const char *const values[OPTION_COUNT],
                             struct cddpi_launch_options *options)
{
    const char *url = options->rdzv;
    bool is_tcp = url != NULL && strncmp(url, "tcp://", 6) == 0;

    if (url == NULL && values[OPTION_NNODES] != NULL && !has_hosts(values) &&
        (options->nnodes > 1 || options->least > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--nnodes %s: the machines have to meet: add --rdzv tcp://HOST:PORT, an "
                          "address of machine 0, or --rdzv file:///FOLDER",
                          values[OPTION_NNODES]);
    }
    if (url == NULL && values[OPTION_NODE_RANK] != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--node-rank needs --nnodes and --rdzv");
    }
    if (url != NULL && !is_tcp && strncmp(url, "file:///", 8) != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--rdzv %s: neither tcp://HOST:PORT nor file:///FOLDER", url);
    }
    if (options->node_rank >= options->nnodes && options->least == 0) {
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
    static const int others[] = {OPTION_HELP, OPTION_VERSION, OPTION_CHECK, OPTION_ENV,
                                 OPTION_KEYS, OPTION_AGENT,   OPTION_STORE};
    struct cddpi_launch_given given = {.nodes = values[OPTION_NNODES] != NULL ? options->nnodes : 0,
                                       .least = values[OPTION_NNODES] != NULL ? options->least : 0,
                                       .has_rdzv = values[OPTION_RDZV] != NULL,
                                       .has_node = values[OPTION_NODE_RANK] != NULL,
                                       .starts_hosts = has_hosts(values)};
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
    if (node->nodes > 1 && given.nodes == 0) {
        options->nnodes = options->most = node->nodes;
        options->least = node->least;
    }
    if (node->nodes > 1) {
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
        if (values[others[i]] != NULL && (others[i] != OPTION_NNODES || options->least == 0)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "--%s and --%s exclude each other: with a list of hosts one "
                              "cddp-run starts the others",
                              rows[list].name, rows[others[i]].name);
        }
    }
    return CDDP_OK;
}

/* Read "MIN:MAX" of option @p id. */
static cddp_status read_range(const char *const values[OPTION_COUNT], enum option_id id, int most,
                              struct cddpi_launch_options *options)
{
    const char *text = values[id];
    const char *colon = strchr(text, ':');
    char first[16];
    int64_t low;
    int64_t high;

    snprintf(first, sizeof first, "%.*s", colon != NULL ? (int)(colon - text) : 0, text);
    if (colon == NULL || !cddpi_parse_integer(first, 1, most, &low) ||
        !cddpi_parse_integer(colon + 1, 1, most, &high)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--%s %s: not MIN:MAX, such as 2:4, with whole numbers from 1 to %d",
                          rows[id].name, text, most);
    }
    if (low > high) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s %s: MIN is larger than MAX", rows[id].name,
                          text);
    }
    options->least = (int)low;
    options->most = (int)high;
    return CDDP_OK;
}

/* Read the numbers of machines, or of ranks on this one, between which the job goes on. */
static cddp_status read_elastic(const char *const values[OPTION_COUNT],
                                struct cddpi_launch_options *options)
{
    static const int others[] = {OPTION_NNODES, OPTION_RDZV, OPTION_HOSTS, OPTION_HOSTFILE};
    const char *nnodes = values[OPTION_NNODES];
    bool has_range = nnodes != NULL && strchr(nnodes, ':') != NULL;

    if (has_range) {
        CDDPI_TRY(read_range(values, OPTION_NNODES, CDDPI_MAX_NODES, options));
        options->nnodes = options->most;
    } else {
        CDDPI_TRY(read_int(values, OPTION_NNODES, 1, CDDPI_MAX_NODES, &options->nnodes));
    }
    for (size_t i = 0; values[OPTION_ELASTIC] != NULL && i < sizeof others / sizeof *others; i++) {
        const char *other = values[others[i]];

        if (other != NULL && (others[i] != OPTION_NNODES || strcmp(other, "1") != 0)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "--elastic and --%s exclude each other: --elastic is for ranks on "
                              "one machine; machines that come and go are --nnodes MIN:MAX, with "
                              "--rdzv or --hosts",
                              rows[others[i]].name);
        }
    }
    if (values[OPTION_ELASTIC] != NULL) {
        CDDPI_TRY(read_range(values, OPTION_ELASTIC, CDDPI_MAX_RANKS, options));
    }
    return CDDP_OK;
}

/* Read from which time on a rank is a straggler. */
static cddp_status read_stragglers(const char *const values[OPTION_COUNT],
                                   struct cddpi_launch_options *options)
{
    const char *text = values[OPTION_REPLACE_STRAGGLERS];
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    char first[32];
    double factor;
    double seconds;

    if (text == NULL) {
        return CDDP_OK;
    }
    snprintf(first, sizeof first, "%.*s", colon != NULL ? (int)(colon - text) : 0, text);
    if (colon == NULL || !cddpi_parse_real(first, &factor) ||
        !cddpi_parse_real(colon + 1, &seconds) || !(factor >= 1.1 && factor <= 100) ||
        !(seconds >= 1 && seconds <= 86400)) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "--replace-stragglers %s: not F:S, such as 1.5:30, with a factor from 1.1 "
            "to 100 and 1 to 86400 seconds",
            text);
    }
    if (options->least == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--replace-stragglers %s: the number of ranks of this job is fixed, so "
                          "none can be replaced: add --elastic MIN:MAX on one machine, or --nnodes "
                          "MIN:MAX",
                          text);
    }
    options->replace_stragglers = text;
    options->straggler_factor = factor;
    options->straggler_ms = (int64_t)(seconds * 1000);
    return CDDP_OK;
}

/* Set what the user has not said about an elastic job. */
static cddp_status complete_elastic(const char *const values[OPTION_COUNT],
                                    struct cddpi_launch_options *options)
{
    const struct cddpi_launch_node *node = options->launcher;

    if (options->least > 0 && values[OPTION_MAX_RESTARTS] == NULL) {
        options->max_restarts = node != NULL ? node->max_restarts : -1;
    }
    if (values[OPTION_ELASTIC] == NULL) {
        return CDDP_OK;
    }
    if (options->rdzv != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--elastic %s is for ranks on one machine, and %s has started this as "
                          "node %d of %d (%s): --nnodes 1 trains on this machine alone",
                          values[OPTION_ELASTIC], node->origin, node->node, node->nodes,
                          node->says);
    }
    if (values[OPTION_NPROC] == NULL) {
        options->nproc = options->most;
        options->per_gpu = false;
    }
    return CDDP_OK;
}

/* --store excludes what is about ranks and other machines. */
static cddp_status read_store(const char *const values[OPTION_COUNT],
                              struct cddpi_launch_options *options)
{
    options->store = values[OPTION_STORE];
    if (options->store == NULL) {
        return CDDP_OK;
    }
    if (strncmp(options->store, "tcp://", 6) != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--store %s: not tcp://HOST:PORT", options->store);
    }
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (values[i] != NULL && i != OPTION_STORE && i != OPTION_TOKEN_FILE &&
            i != OPTION_TIMEOUT && i != OPTION_HELP && i != OPTION_VERSION) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "--store and --%s exclude each other: this cddp-run serves the store "
                              "and runs nothing; give the machines --%s, with --rdzv %s",
                              rows[i].name, rows[i].name, options->store);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_options_read_nodes(const char *const values[OPTION_COUNT],
                                     struct cddpi_launch_options *options)
{
    int most = values[OPTION_AGENT] != NULL ? CDDPI_NODE_NUMBERS : CDDPI_MAX_NODES;

    CDDPI_TRY(read_store(values, options));
    CDDPI_TRY(read_elastic(values, options));
    CDDPI_TRY(read_int(values, OPTION_NODE_RANK, 0, most - 1, &options->node_rank));
    options->rdzv = values[OPTION_RDZV];
    CDDPI_TRY(ask_launcher(values, options));
    CDDPI_TRY(complete_elastic(values, options));
    CDDPI_TRY(read_stragglers(values, options));
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

const char *cddpi_nnodes_text(int least, int most, char out[CDDPI_NNODES_BYTES])
{
    if (least == 0) {
        snprintf(out, CDDPI_NNODES_BYTES, "%d", most);
    } else {
        snprintf(out, CDDPI_NNODES_BYTES, "%d:%d", least, most);
    }
    return out;
}
