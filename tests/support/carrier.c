/* carrier.c - see carrier.h. */
#include "support/carrier.h"

#include "base/clock.h"
#include "support/test.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

enum { LARGE_BYTES = 8 << 20 };

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
    out->exchange = (struct cddpi_exchange){
        .context = out, .world_size = job->world_size, .all_gather = all_gather};
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

enum { PART = 4096 };

/* The bytes from @p at on. */
PURE static void make_part(uint8_t *out, int from, int to, uint32_t tag, size_t at, size_t bytes)
{
    for (size_t i = at; i < at + bytes; i++) {
        *out++ = (uint8_t)((size_t)from * 131 + (size_t)to * 31 + tag * 17 + i * 7 + (i >> 12));
    }
}

static uint64_t random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The size of a transfer, from 0 to LARGE, which both sides compute. */
static size_t size_of(int from, int to, uint32_t tag, int round)
{
    static const size_t odd[] = {0, 1, 31, 32, 4064, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1};
    uint64_t state = (uint64_t)(from * 100 + to) * 1000 + tag * 10 + (uint64_t)round;

    (void)random_of(&state);
    if (random_of(&state) % 2 == 0) {
        return odd[random_of(&state) % (sizeof odd / sizeof odd[0])];
    }
    if (random_of(&state) % 8 == 0) {
        return random_of(&state) % LARGE_BYTES;
    }
    return random_of(&state) % 20000;
}

static size_t part_of(size_t at, size_t bytes)
{
    return bytes - at < PART ? bytes - at : PART;
}

void carrier_fill(int from, int to, uint32_t tag, uint8_t *data, size_t bytes)
{
    uint8_t part[PART];

    for (size_t at = 0; at < bytes; at += PART) {
        make_part(part, from, to, tag, at, part_of(at, bytes));
        memcpy(data + at, part, part_of(at, bytes));
    }
}

PURE static int count_wrong(const uint8_t *got, const uint8_t *right, size_t bytes)
{
    int wrong = 0;

    for (size_t i = 0; i < bytes; i++) {
        wrong += got[i] != right[i];
    }
    return wrong;
}

int carrier_count_wrong(int from, int to, uint32_t tag, const uint8_t *data, size_t bytes)
{
    uint8_t right[PART];
    int wrong = 0;

    for (size_t at = 0; at < bytes; at += PART) {
        make_part(right, from, to, tag, at, part_of(at, bytes));
        if (memcmp(data + at, right, part_of(at, bytes)) != 0) {
            wrong += count_wrong(data + at, right, part_of(at, bytes));
        }
    }
    return wrong;
}

int carrier_exchange(struct carrier_rank *self, int tags, int round)
{
    int world_size = self->job->world_size;
    int count = 0;
    struct cddpi_transfer *all = calloc((size_t)(world_size * tags * CDDPI_NET_CHANNELS * 2),
                                        sizeof *all);

    CHECK(all != NULL);
    for (int step = 1; step < world_size; step++) {
        int peer = (self->rank + step) % world_size;

        if (self->job->host_of[peer] == self->job->host_of[self->rank]) {
            continue;
        }
        for (int i = 0; i < tags * CDDPI_NET_CHANNELS * 2; i++) {
            bool is_send = i % 2 == 0;
            enum cddpi_net_channel channel = (enum cddpi_net_channel)(i / 2 % CDDPI_NET_CHANNELS);
            uint32_t tag = (uint32_t)(i / 2 / CDDPI_NET_CHANNELS);
            int from = is_send ? self->rank : peer;
            int to = is_send ? peer : self->rank;
            size_t bytes = size_of(from, to, tag, round);
            uint8_t *data = malloc(bytes + 1);

            if (is_send) {
                carrier_fill(from, to, tag, data, bytes);
            }
            data[bytes] = 0xa5;
            all[count] = carrier_transfer(peer, is_send, channel, tag, data, bytes);
            CHECK(self->ops->start(self->carrier, &all[count]) == CDDP_OK);
            count++;
        }
    }
    CHECK(carrier_wait(self, all, count, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (int i = 0; i < count; i++) {
        uint8_t *data = all[i].data;

        CHECK(data[all[i].bytes] == 0xa5);
        CHECK(all[i].is_send ||
              carrier_count_wrong(all[i].peer, self->rank, all[i].tag, data, all[i].bytes) == 0);
        free(data);
    }
    free(all);
    return 0;
}
