/* node_place.c - finds or serves the job's store. With --rdzv tcp:// its address is known; node 0
 * serves it, unless a cddp-run --store already does. With
 * --rdzv file://, node 0 serves a TCP store too, and writes its address and token into a file
 * store, which only this user can read. Unless the user chose a token, node 0 makes one. */
#include "launcher/nodes/node_place.h"

#include "launcher/nodes/nodes.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "group/launch/launch_node.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <string.h>

enum { TIMEOUT_MS = 300000, ATTEMPT_MS = 1000, PAUSE_MS = 100, LOOK_MS = 50, ANSWER_MS = 5000 };

static const char board_key[] = "rendezvous";

/* What node 0 writes into the file store. */
struct node_board {
    char list[CDDPI_URL_BYTES]; /* addresses, in the syntax of --rdzv */
    char token[CDDPI_TOKEN_BYTES + 1];
};

CDDPI_MESSAGE_FORM(cddpi_board_form, BOARD, struct node_board, sizeof(struct node_board) + 64,
                   CDDPI_TEXT(struct node_board, list), CDDPI_TEXT(struct node_board, token));

uint32_t cddpi_place_timeout_ms(const struct cddpi_launch_options *options)
{
    int64_t timeout_ms = TIMEOUT_MS;

    (void)cddpi_parse_integer(options->timeout_ms, 1, INT32_MAX, &timeout_ms);
    return (uint32_t)timeout_ms;
}

void cddpi_place_wait_begins(struct cddpi_place *place)
{
    cddpi_patience_begin(&place->patience,
                         place->job->options.is_agent ? CDDPI_PATIENCE_REMOTE_MS
                                                      : CDDPI_PATIENCE_MS,
                         cddpi_now_ns());
}

bool cddpi_place_wait_lasts(struct cddpi_place *place)
{
    return cddpi_patience_ends(&place->patience, cddpi_now_ns());
}

void cddpi_place_say_wait(struct cddpi_place *place, const char *format, ...)
{
    char what[CDDPI_URL_BYTES];
    char until[32];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    cddpi_patience_until(time(NULL), cddpi_left_ms(place->deadline_ns), until, sizeof until);
    cddpi_output_say(place->wait->output, "%s: waiting until %s (--timeout %g)", what, until,
                     cddpi_place_timeout_ms(&place->job->options) / 1000.0);
}

void cddpi_place_tell_wait(struct cddpi_place *place, void *what)
{
    if (cddpi_place_wait_lasts(place)) {
        cddpi_place_say_wait(place, "%s", (const char *)what);
    }
}

cddp_status cddpi_place_open_store(const char *url, const char *token, uint32_t timeout_ms,
                                   cddp_store **out)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;

    options.url = url;
    options.token = token;
    options.timeout_ms = timeout_ms;
    return cddp_store_open(&options, out);
}

void cddpi_place_key(const struct cddpi_place *place, const char *name, int node,
                     char out[CDDPI_PLACE_KEY_BYTES])
{
    if (node < 0) {
        snprintf(out, CDDPI_PLACE_KEY_BYTES, "%s/0/%s", place->job->rendezvous.job, name);
    } else {
        snprintf(out, CDDPI_PLACE_KEY_BYTES, "%s/0/%s/%d", place->job->rendezvous.job, name, node);
    }
}

