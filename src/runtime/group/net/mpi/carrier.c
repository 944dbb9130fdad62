/* carrier.c - owns the carrier `mpi`. A transfer is one MPI_Isend() or MPI_Irecv(), or several if
 * it must be cut or its size exceeds an int. All messages of a transfer have the same tag, and MPI
 * matches them in the order in which they were posted. */
#include "group/net/mpi/mpi_internal.h"

#include "base/clock.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Maximum bytes of one message. Tests set less. */
#ifndef CDDPI_MPI_PIECE_BYTES
#define CDDPI_MPI_PIECE_BYTES ((size_t)1 << 30)
#endif

enum {
    CHANNEL_SHIFT = CDDPI_NET_TAG_LOW_BITS,
    TAG_MASK = (1 << CHANNEL_SHIFT) - 1, /* MPI's tags do not have more bits */
    ABORT_TAG = (int)CDDPI_NET_CHANNELS << CHANNEL_SHIFT,
    MESSAGES_AT_ONCE = 16, /* maximum messages of a transfer at once; messages that arrive early
                              need a posted receive, or MPI copies them */
    DRAIN_MS = 1000,
    MISFIT_MS = 200
};

enum abort_state { ABORT_NONE, ABORT_WRITING, ABORT_WANTED, ABORT_SENT };

/* The progress of a transfer, stored in its `state`: how many bytes were posted, and how many of
 * these were sent or received. */
struct progress {
    size_t posted;
    size_t done;
};
_Static_assert(sizeof(struct progress) <= sizeof(((struct cddpi_transfer *)0)->state), "state");

static struct progress *progress_of(struct cddpi_transfer *transfer)
{
    return (struct progress *)(void *)transfer->state;
}

static size_t next_bytes(struct cddpi_transfer *transfer)
{
    size_t left = transfer->bytes - progress_of(transfer)->posted;
    size_t most = CDDPI_MPI_PIECE_BYTES;

    if (transfer->cut_bytes > 0 && transfer->cut_bytes < most) {
        most = transfer->cut_bytes;
    }
    return left < most ? left : most;
}

/* Make this thread's failure the carrier's permanent failure, if it is the first. */
static cddp_status fail_for_good(struct mpi_carrier *carrier, cddp_status status)
{
    cddpi_mpi_give_up();
    if (!atomic_load(&carrier->is_broken)) {
        carrier->broken = *cddpi_last_failure();
        atomic_store(&carrier->is_broken, true);
    }
    return status;
}

static const char *host_of(const struct mpi_carrier *carrier, int rank)
{
    return carrier->hosts[carrier->params.host_of[rank]];
}

/* Handle a transfer's failure. It is permanent, except for a message of unexpected length: then the
 * ranks' calls differ, and the comparison of calls, which is also in progress, gives a better error
 * text. So it gets time to do so. */
static cddp_status fail_or_hold(struct mpi_carrier *carrier, cddp_status status)
{
    if (status != CDDP_ERR_MISMATCH) {
        return fail_for_good(carrier, status);
    }
    if (carrier->misfit_ns == 0) {
        carrier->misfit = *cddpi_last_failure();
        carrier->misfit_ns = cddpi_now_ns();
    }
    return CDDP_OK;
}

static cddp_status fail_transfer(struct mpi_carrier *carrier, const struct cddpi_transfer *transfer,
                                 int code)
{
    int error_class = MPI_ERR_OTHER;

    (void)MPI_Error_class(code, &error_class);
    (void)cddpi_mpi_fail(error_class == MPI_ERR_TRUNCATE ? CDDP_ERR_MISMATCH : CDDP_ERR_PEER, code,
                         "%s rank %d on host %s, of %zu bytes, by MPI",
                         transfer->is_send ? "send to" : "receive from", transfer->peer,
                         host_of(carrier, transfer->peer), transfer->bytes);
    cddpi_error_blame(transfer->peer);
    return fail_or_hold(carrier, cddpi_last_failure()->status);
}

