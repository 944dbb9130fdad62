/* fake_nccl.c - the fake's API: communicators, groups of calls, and failures on demand. */
#include "fake_cuda/fake_nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_CALLS = 256, PATIENCE = 3, RELEASED = 0x40000000 };

/* The group of calls that this thread is making. */
static _Thread_local struct {
    int depth;
    size_t count;
    struct fake_nccl_call calls[MOST_CALLS];
    ncclResult_t failed;
} group;

long fake_nccl_setting(const char *name, long otherwise)
{
    char full[64];
    const char *text;

    snprintf(full, sizeof full, "CDDP_FAKE_NCCL_%s", name);
    text = getenv(full);
    return text != NULL && text[0] != '\0' ? atol(text) : otherwise;
}

ncclResult_t fake_nccl_fail(ncclComm_t comm, ncclResult_t result, const char *text)
{
    if (comm != NULL) {
        comm->error = result;
        snprintf(comm->text, sizeof comm->text, "%s", text);
    }
    return result;
}

/* Begin a call; no other call may be in progress. */
ncclResult_t fake_nccl_begin(ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclInvalidArgument;
    }
    if (comm->error != ncclSuccess) {
        return comm->error;
    }
    if (atomic_load(&comm->busy) > 0 || comm->registers) {
        return fake_nccl_fail(comm, ncclInvalidArgument,
                              "Attempt to use communicator before the previous operation "
                              "returned ncclSuccess");
    }
    return ncclSuccess;
}

/* End a call, which is then in progress for a while. */
ncclResult_t fake_nccl_later(ncclComm_t comm)
{
    atomic_store(&comm->busy, PATIENCE);
    return ncclInProgress;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)fake_nccl_setting("VERSION", 22809);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};

    return (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm != NULL ? comm->text : "";
}

/* The shared memory is a file of rank 0's process; the id is its name in /proc. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, sizeof(struct fake_nccl_shared)) != 0) {
        return ncclSystemError;
    }
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

static long this_host(void)
{
    const char *id = getenv("NCCL_HOSTID");
    long hash = 17;

    for (size_t i = 0; id != NULL && id[i] != '\0'; i++) {
        hash = hash * 31 + id[i];
    }
    return hash;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const char *how = getenv("CDDP_FAKE_NCCL_INIT");
    struct fake_nccl_shared *shared;
    struct cudaDeviceProp properties;
    ncclComm_t comm;
    int device;
    int fd;

    if (config == NULL || config->magic != 0xcafebeef || config->blocking != 0 || size < 1 ||
        size > FAKE_NCCL_RANKS || rank < 0 || rank >= size ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        return ncclInvalidArgument;
    }
    id.internal[sizeof id.internal - 1] = '\0';
    fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return ncclSystemError;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) {
        return ncclSystemError;
    }
    comm = fake_zalloc(sizeof *comm);
    atomic_store(&comm->refs, 1);
    comm->shared = shared;
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->error_after = fake_nccl_setting("ASYNC_ERROR", 0);
    comm->stuck_at = fake_nccl_setting("STUCK", 0);
    comm->hangs = how != NULL && strcmp(how, "hang") == 0;
    shared->members[rank].device = (unsigned char)properties.uuid.bytes[15];
    shared->members[rank].host = this_host();
    if (how != NULL && strcmp(how, "fail") == 0) {
        (void)fake_nccl_fail(comm, ncclSystemError, "it was asked to fail");
    }
#if NCCL_VERSION_CODE >= 22800
    if (config->CTAPolicy == NCCL_CTA_POLICY_ZERO) {
        fake_nccl_count("copy engines");
    }
#endif
    atomic_fetch_add(&shared->joined, comm->hangs ? 0 : 1);
    *out = comm;
    return fake_nccl_later(comm);
}

/* Refuse two ranks on one device, as NCCL before 2.30 does. */
static void check_devices(ncclComm_t comm)
{
    const char *share = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    if (fake_nccl_setting("VERSION", 22809) >= 23003 && share != NULL && strcmp(share, "1") == 0) {
        return;
    }
    for (int a = 0; a < comm->size; a++) {
        for (int b = 0; b < a; b++) {
            if (comm->shared->members[a].device == comm->shared->members[b].device &&
                comm->shared->members[a].host == comm->shared->members[b].host) {
                (void)fake_nccl_fail(comm, ncclInvalidUsage, "Duplicate GPU detected");
            }
        }
    }
}

