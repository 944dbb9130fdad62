/* bench_carrier.c - the tcp carrier between two processes of this machine, compared with plain
 * sockets: bandwidth of 64 MiB in one direction and in both at once, and round trips of 4 KiB.
 * Usage: bench_carrier [REPEATS]; each row is the best and the median of that many repeats.
 *
 * The plain sockets work like iperf: blocking calls on one connection. The carrier's round trips
 * poll like a spinning rank, or sleep like a rank that has waited for long. */
#include "base/clock.h"
#include "support/carrier.h"
#include "support/test.h"

#include <netinet/tcp.h>

#define TOKEN "a secret of this measurement"
enum {
    LARGE = 64 << 20,
    CHUNK = 128 << 10,
    SMALL = 4096,
    TRIPS = 2000,
    MAX_REPEATS = 101,
    TIMEOUT_MS = 60000
};

struct series {
    double values[MAX_REPEATS];
    int count;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_series(const char *what, struct series *series, double scale, const char *unit)
{
    qsort(series->values, (size_t)series->count, sizeof series->values[0], compare);
    printf("%-44s best %8.2f, median %8.2f %s\n", what, scale / series->values[0],
           scale / series->values[series->count / 2], unit);
}

static void print_times(const char *what, struct series *series)
{
    qsort(series->values, (size_t)series->count, sizeof series->values[0], compare);
    printf("%-44s best %8.2f, median %8.2f us\n", what, series->values[0] * 1e6,
           series->values[series->count / 2] * 1e6);
}

static bool move_all(int fd, uint8_t *data, size_t bytes, bool is_send)
{
    while (bytes > 0) {
        size_t chunk = bytes < CHUNK ? bytes : CHUNK;
        ssize_t moved = is_send ? send(fd, data, chunk, MSG_NOSIGNAL) : recv(fd, data, chunk, 0);

        if (moved <= 0) {
            return false;
        }
        data += moved;
        bytes -= (size_t)moved;
    }
    return true;
}

/* Two ends of a connection over loopback. */
static bool make_pair(int out_fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0) {
        return false;
    }
    out_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(out_fds[0], (const struct sockaddr *)&address, sizeof address) != 0) {
        return false;
    }
    out_fds[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(out_fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return out_fds[1] >= 0;
}

struct bench {
    struct carrier_job *job;
    int fds[2];
    int repeats;
    const char *sockets, *encrypt;
};

static int raw_rank(int rank, int world_size, void *argument)
{
    struct bench *bench = argument;
    uint8_t *data = malloc(LARGE);
    struct series large = {.count = 0};
    struct series small = {.count = 0};
    int fd = bench->fds[rank];

    (void)world_size;
    memset(data, 1, LARGE);
    for (int i = 0; i < bench->repeats; i++) {
        int64_t begin_ns;

        CHECK(carrier_meet(bench->job));
        begin_ns = cddpi_now_ns();
        CHECK(move_all(fd, data, LARGE, rank == 0) && move_all(fd, data, 1, rank != 0));
        large.values[large.count++] = (double)(cddpi_now_ns() - begin_ns) * 1e-9;
        begin_ns = cddpi_now_ns();
        for (int trip = 0; trip < TRIPS; trip++) {
            CHECK(move_all(fd, data, SMALL, rank == 0) && move_all(fd, data, SMALL, rank != 0));
        }
        small.values[small.count++] = (double)(cddpi_now_ns() - begin_ns) * 1e-9 / TRIPS;
    }
    if (rank == 0) {
        print_series("plain socket, 64 MiB", &large, LARGE * 1e-9, "GB/s");
        print_times("plain socket, round trip of 4 KiB", &small);
    }
    free(data);
    return 0;
}

/* Wait as a rank does that spins. */
static cddp_status spin(struct carrier_rank *self, struct cddpi_transfer *transfers, int count)
{
    cddp_status status = CDDP_OK;
    bool done = false;

    while (!done && status == CDDP_OK) {
        bool any;

        status = self->ops->progress(self->carrier, &any);
        done = true;
        for (int i = 0; i < count; i++) {
            done = done && transfers[i].is_done;
        }
    }
    return status;
}

static cddp_status move(struct carrier_rank *self, uint8_t *data, size_t bytes, bool is_send,
                        bool spins)
{
    struct cddpi_transfer transfer = carrier_transfer(1 - self->rank, is_send,
                                                      CDDPI_NET_COLLECTIVES, 1, data, bytes);
    cddp_status status = self->ops->start(self->carrier, &transfer);

    if (status != CDDP_OK || transfer.is_done) {
        return status;
    }
    return spins ? spin(self, &transfer, 1) : carrier_wait(self, &transfer, 1, TIMEOUT_MS);
}

static cddp_status move_both(struct carrier_rank *self, uint8_t *out, uint8_t *in, size_t bytes)
{
    struct cddpi_transfer both[2] = {
        carrier_transfer(1 - self->rank, true, CDDPI_NET_COLLECTIVES, 2, out, bytes),
        carrier_transfer(1 - self->rank, false, CDDPI_NET_COLLECTIVES, 2, in, bytes)};
    cddp_status status = self->ops->start(self->carrier, &both[0]);

    if (status == CDDP_OK) {
        status = self->ops->start(self->carrier, &both[1]);
    }
    return status == CDDP_OK ? carrier_wait(self, both, 2, TIMEOUT_MS) : status;
}

static int carrier_body(int rank, int world_size, void *argument)
{
    struct bench *bench = argument;
    struct carrier_rank self;
    uint8_t *data = malloc(LARGE);
    uint8_t *other = malloc(LARGE);
    struct series large = {.count = 0};
    struct series both = {.count = 0};
    struct series trips[2] = {{.count = 0}, {.count = 0}};
    char what[80];

    (void)world_size;
    setenv("CDDP_SOCKETS", bench->sockets, 1);
    setenv("CDDP_ENCRYPT", bench->encrypt, 1);
    memset(data, 1, LARGE);
    memset(other, 1, LARGE);
    CHECK(carrier_open(&cddpi_tcp_carrier, bench->job, rank, TOKEN, TIMEOUT_MS, &self) == CDDP_OK);
    for (int i = 0; i < bench->repeats; i++) {
        int64_t begin_ns;

        CHECK(carrier_meet(bench->job));
        begin_ns = cddpi_now_ns();
        CHECK(move(&self, data, LARGE, rank == 0, false) == CDDP_OK);
        CHECK(move(&self, data, 1, rank != 0, false) == CDDP_OK);
        large.values[large.count++] = (double)(cddpi_now_ns() - begin_ns) * 1e-9;
        CHECK(carrier_meet(bench->job));
        begin_ns = cddpi_now_ns();
        CHECK(move_both(&self, data, other, LARGE) == CDDP_OK);
        both.values[both.count++] = (double)(cddpi_now_ns() - begin_ns) * 1e-9;
        for (int spins = 0; spins < 2; spins++) {
            CHECK(carrier_meet(bench->job));
            begin_ns = cddpi_now_ns();
            for (int trip = 0; trip < TRIPS; trip++) {
                CHECK(move(&self, data, SMALL, rank == 0, spins) == CDDP_OK);
                CHECK(move(&self, data, SMALL, rank != 0, spins) == CDDP_OK);
            }
            trips[spins].values[trips[spins].count++] = (double)(cddpi_now_ns() - begin_ns) * 1e-9 /
                                                        TRIPS;
        }
    }
    if (rank == 0) {
        const char *kind = bench->encrypt[0] == '1' ? "encrypted tcp" : "tcp";

        snprintf(what, sizeof what, "%s, %s sockets, 64 MiB", kind, bench->sockets);
        print_series(what, &large, LARGE * 1e-9, "GB/s");
        snprintf(what, sizeof what, "%s, %s sockets, 64 MiB each way", kind, bench->sockets);
        print_series(what, &both, LARGE * 2e-9, "GB/s");
        snprintf(what, sizeof what, "%s, %s sockets, round trip, sleeping", kind, bench->sockets);
        print_times(what, &trips[0]);
        snprintf(what, sizeof what, "%s, %s sockets, round trip, spinning", kind, bench->sockets);
        print_times(what, &trips[1]);
    }
    CHECK(carrier_meet(bench->job));
    carrier_close(&self);
    free(data);
    free(other);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const sockets[] = {"1", "2", "4", "1", "2"};
    struct bench bench = {.repeats = argc > 1 ? atoi(argv[1]) : 7};
    int failed = 0;

    if (bench.repeats < 1 || bench.repeats > MAX_REPEATS) {
        fprintf(stderr, "bench_carrier: repeats are from 1 to %d\n", MAX_REPEATS);
        return 2;
    }
    bench.job = carrier_job_create(2, NULL);
    for (int i = 0; i < 6 && failed == 0; i++) {
        if (i == 0 || i == 5) { /* before and behind, so that drift shows */
            failed = make_pair(bench.fds) ? run_ranks(2, raw_rank, &bench) : 1;
            close(bench.fds[0]);
            close(bench.fds[1]);
        }
        if (i < 5 && failed == 0) {
            bench.sockets = sockets[i];
            bench.encrypt = i < 3 ? "0" : "1";
            failed = run_ranks(2, carrier_body, &bench);
        }
    }
    carrier_job_free(bench.job);
    return failed != 0;
}
