/* watch.c - owns what a rank knows about other hosts apart from its transfers: whether they are
 * reachable, and whether they have failed; and the calls that a carrier makes from its own thread.
 *
 * A carrier whose library does not detect hosts that disappear (MPI) is accompanied by a second
 * carrier: tcp with only its control connections between leaders, which carry no data. So the same
 * code detects a pulled cable equally fast, and does not take a stopped process on a reachable host
 * for lost, whatever carries the data. The thread of that carrier also reports failures while the
 * rank computes and does not call MPI. */
#include "group/net/watch.h"

#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REACH_MS = 30000 }; /* for leaders to connect; later: no second carrier */

cddp_status cddpi_net_watch_open(struct net_backend *net, const struct cddpi_carrier_params *params)
{
    struct cddpi_carrier_params control = *params;
    struct cddpi_carrier *watch = NULL;
    cddp_status status;

    if (!net->carrier->ops->is_blind) {
        return CDDP_OK;
    }
    control.only_control = true;
    control.timeout_ms = params->timeout_ms < REACH_MS ? params->timeout_ms : REACH_MS;
    status = cddpi_tcp_carrier.open(&control, &watch);
    if (status == CDDP_OK) {
        atomic_store(&net->watch, watch);
        return CDDP_OK;
    }
    if (status == CDDP_ERR_MISMATCH || status == CDDP_ERR_NO_MEMORY) {
        return status;
    }
    if (net->rank == 0) { /* the same on all ranks */
        cddpi_log(CDDPI_LOG_WARN,
                  "net: a host that vanishes will be noticed only when an operation's time is up, "
                  "since hosts do not reach each other by TCP beside %s: %s",
                  net->carrier->ops->name, cddp_last_error());
    }
    return CDDP_OK;
}

void cddpi_net_watch_close(struct net_backend *net)
{
    if (net->watch != NULL) {
        net->watch->ops->close(net->watch);
    }
}

cddp_status cddpi_net_check_hosts(struct net_backend *net)
{
    if (net->carrier != NULL) {
        CDDPI_TRY(net->carrier->ops->check(net->carrier));
    }
    return net->watch != NULL ? net->watch->ops->check(net->watch) : CDDP_OK;
}

bool cddpi_net_hosts_aborted(struct net_backend *net, struct cddpi_failure *out)
{
    return (net->carrier != NULL && net->carrier->ops->aborted(net->carrier, out)) ||
           (net->watch != NULL && net->watch->ops->aborted(net->watch, out));
}

void cddpi_net_abort_hosts(struct net_backend *net, const struct cddpi_failure *failure)
{
    if (net->carrier == NULL || atomic_exchange(&net->is_told, true)) {
        return;
    }
    net->carrier->ops->abort(net->carrier, failure);
    if (net->watch != NULL) {
        net->watch->ops->abort(net->watch, failure);
    }
}

void cddpi_net_describe_peer(struct net_backend *net, int rank, char *out, size_t bytes)
{
    size_t used;

    net->carrier->ops->describe(net->carrier, rank, out, bytes);
    used = strlen(out);
    if (net->watch != NULL && net_is_leader(net) && net->leaders[net->host_of[rank]] == rank) {
        (void)snprintf(out + used, bytes - used, "; ");
        net->watch->ops->describe(net->watch, rank, out, bytes);
    }
}

bool cddpi_net_interfaces(struct cddpi_backend *backend, char *out, size_t bytes)
{
    struct net_backend *net = net_of(backend);

    if (net->watch != NULL) {
        return net->watch->ops->interfaces(net->watch, out, bytes);
    }
    return net->carrier != NULL && net->carrier->ops->interfaces != NULL &&
           net->carrier->ops->interfaces(net->carrier, out, bytes);
}

void cddpi_net_wake(struct cddpi_backend *backend)
{
    struct net_backend *net = net_of(backend);
    uint64_t one = 1;

    net->inner->ops->wake(net->inner);
    if (atomic_load(&net->sleeps)) {
        (void)!write(net->wake_fd, &one, sizeof one);
    }
}

void cddpi_net_wake_by_carrier(void *context)
{
    struct net_backend *net = context;

    cddpi_net_wake(&net->base);
}

bool cddpi_net_host_failed(void *context, struct cddpi_failure *out)
{
    struct net_backend *net = context;

    if (net->inner->ops->broken(net->inner) == CDDP_OK || atomic_exchange(&net->is_told, true)) {
        return false;
    }
    *out = *cddpi_last_failure();
    return true;
}