/* Whether this rank waits for a peer that has not made its call yet. */
bool fake_nccl_is_connecting(const struct ncclComm *comm)
{
    struct fake_nccl_shared *shared = comm->shared;
    bool waits = (comm->connected && atomic_load(&shared->connected) < comm->size) ||
                 atomic_load(&shared->windows) < comm->windows * comm->size;

    for (int peer = 0; peer < comm->size && !waits; peer++) {
        for (int way = 0; way < 2; way++) {
            waits = waits || (atomic_load(&shared->met[comm->rank][peer][way]) &&
                              !atomic_load(&shared->met[peer][comm->rank][1 - way]));
        }
    }
    return waits;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    if (comm->error != ncclSuccess) {
        *out = comm->error;
    } else if (comm->hangs || atomic_load(&comm->shared->joined) < comm->size) {
        *out = ncclInProgress;
    } else if (fake_nccl_is_connecting(comm) ||
               (comm->finalized && atomic_load(&comm->recorded) > 0)) {
        *out = ncclInProgress;
    } else if (atomic_load(&comm->busy) > 0) {
        atomic_fetch_sub(&comm->busy, 1);
        *out = ncclInProgress;
        check_devices(comm);
    } else if (comm->registers && !fake_nccl_registered(comm)) {
        *out = ncclInProgress;
    } else {
        if (comm->error_after > 0 && comm->collectives >= (uint64_t)comm->error_after) {
            (void)fake_nccl_fail(comm, ncclRemoteError, "a connection was closed by a remote peer");
        }
        *out = comm->error;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = fake_nccl_begin(comm);

    if (result != ncclSuccess) {
        return result;
    }
    comm->finalized = true;
    return fake_nccl_later(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    fake_nccl_stop_registering(comm);
    fake_nccl_comm_drop(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    struct fake_nccl_counts *const all[] = {&comm->shared->arrived, &comm->shared->done,
                                            &comm->shared->sent, &comm->shared->taken};

    bool endless = comm->windows > 0 && fake_nccl_setting("ENDLESS", 0) != 0 &&
                   fake_nccl_setting("VERSION", 22809) >= 22800;

    fake_nccl_stop_registering(comm);
    for (size_t i = 0; i < sizeof all / sizeof *all && !endless; i++) {
        for (int r = 0; r < FAKE_NCCL_RANKS; r++) {
            atomic_store((_Atomic uint32_t *)&all[i]->of[comm->rank][r] + 1, RELEASED);
        }
    }
    while (atomic_load(&comm->recorded) > 0) { /* 2.28 also polls until captured graphs are
                                                  destroyed */
        usleep(1000);
    }
    fake_nccl_comm_drop(comm);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t finish_group(void)
{
    ncclComm_t comm = group.count > 0 ? group.calls[0].comm : NULL;
    ncclResult_t result = group.failed;

    if (result == ncclSuccess && comm != NULL) {
        result = fake_nccl_put(group.calls, group.count);
    }
    group.count = 0;
    group.failed = ncclSuccess;
    if (result != ncclSuccess) {
        return comm != NULL ? fake_nccl_fail(comm, result, "a group of calls failed") : result;
    }
    return comm != NULL ? fake_nccl_later(comm) : ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0) {
        return ncclInvalidUsage;
    }
    return --group.depth == 0 ? finish_group() : ncclSuccess;
}

/* Fail like a driver that does not let this NCCL call be captured. */
static ncclResult_t check_capture(const struct fake_nccl_call *call)
{
    static long captured;
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    (void)cudaStreamIsCapturing(call->stream, &state);
    return state == cudaStreamCaptureStatusActive &&
                   ++captured == fake_nccl_setting("FAIL_CAPTURE", 0)
               ? fake_nccl_fail(call->comm, ncclUnhandledCudaError, "it cannot be captured")
               : ncclSuccess;
}

static ncclResult_t add(const struct fake_nccl_call *call)
{
    ncclResult_t result = fake_nccl_begin(call->comm);

    if (result == ncclSuccess) {
        result = check_capture(call);
    }

    if (result == ncclSuccess && group.count == MOST_CALLS) {
        result = fake_nccl_fail(call->comm, ncclInternalError, "too many calls in a group");
    }
    if (result != ncclSuccess) {
        group.failed = group.depth > 0 ? result : ncclSuccess;
        return result;
    }
    fake_nccl_count_call(call, (int)call->op >= 32);
    fake_nccl_count_bytes(call);
    group.calls[group.count] = *call;
    if ((int)call->op >= 32) {
        group.calls[group.count].factor = call->comm->factors[(int)call->op - 32].scalar;
        group.calls[group.count].op = ncclSum;
    }
    group.count++;
    return group.depth > 0 ? ncclSuccess : finish_group();
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_ALL_REDUCE,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .stream = stream});
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_REDUCE,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .root = root,
                                        .stream = stream});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_BROADCAST,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .root = root,
                                        .stream = stream});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_ALL_GATHER,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .stream = stream});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_REDUCE_SCATTER,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .stream = stream});
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_SEND,
                                        .in = in,
                                        .count = count,
                                        .type = type,
                                        .root = peer,
                                        .stream = stream});
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add(&(struct fake_nccl_call){.comm = comm,
                                        .kind = FAKE_NCCL_RECV,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .root = peer,
                                        .stream = stream});
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    ncclResult_t result = fake_nccl_begin(comm);

    if (result != ncclSuccess) {
        return result;
    }
    if (residence != ncclScalarDevice) {
        return fake_nccl_fail(comm, ncclInvalidArgument, "only scalars in device memory");
    }
    for (int i = 0; i < (int)(sizeof comm->factors / sizeof *comm->factors); i++) {
        if (!comm->factors[i].used) {
            comm->factors[i].used = true;
            comm->factors[i].type = type;
            comm->factors[i].scalar = scalar;
            *op = (ncclRedOp_t)(32 + i);
            return ncclSuccess;
        }
    }
    return fake_nccl_fail(comm, ncclInternalError, "operations are not destroyed");
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = fake_nccl_begin(comm);

    if (result == ncclSuccess) {
        comm->factors[(int)op - 32].used = false;
    }
    return result;
}

ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    if (fake_nccl_setting("MEMORY", 1) == 0) {
        return ncclUnhandledCudaError;
    }
    bytes = (bytes + NCCL_WIN_REQUIRED_ALIGNMENT - 1) / NCCL_WIN_REQUIRED_ALIGNMENT *
            NCCL_WIN_REQUIRED_ALIGNMENT;
    return cudaMalloc(out, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory)
{
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
