/* carrier.h - ranks on separate "hosts", connected by a carrier (src/runtime/group/net/carrier.h),
 * for tests and benchmarks. Each rank is a forked process; ranks exchange small structs through
 * shared memory. */
#ifndef CDDP_TESTS_SUPPORT_CARRIER_H
#define CDDP_TESTS_SUPPORT_CARRIER_H

#include "group/net/carrier.h"

#include <stdatomic.h>

enum { CARRIER_MAX_RANKS = 16, CARRIER_RECORD_BYTES = 8192 };

/* Shared by all ranks; created before the fork. */
struct carrier_job {
    int world_size;
    int host_of[CARRIER_MAX_RANKS];
    int leaders[CARRIER_MAX_RANKS];
    int host_count;
    _Atomic int arrived[2]; /* ranks at the barrier, by the parity of the barrier's number */
    _Atomic int number;
    _Atomic int notes[64]; /* free for the test's use */
    char name[64];
    unsigned char records[CARRIER_MAX_RANKS][CARRIER_RECORD_BYTES];
};

/* @p host_of gives each rank's host; NULL: each rank has its own. Release with
 * carrier_job_free(). */
struct carrier_job *carrier_job_create(int world_size, const int *host_of);
void carrier_job_free(struct carrier_job *job);

/* One rank's end of the connections. */
struct carrier_rank {
    const struct cddpi_carrier_ops *ops;
    struct cddpi_carrier *carrier;
    struct carrier_job *job;
    int rank;
    int wake_fd;
    struct cddpi_exchange exchange;
};

/* @p timeout_ms limits connecting. */
cddp_status carrier_open(const struct cddpi_carrier_ops *ops, struct carrier_job *job, int rank,
                         const char *token, uint32_t timeout_ms, struct carrier_rank *out);
void carrier_close(struct carrier_rank *self);

/* A barrier of all ranks of the job. Returns false after its time limit. */
bool carrier_meet(struct carrier_job *job);

struct cddpi_transfer carrier_transfer(int peer, bool is_send, enum cddpi_net_channel channel,
                                       uint32_t tag, void *data, size_t bytes);

/* Make progress until all transfers are done, sleeping on the descriptor in between. Returns an
 * error of the carrier or of its check(), or CDDP_ERR_TIMEOUT. */
cddp_status carrier_wait(struct carrier_rank *self, struct cddpi_transfer *transfers, int count,
                         uint32_t timeout_ms);
/* As carrier_wait(), but until the carrier reports a failure or an abort arrives. That failure
 * becomes this thread's last error. */
cddp_status carrier_wait_failure(struct carrier_rank *self, uint32_t timeout_ms);

/* Fill @p data with what @p from sends to @p to under @p tag. */
void carrier_fill(int from, int to, uint32_t tag, uint8_t *data, size_t bytes);
int carrier_count_wrong(int from, int to, uint32_t tag, const uint8_t *data, size_t bytes);

/* Run transfers of sizes from 0 to 8 MiB, both ways with every peer on another host, in both
 * channels and with several tags at once, and check their contents. For a rank: returns 0, or
 * prints what failed. */
int carrier_exchange(struct carrier_rank *self, int tags, int round);

#endif