cddp_status cddpi_place_await(struct cddpi_place *place, cddp_store *store, const char *key,
                              int64_t deadline_ns,
                              void (*look)(struct cddpi_place *place, void *context), void *context,
                              void **out_value, size_t *out_bytes)
{
    cddp_status status;

    while ((status = cddp_store_try_get(store, key, out_value, out_bytes)) == CDDP_ERR_NOT_FOUND &&
           cddpi_left_ms(deadline_ns) > 0) {
        if (look != NULL) {
            look(place, context);
        }
        if (!cddpi_wait_for(place->wait, -1, store == place->board ? PAUSE_MS : LOOK_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
    return status;
}

/* Connect to @p address, and record it as the store's address for ranks on this machine. */
static cddp_status connect_to(struct cddpi_place *place, const struct cddpi_address *address,
                              uint32_t timeout_ms)
{
    struct cddpi_job_rendezvous *rendezvous = &place->job->rendezvous;
    cddp_status status;

    cddpi_address_url(address, rendezvous->store);
    memcpy(rendezvous->master_host, address->host, sizeof rendezvous->master_host);
    status = cddpi_place_open_store(rendezvous->store, rendezvous->token, timeout_ms,
                                    &place->store);
    if (status != CDDP_OK) {
        rendezvous->store[0] = '\0';
        return status;
    }
    /* connecting had its own timeout; requests get the usual one */
    cddp_store_close(place->store);
    place->store = NULL;
    return cddpi_place_open_store(rendezvous->store, rendezvous->token, ANSWER_MS, &place->store);
}

/* Try each address of @p list once. */
static cddp_status connect_once(struct cddpi_place *place, const char *list, bool *out_is_final)
{
    bool is_only = strchr(list, ',') == NULL;
    cddp_status status = CDDP_ERR_IO;

    while (*list != '\0' && !place->wait->is_over) {
        struct cddpi_address address;

        status = cddpi_address_next(&list, &address);
        *out_is_final = status != CDDP_OK;
        if (status == CDDP_OK) {
            status = connect_to(place, &address, ATTEMPT_MS);
        }
        /* a failure is final only if the list has one address */
        *out_is_final = *out_is_final ||
                        (is_only && status != CDDP_ERR_TIMEOUT && status != CDDP_OK);
        if (status == CDDP_OK || *out_is_final) {
            break;
        }
    }
    return status;
}

static cddp_status connect_any(struct cddpi_place *place, const char *list)
{
    bool is_final = false;

    for (;;) {
        cddp_status status = connect_once(place, list, &is_final);

        if (status == CDDP_OK || is_final) {
            return status;
        }
        if (cddpi_place_wait_lasts(place)) {
            cddpi_place_say_wait(place,
                                 place->job->options.is_agent
                                     ? "the cddp-run that started this one cannot be reached at %s"
                                     : "node 0 has not come yet, or cannot be reached at %s",
                                 list);
        }
        if (cddpi_left_ms(place->deadline_ns) == 0) {
            return cddpi_fail_prefix(CDDP_ERR_TIMEOUT,
                                     "node 0 did not come, or cannot be reached, within %g s",
                                     cddpi_place_timeout_ms(&place->job->options) / 1000.0);
        }
        if (!cddpi_wait_for(place->wait, -1, PAUSE_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
}

static bool is_numeric(const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    struct addrinfo *infos = NULL;
    bool is_numeric = getaddrinfo(host, NULL, &hints, &infos) == 0;

    if (is_numeric) {
        freeaddrinfo(infos);
    }
    return is_numeric;
}

/* Whether a launcher chose --rdzv: it may then name this machine by an address that the machine
 * does not know as its own. */
static bool is_named_by_launcher(const struct cddpi_place *place)
{
    const struct cddpi_launch_options *options = &place->job->options;

    return options->launcher != NULL && options->rdzv == options->launcher->rdzv;
}

bool cddpi_place_binds_all(const char *host, bool is_named_by_launcher)
{
    enum cddpi_locality locality = cddpi_address_locality(host, true);

    /* On the machine itself, its own name often resolves to 127.0.1.1, elsewhere to its address.
     * The name of a Kubernetes Service resolves to an address that no machine has, but that is
     * routed here. */
    return locality == CDDPI_LOCAL_NOT || locality == CDDPI_LOCAL_UNKNOWN ||
           (locality == CDDPI_LOCAL_LOOPBACK && !is_numeric(host) &&
            (is_named_by_launcher || strcmp(host, "localhost") != 0));
}

void cddpi_place_master_host(const struct cddpi_job_rendezvous *rendezvous, char *out, size_t bytes)
{
    struct cddpi_address store;
    const char *rest = rendezvous->store + strlen("tcp://");

    out[0] = '\0';
    if (rendezvous->server == NULL && cddpi_address_next(&rest, &store) == CDDP_OK &&
        !cddpi_address_is_local(store.host, true)) {
        cddpi_address_towards(&store, out, bytes);
    }
}

cddp_status cddpi_place_look_outside(struct cddpi_place *place)
{
    void *value = NULL;
    cddp_status status = cddp_store_try_get(place->store, CDDPI_PLACE_OUTSIDE_KEY, &value, NULL);

    cddp_free(value);
    place->job->rendezvous.has_outside_store = status == CDDP_OK;
    return status == CDDP_ERR_NOT_FOUND ? CDDP_OK : status;
}

/* Node 0 does not serve a store at @p list: connect to one, if a cddp-run --store serves it.
 * *out_is_refused: there is a store, and it does not let this node in. */
static cddp_status find_outside(struct cddpi_place *place, const char *list, bool *out_is_refused)
{
    struct cddpi_job_rendezvous *rendezvous = &place->job->rendezvous;
    cddp_status status = connect_once(place, list, out_is_refused);

    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_place_look_outside(place);
    if (status != CDDP_OK || !rendezvous->has_outside_store) {
        cddp_store_close(place->store);
        place->store = NULL;
        rendezvous->store[0] = '\0';
        return CDDP_ERR_NOT_FOUND;
    }
    return CDDP_OK;
}

/* Node 0 is not at @p list. If the job may lose nodes, wait for a cddp-run --store there. */
static cddp_status await_outside(struct cddpi_place *place, const char *list)
{
    bool is_elastic = place->job->options.least > 0;
    struct cddpi_address address = {.port = 0};
    const char *rest = list;
    bool is_refused = false;

    for (;;) {
        cddp_status status = find_outside(place, list, &is_refused);

        if (status == CDDP_OK || (is_elastic && is_refused)) {
            return status;
        }
        if (!is_elastic || cddpi_left_ms(place->deadline_ns) == 0) {
            break;
        }
        if (cddpi_place_wait_lasts(place)) {
            cddpi_place_say_wait(place, "no cddp-run --store can be reached at %s yet", list);
        }
        if (!cddpi_wait_for(place->wait, -1, PAUSE_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
    CDDPI_TRY(cddpi_address_next(&rest, &address));
    return cddpi_fail(
        CDDP_ERR_ARGUMENT,
        "--rdzv tcp://%s: %s is not an address of this machine, and node 0 serves the "
        "job's store: start --node-rank 0 there, or name this machine",
        list, address.host);
}

/* Node 0 cannot serve the store, since its port is taken: by a cddp-run --store, or by others. */
static cddp_status take_outside(struct cddpi_place *place, const char *list)
{
    char why[CDDPI_URL_BYTES];
    bool is_refused;

    snprintf(why, sizeof why, "%s", cddp_last_error());
    return find_outside(place, list, &is_refused) == CDDP_OK ? CDDP_OK
                                                             : cddpi_fail(CDDP_ERR_IO, "%s", why);
}

/* Serve the store at @p address. *out_is_taken: the port is in use. */
static cddp_status serve_at(struct cddpi_place *place, const struct cddpi_address *address,
                            bool *out_is_taken)
{
    struct cddpi_job *job = place->job;
    struct cddpi_address own = *address;
    enum cddpi_locality locality = cddpi_address_locality(address->host, true);
    bool is_elsewhere = locality == CDDPI_LOCAL_NOT || locality == CDDPI_LOCAL_UNKNOWN;
    bool binds_all = cddpi_place_binds_all(address->host, is_named_by_launcher(place));
    cddp_status status = cddpi_rendezvous_serve(binds_all ? NULL : address->host, address->port,
                                                job->local_world_size, &job->rendezvous);

    *out_is_taken = status != CDDP_OK && cddpi_last_errno() == EADDRINUSE;
    if (*out_is_taken) {
        return cddpi_fail(CDDP_ERR_IO,
                          "--rdzv: port %u of %s is in use already: by another job? Choose another "
                          "port, on all nodes",
                          address->port, address->host);
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "--rdzv");
    }
    if (is_elsewhere) {
        snprintf(own.host, sizeof own.host, "127.0.0.1");
    }
    CDDPI_TRY(connect_to(place, &own, cddpi_place_timeout_ms(&job->options)));
    return cddp_store_set(place->store, CDDPI_PLACE_JOB_KEY, job->rendezvous.job,
                          strlen(job->rendezvous.job));
}

/* Wait until node 0's own name resolves: DNS is late for a pod that has just started. */
static cddp_status await_name(struct cddpi_place *place, const char *host)
{
    while (cddpi_address_locality(host, true) == CDDPI_LOCAL_UNKNOWN) {
        if (cddpi_left_ms(place->deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT,
                              "--rdzv: the name %s was not known within %g s, and it is not this "
                              "machine's own",
                              host, cddpi_place_timeout_ms(&place->job->options) / 1000.0);
        }
        if (cddpi_place_wait_lasts(place)) {
            cddpi_place_say_wait(place, "the name %s is not known yet", host);
        }
        if (!cddpi_wait_for(place->wait, -1, ATTEMPT_MS)) {
            return cddpi_wait_fail(place->wait);
        }
    }
    return CDDP_OK;
}

static cddp_status open_tcp(struct cddpi_place *place, const char *list)
{
    const struct cddpi_launch_options *options = &place->job->options;
    const char *rest = list;
    struct cddpi_address address;
    bool is_local;
    bool is_taken = false;
    cddp_status status;

    CDDPI_TRY(cddpi_address_next(&rest, &address));
    if (options->is_agent) {
        return connect_any(place, list);
    }
    if (place->self == 0 && !is_named_by_launcher(place)) {
        CDDPI_TRY(await_name(place, address.host));
    }
    is_local = place->self <= 0 && cddpi_address_is_local(address.host, true);
    if (place->self == 0 && is_named_by_launcher(place)) {
        is_local = true;
    }
    if (place->self == 0 && (!is_local || *rest != '\0')) {
        return await_outside(place, list);
    }
    if (!is_local) {
        return connect_any(place, list);
    }
    status = serve_at(place, &address, &is_taken);
    if (is_taken && place->self < 0) {
        return connect_any(place, list); /* another node on this machine was faster */
    }
    if (is_taken) {
        return take_outside(place, list);
    }
    place->self = 0;
    return status;
}

/* Node 0: serve a store on all addresses, and write its address into the file. */
static cddp_status serve_by_file(struct cddpi_place *place, const char *shown)
{
    struct cddpi_job *job = place->job;
    struct cddpi_job_rendezvous *rendezvous = &job->rendezvous;
    struct node_board board;
    struct cddpi_address address;
    const char *rest = board.list + strlen("tcp://");
    bool is_first = false;

    CDDPI_TRY(cddpi_rendezvous_serve(NULL, 0, job->local_world_size, rendezvous));
    cddpi_address_own(job->options.network_interface, cddpi_store_server_port(rendezvous->server),
                      board.list);
    memcpy(board.token, rendezvous->token, sizeof board.token);
    CDDPI_TRY(cddpi_address_next(&rest, &address));
    CDDPI_TRY(connect_to(place, &address, ANSWER_MS));
    CDDPI_TRY(cddp_store_set(place->store, CDDPI_PLACE_JOB_KEY, rendezvous->job,
                             strlen(rendezvous->job)));
    CDDPI_TRY(cddpi_message_set_first(place->board, board_key, &cddpi_board_form, &board, &is_first,
                                      NULL, NULL));
    return is_first
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "--rdzv %s: the nodes of another job meet there at this moment", shown);
}

/* Other nodes: wait for the address that node 0 writes, and connect. */
static cddp_status follow_file(struct cddpi_place *place, const char *shown)
{
    struct node_board board;
    char what[CDDPI_URL_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    snprintf(what, sizeof what, "node 0 has not come to %s yet", shown);
    status = cddpi_place_await(place, place->board, board_key, place->deadline_ns,
                               cddpi_place_tell_wait, what, &value, &bytes);
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(CDDP_ERR_TIMEOUT,
                          "--rdzv %s: node 0 did not come within %g s (does it see this folder?)",
                          shown, cddpi_place_timeout_ms(&place->job->options) / 1000.0);
    }
    CDDPI_TRY(status);
    status = cddpi_message_decode(&cddpi_board_form, value, bytes, &board);
    cddp_free(value);
    if (status != CDDP_OK || strncmp(board.list, "tcp://", 6) != 0) {
        return status != CDDP_OK
                   ? cddpi_fail_prefix(status, "--rdzv %s: what node 0 wrote is not understood",
                                       shown)
                   : cddpi_fail(CDDP_ERR_FORMAT, "--rdzv %s: what node 0 wrote is not understood",
                                shown);
    }
    memcpy(place->job->rendezvous.token, board.token, sizeof board.token);
    return connect_any(place, board.list + 6);
}

static cddp_status open_file(struct cddpi_place *place, const char *url)
{
    struct cddpi_job *job = place->job;
    char path[CDDPI_URL_BYTES];
    int64_t arrived = 0;
    cddp_status status;

    if (snprintf(path, sizeof path, "%s/cddp-run.store", url) >= (int)sizeof path) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--rdzv: the name of the folder is too long");
    }
    status = cddpi_place_open_store(path, job->rendezvous.token, ANSWER_MS, &place->board);
    if (status == CDDP_OK && place->self < 0) {
        status = cddp_store_add(place->board, "arrived", 1, &arrived);
        place->self = (int)arrived - 1;
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "--rdzv");
    }
    if (place->self >= job->options.nnodes && job->options.least == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--rdzv %s: %d nodes have come there already", url,
                          job->options.nnodes);
    }
    return place->self == 0 ? serve_by_file(place, url) : follow_file(place, url);
}

cddp_status cddpi_place_open(struct cddpi_place *place)
{
    const char *url = place->job->options.rdzv;

    place->self = place->job->options.node_rank;
    return strncmp(url, "tcp://", 6) == 0 ? open_tcp(place, url + 6) : open_file(place, url);
}

void cddpi_place_fini(struct cddpi_place *place)
{
    cddp_store_close(place->store);
    cddp_store_close(place->board);
    place->store = NULL;
    place->board = NULL;
}