/* Start the transfer's next message as request @p i. */
static cddp_status post(struct mpi_carrier *carrier, struct cddpi_transfer *transfer, int i)
{
    struct progress *progress = progress_of(transfer);
    MPI_Request *request = &carrier->under_way.requests[i];
    char *data = transfer->data != NULL ? (char *)transfer->data + progress->posted : NULL;
    int tag = (int)((transfer->tag & TAG_MASK) | (uint32_t)transfer->channel << CHANNEL_SHIFT);
    size_t bytes = next_bytes(transfer);
    int code;

    *request = MPI_REQUEST_NULL;
    code = transfer->is_send
               ? MPI_Isend(data, (int)bytes, MPI_BYTE, transfer->peer, tag, carrier->comm, request)
               : MPI_Irecv(data, (int)bytes, MPI_BYTE, transfer->peer, tag, carrier->comm, request);
    carrier->under_way.transfers[i] = transfer;
    carrier->under_way.bytes[i] = bytes;
    progress->posted += bytes;
    return code == MPI_SUCCESS ? CDDP_OK : fail_transfer(carrier, transfer, code);
}

static cddp_status start_inside(struct mpi_carrier *carrier, struct cddpi_transfer *transfer)
{
    struct cddpi_mpi_requests *under_way = &carrier->under_way;
    struct progress *progress = progress_of(transfer);

    *progress = (struct progress){0, 0};
    transfer->is_done = false;
    CDDPI_TRY(cddpi_mpi_requests_reserve(under_way, under_way->count + MESSAGES_AT_ONCE));
    for (int i = 0; i < MESSAGES_AT_ONCE && (i == 0 || progress->posted < transfer->bytes); i++) {
        CDDPI_TRY(post(carrier, transfer, under_way->count));
        under_way->count++;
    }
    return CDDP_OK;
}

static cddp_status start_transfer(struct cddpi_carrier *base, struct cddpi_transfer *transfer)
{
    cddp_status status;

    assert(transfer->tag < 1u << CDDPI_NET_TAG_BITS);
    CDDPI_TRY(cddpi_mpi_enter());
    status = start_inside(mpi_of(base), transfer);
    cddpi_mpi_leave();
    return status;
}

/* Handle another host's abort, which is in abort_in. */
static void take_abort(struct mpi_carrier *carrier, const MPI_Status *mpi)
{
    struct cddpi_failure *in = &carrier->abort_in;
    const int least = (int)offsetof(struct cddpi_failure, text);
    int bytes = 0;

    (void)MPI_Get_count(mpi, MPI_BYTE, &bytes);
    if (bytes <= least || bytes > (int)sizeof *in || in->status == CDDP_OK) {
        return; /* not a valid failure; cddp of the same version does not send this */
    }
    in->operation[sizeof in->operation - 1] = '\0';
    in->text[bytes - least - 1] = '\0';
    if (in->unnamed > strlen(in->text)) {
        in->unnamed = 0;
    }
    carrier->aborted = *in;
    cddpi_mpi_give_up();
    atomic_store(&carrier->is_aborted, true);
}

/* Request @p i has ended with @p code. */
static cddp_status take_done(struct mpi_carrier *carrier, int i, int code, const MPI_Status *mpi,
                             bool *out_any)
{
    struct cddpi_transfer *transfer = carrier->under_way.transfers[i];
    size_t wanted = carrier->under_way.bytes[i];
    int bytes = 0;

    if (transfer == NULL) {
        if (code == MPI_SUCCESS) {
            take_abort(carrier, mpi);
        }
        return CDDP_OK;
    }
    if (code != MPI_SUCCESS) {
        return fail_transfer(carrier, transfer, code);
    }
    if (!transfer->is_send) {
        atomic_store(&carrier->heard_ns[transfer->peer], cddpi_now_ns());
        (void)MPI_Get_count(mpi, MPI_BYTE, &bytes);
        if ((size_t)bytes != wanted) {
            (void)cddpi_fail(CDDP_ERR_MISMATCH,
                             "rank %d on host %s sent %d bytes by MPI where %zu were expected",
                             transfer->peer, host_of(carrier, transfer->peer), bytes, wanted);
            cddpi_error_blame(transfer->peer);
            return fail_or_hold(carrier, CDDP_ERR_MISMATCH);
        }
    }
    progress_of(transfer)->done += wanted;
    if (progress_of(transfer)->posted < transfer->bytes) {
        return post(carrier, transfer, i);
    }
    if (progress_of(transfer)->done == transfer->bytes) {
        transfer->is_done = true;
        *out_any = true;
    }
    return CDDP_OK;
}

