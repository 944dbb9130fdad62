/* carrier.c - see carrier.h. */
#include "support/carrier.h"

#include "base/clock.h"
#include "support/test.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

struct carrier_job *carrier_job_create(int world_size, const int *host_of)
{
    struct carrier_job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (job == MAP_FAILED) {
        return NULL;
    }
    job->world_size = world_size;
    snprintf(job->name, sizeof job->name, "test-%d", (int)getpid());
    for (int rank = world_size - 1; rank >= 0; rank--) {
        job->host_of[rank] = host_of != NULL ? host_of[rank] : rank;
        job->leaders[job->host_of[rank]] = rank;
        if (job->host_of[rank] >= job->host_count) {
            job->host_count = job->host_of[rank] + 1;
        }
    }
    return job;
}

void carrier_job_free(struct carrier_job *job)
{
    munmap(job, sizeof *job);
}

bool carrier_meet(struct carrier_job *job)
{
    int number = atomic_load(&job->number);
    int64_t deadline_ns = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);

    if (atomic_fetch_add(&job->arrived[number & 1], 1) + 1 == job->world_size) {
        atomic_store(&job->arrived[number & 1], 0);
        atomic_fetch_add(&job->number, 1);
        return true;
    }
    while (atomic_load(&job->number) == number) {
        if (cddpi_left_ms(deadline_ns) == 0) {
            return false;
        }
        support_sleep_ms(1);
    }
    return true;
}

static cddp_status all_gather(void *context, const void *own, size_t bytes, void *out_all)
{
    struct carrier_rank *self = context;

    if (bytes > CARRIER_RECORD_BYTES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "test: a record of %zu bytes", bytes);
    }
    memcpy(self->job->records[self->rank], own, bytes);
    if (!carrier_meet(self->job)) {
        return cddpi_fail(CDDP_ERR_TIMEOUT, "test: a rank did not come");
    }
    for (int rank = 0; rank < self->job->world_size; rank++) {
        memcpy((char *)out_all + (size_t)rank * bytes, self->job->records[rank], bytes);
    }
    return carrier_meet(self->job) ? CDDP_OK
                                   : cddpi_fail(CDDP_ERR_TIMEOUT, "test: a rank did not come");
}

static void wake(void *context)
{
    struct carrier_rank *self = context;

    (void)eventfd_write(self->wake_fd, 1);
}

cddp_status carrier_open(const struct cddpi_carrier_ops *ops, struct carrier_job *job, int rank,
                         const char *token, uint32_t timeout_ms, struct carrier_rank *out)
{
    struct cddpi_carrier_params params = {.rank = rank,
                                          .world_size = job->world_size,
                                          .host_of = job->host_of,
                                          .leaders = job->leaders,
                                          .host_count = job->host_count,
                                          .job = job->name,
                                          .generation = 3,
                                          .token = token,
                                          .timeout_ms = timeout_ms,
                                          .wake = wake,
                                          .wake_context = out};

    out->ops = ops;
    out->carrier = NULL;
    out->job = job;
    out->rank = rank;
    out->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    out->exchange = (struct cddpi_exchange){out, job->world_size, all_gather};
    params.exchange = &out->exchange;
    return ops->open(&params, &out->carrier);
}

void carrier_close(struct carrier_rank *self)
{
    if (self->carrier != NULL) {
        self->ops->close(self->carrier);
    }
    close(self->wake_fd);
}

struct cddpi_transfer carrier_transfer(int peer, bool is_send, enum cddpi_net_channel channel,
                                       uint32_t tag, void *data, size_t bytes)
{
    struct cddpi_transfer transfer = {.peer = peer,
                                      .channel = channel,
                                      .tag = tag,
                                      .is_send = is_send,
                                      .data = data,
                                      .bytes = bytes};

    return transfer;
}

static bool are_done(const struct cddpi_transfer *transfers, int count)
{
    for (int i = 0; i < count; i++) {
        if (!transfers[i].is_done) {
            return false;
        }
    }
    return true;
}

static void sleep_on(struct carrier_rank *self, int64_t deadline_ns)
{
    struct pollfd entries[2] = {{.fd = self->ops->descriptor(self->carrier), .events = POLLIN},
                                {.fd = self->wake_fd, .events = POLLIN}};
    int left_ms = cddpi_left_ms(deadline_ns);
    eventfd_t count;

    if (entries[0].fd < 0 && left_ms > 1) {
        left_ms = 1;
    }
    (void)poll(entries, 2, left_ms);
    (void)eventfd_read(self->wake_fd, &count);
}

static cddp_status progress(struct carrier_rank *self, bool *out_any)
{
    struct cddpi_failure failure;

    if (self->ops->aborted(self->carrier, &failure)) {
        return cddpi_fail_again((cddp_status)failure.status, &failure);
    }
    if (self->ops->check(self->carrier) != CDDP_OK) {
        return (cddp_status)cddpi_last_failure()->status;
    }
    return self->ops->progress(self->carrier, out_any);
}

cddp_status carrier_wait(struct carrier_rank *self, struct cddpi_transfer *transfers, int count,
                         uint32_t timeout_ms)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && !are_done(transfers, count)) {
        bool any = false;

        status = progress(self, &any);
        if (status == CDDP_OK && !any) {
            self->ops->prepare_sleep(self->carrier);
            status = progress(self, &any);
        }
        if (status == CDDP_OK && !any) {
            if (cddpi_left_ms(deadline_ns) == 0) {
                return cddpi_fail(CDDP_ERR_TIMEOUT, "test: transfers are not done");
            }
            sleep_on(self, deadline_ns);
        }
    }
    return status;
}

cddp_status carrier_wait_failure(struct carrier_rank *self, uint32_t timeout_ms)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && cddpi_left_ms(deadline_ns) > 0) {
        bool any = false;

        status = progress(self, &any);
        if (status == CDDP_OK && !any) {
            sleep_on(self, deadline_ns);
        }
    }
    return status;
}
