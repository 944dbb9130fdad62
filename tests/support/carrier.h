/* carrier.h - ranks on "hosts" of their own, connected by a carrier
 * (src/runtime/group/net/carrier.h), for tests and measurements: each is a forked process, they
 * exchange small structs by shared memory.
 */
#ifndef CDDP_TESTS_SUPPORT_CARRIER_H
#define CDDP_TESTS_SUPPORT_CARRIER_H

#include "group/net/carrier.h"

#include <stdatomic.h>

enum { CARRIER_MAX_RANKS = 16, CARRIER_RECORD_BYTES = 8192 };

/* Shared by all ranks: made before the fork. */
struct carrier_job {
    int world_size;
    int host_of[CARRIER_MAX_RANKS];
    int leaders[CARRIER_MAX_RANKS];
    int host_count;
    _Atomic int arrived[2]; /* at the barrier, by the parity of its number */
    _Atomic int number;
    _Atomic int notes[64]; /* the test's own */
    char name[64];
    unsigned char records[CARRIER_MAX_RANKS][CARRIER_RECORD_BYTES];
};

/* @p host_of: by rank; NULL: each rank has a host of its own. Release with carrier_job_free(). */
struct carrier_job *carrier_job_create(int world_size, const int *host_of);
void carrier_job_free(struct carrier_job *job);

/* One rank's end. */
struct carrier_rank {
    const struct cddpi_carrier_ops *ops;
    struct cddpi_carrier *carrier;
    struct carrier_job *job;
    int rank;
    int wake_fd;
    struct cddpi_exchange exchange;
};

/* @p timeout_ms: of connecting. */
cddp_status carrier_open(const struct cddpi_carrier_ops *ops, struct carrier_job *job, int rank,
                         const char *token, uint32_t timeout_ms, struct carrier_rank *out);
void carrier_close(struct carrier_rank *self);

/* All ranks of the job meet. False: not within the limit. */
bool carrier_meet(struct carrier_job *job);

struct cddpi_transfer carrier_transfer(int peer, bool is_send, enum cddpi_net_channel channel,
                                       uint32_t tag, void *data, size_t bytes);

/* Progress until all are done, sleeping on the descriptor in between. An error of the carrier, or
 * of its check(); CDDP_ERR_TIMEOUT. */
cddp_status carrier_wait(struct carrier_rank *self, struct cddpi_transfer *transfers, int count,
                         uint32_t timeout_ms);
/* The same until the carrier reports a failure, or an abort has come; which is stored as this
 * thread's last. */
cddp_status carrier_wait_failure(struct carrier_rank *self, uint32_t timeout_ms);

/* What @p from sends to @p to under @p tag. */
void carrier_fill(int from, int to, uint32_t tag, uint8_t *data, size_t bytes);
int carrier_count_wrong(int from, int to, uint32_t tag, const uint8_t *data, size_t bytes);

/* Transfers of all sizes from nothing to 8 MiB, each way with every peer on another host, in both
 * channels, with several tags at once, whose contents are checked. 0, or prints why not: for a
 * rank. */
int carrier_exchange(struct carrier_rank *self, int tags, int round);

#endif