static cddp_status test_some(struct mpi_carrier *carrier, bool *out_any)
{
    struct cddpi_mpi_requests *under_way = &carrier->under_way;
    cddp_status status = CDDP_OK;
    int n = 0;
    int code = MPI_Testsome(under_way->count, under_way->requests, &n, under_way->done,
                            under_way->statuses);

    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        (void)cddpi_mpi_fail(CDDP_ERR_PEER, code, "move messages by MPI");
        return fail_for_good(carrier, CDDP_ERR_PEER);
    }
    for (int i = 0; n != MPI_UNDEFINED && i < n && status == CDDP_OK; i++) {
        const MPI_Status *mpi = &under_way->statuses[i];

        status = take_done(carrier, under_way->done[i],
                           code == MPI_ERR_IN_STATUS ? mpi->MPI_ERROR : MPI_SUCCESS, mpi, out_any);
    }
    if (n > 0) {
        cddpi_mpi_requests_compact(under_way);
    }
    return status;
}

/* Send the failure of abort(), unless it is sent already. Leaves out the text's unused bytes, so
 * that the message is small enough to be sent at once. Ignores errors: a peer that cannot be
 * reached notices the loss itself. Call it inside the section. */
static void send_abort(struct mpi_carrier *carrier)
{
    const struct cddpi_carrier_params *params = &carrier->params;
    int bytes = (int)(offsetof(struct cddpi_failure, text) + strlen(carrier->abort_out.text) + 1);

    if (atomic_load(&carrier->abort_state) != ABORT_WANTED) {
        return;
    }
    for (int host = 0; host < params->host_count; host++) {
        if (host != params->host_of[params->rank]) {
            (void)MPI_Isend(&carrier->abort_out, bytes, MPI_BYTE, params->leaders[host], ABORT_TAG,
                            carrier->comm, &carrier->abort_sends[host]);
        }
    }
    atomic_store(&carrier->abort_state, ABORT_SENT);
}

static cddp_status progress_transfers(struct cddpi_carrier *base, bool *out_any)
{
    struct mpi_carrier *carrier = mpi_of(base);
    cddp_status status;

    *out_any = false;
    CDDPI_TRY(cddpi_mpi_enter());
    send_abort(carrier);
    status = test_some(carrier, out_any);
    if (status == CDDP_OK && carrier->misfit_ns != 0 &&
        cddpi_now_ns() - carrier->misfit_ns >= MISFIT_MS * INT64_C(1000000)) {
        /* the comparison of calls has not reported the mismatch in time */
        (void)cddpi_fail_again(carrier->misfit.status, &carrier->misfit);
        status = fail_for_good(carrier, carrier->misfit.status);
    }
    cddpi_mpi_leave();
    return status;
}

cddp_status cddpi_mpi_carrier_listen(struct mpi_carrier *carrier)
{
    struct cddpi_mpi_requests *under_way = &carrier->under_way;
    int code;

    CDDPI_TRY(cddpi_mpi_requests_reserve(under_way, 1));
    code = MPI_Irecv(&carrier->abort_in, (int)sizeof carrier->abort_in, MPI_BYTE, MPI_ANY_SOURCE,
                     ABORT_TAG, carrier->comm, &under_way->requests[0]);
    if (code != MPI_SUCCESS) {
        return cddpi_mpi_fail(CDDP_ERR_PEER, code, "wait for other hosts' messages by MPI");
    }
    under_way->transfers[0] = NULL;
    under_way->count = 1;
    return CDDP_OK;
}

