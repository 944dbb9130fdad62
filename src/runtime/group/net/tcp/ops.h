/* ops.h - declares the functions of the tcp carrier's row that are not in tcp.c; see
 * group/net/carrier.h. */
#ifndef CDDPI_GROUP_NET_TCP_OPS_H
#define CDDPI_GROUP_NET_TCP_OPS_H

#include "group/net/tcp/tcp.h"

/* data.c */
cddp_status cddpi_tcp_start(struct cddpi_carrier *carrier, struct cddpi_transfer *transfer);
cddp_status cddpi_tcp_progress(struct cddpi_carrier *carrier, bool *out_any);
cddp_status cddpi_tcp_flush(struct cddpi_carrier *carrier, bool *out_any);
bool cddpi_tcp_forget(struct cddpi_carrier *carrier);
int cddpi_tcp_descriptor(struct cddpi_carrier *carrier);
void cddpi_tcp_prepare_sleep(struct cddpi_carrier *carrier);
/** Close the data connections, after the thread has ended. */
void cddpi_tcp_data_close(struct tcp_carrier *tcp);

/* tcp_health.c */
cddp_status cddpi_tcp_check(struct cddpi_carrier *carrier);
void cddpi_tcp_describe(struct cddpi_carrier *carrier, int peer, char *out, size_t bytes);
void cddpi_tcp_abort(struct cddpi_carrier *carrier, const struct cddpi_failure *failure);
bool cddpi_tcp_aborted(struct cddpi_carrier *carrier, struct cddpi_failure *out);
void cddpi_tcp_exits(struct cddpi_carrier *carrier);
bool cddpi_tcp_interface(struct cddpi_carrier *carrier, char *out, size_t bytes);

#endif