/* Wait until the requests from index @p from on, and those of the abort, are done. */
static bool await(struct mpi_carrier *carrier, int from)
{
    struct cddpi_mpi_requests *under_way = &carrier->under_way;
    int64_t deadline_ns = cddpi_deadline_ns(DRAIN_MS);
    bool is_done;

    do {
        is_done = cddpi_mpi_requests_are_done(under_way->requests + from,
                                              under_way->count - from) &&
                  cddpi_mpi_requests_are_done(carrier->abort_sends, carrier->params.host_count);
    } while (!is_done && cddpi_now_ns() < deadline_ns);
    under_way->count = from;
    return is_done;
}

bool cddpi_mpi_carrier_drain(struct mpi_carrier *carrier)
{
    send_abort(carrier);
    cddpi_mpi_requests_cancel(&carrier->under_way, 0);
    return await(carrier, 0);
}

/* A send, and a receive that has begun, cannot be cancelled: they get one second to complete. Both
 * sides call this function, so a peer that is alive completes them. MPI may continue to send to a
 * peer that is not.
 */
static bool forget_transfers(struct cddpi_carrier *base)
{
    struct mpi_carrier *carrier = mpi_of(base);
    bool is_done = true;

    cddpi_mpi_give_up();
    if (cddpi_mpi_enter() == CDDP_OK) {
        send_abort(carrier);
        cddpi_mpi_requests_cancel(&carrier->under_way, 1);
        is_done = await(carrier, 1);
        if (!is_done) {
            atomic_store(&carrier->is_broken, true); /* close then leaks the communicator */
        }
        cddpi_mpi_leave();
    }
    return is_done;
}

static cddp_status check(struct cddpi_carrier *base)
{
    struct mpi_carrier *carrier = mpi_of(base);

    return atomic_load(&carrier->is_broken)
               ? cddpi_fail_again((cddp_status)carrier->broken.status, &carrier->broken)
               : CDDP_OK;
}

static void describe(struct cddpi_carrier *base, int peer, char *out, size_t bytes)
{
    struct mpi_carrier *carrier = mpi_of(base);
    int64_t heard_ns = atomic_load(&carrier->heard_ns[peer]);
    size_t used = strnlen(out, bytes);

    if (heard_ns == 0) {
        snprintf(out + used, bytes - used, "rank %d on host %s, which has sent nothing by MPI yet",
                 peer, host_of(carrier, peer));
    } else {
        snprintf(out + used, bytes - used,
                 "rank %d on host %s, which sent its last message by MPI %.1f s ago", peer,
                 host_of(carrier, peer), (double)(cddpi_now_ns() - heard_ns) * 1e-9);
    }
}

static void abort_hosts(struct cddpi_carrier *base, const struct cddpi_failure *failure)
{
    struct mpi_carrier *carrier = mpi_of(base);
    int none = ABORT_NONE;

    if (atomic_compare_exchange_strong(&carrier->abort_state, &none, ABORT_WRITING)) {
        carrier->abort_out = *failure;
        cddpi_mpi_give_up();
        atomic_store(&carrier->abort_state, ABORT_WANTED);
        if (cddpi_mpi_try_enter()) { /* the group's thread may have no reason to call MPI */
            send_abort(carrier);
            cddpi_mpi_leave();
        }
        carrier->params.wake(carrier->params.wake_context);
    }
}

static bool aborted(struct cddpi_carrier *base, struct cddpi_failure *out)
{
    struct mpi_carrier *carrier = mpi_of(base);

    if (!atomic_load(&carrier->is_aborted)) {
        return false;
    }
    *out = carrier->aborted;
    return true;
}

static int descriptor(struct cddpi_carrier *base)
{
    (void)base;
    return -1; /* there is no descriptor: MPI must be called */
}

static void prepare_sleep(struct cddpi_carrier *base)
{
    (void)base;
}

const struct cddpi_carrier_ops cddpi_mpi_carrier_ops = {
    .name = "mpi",
    .is_blind = true,
    .cuts = true,
    .probe = cddpi_mpi_probe,
    .open = cddpi_mpi_carrier_open,
    .close = cddpi_mpi_carrier_close,
    .start = start_transfer,
    .progress = progress_transfers,
    .forget = forget_transfers,
    .descriptor = descriptor,
    .prepare_sleep = prepare_sleep,
    .check = check,
    .describe = describe,
    .abort = abort_hosts,
    .aborted = aborted,
};
