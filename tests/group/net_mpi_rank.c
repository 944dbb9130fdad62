/* net_mpi_rank.c - a rank that test_net_mpi starts with mpirun. It runs the case of its first
 * argument with the carrier `mpi`. All ranks are on this machine, so they have a group by other
 * means, over which the carrier is opened as if each rank were on its own host. */
#include "base/alloc.h"
#include "base/clock.h"
#include "group/group.h"
#include "group/net/carrier.h"

#ifdef OWNS_MPI
#include <cddp/mpi.h>
#endif

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 8, TIMEOUT_MS = 300000 };

static cddp_group *group;
static const struct cddpi_carrier_ops *ops;
static int numbers[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
static atomic_int wakes;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, cddp_last_error());                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static cddp_status gather(void *context, const void *own, size_t bytes, void *out_all)
{
    void *all;
    cddp_status status = cddpi_all_gather_bytes(context, own, bytes, &all);

    if (status == CDDP_OK) {
        memcpy(out_all, all, bytes * (size_t)cddp_group_world_size(context));
        cddpi_free(all);
    }
    return status;
}

static void wake(void *context)
{
    (void)context;
    atomic_fetch_add(&wakes, 1);
}

static cddp_status open_carrier(cddp_group *among, uint32_t timeout_ms, struct cddpi_carrier **out)
{
    static struct cddpi_exchange exchange;
    struct cddpi_carrier_params params = {.rank = cddp_group_rank(among),
                                          .world_size = cddp_group_world_size(among),
                                          .host_of = numbers,
                                          .leaders = numbers,
                                          .host_count = cddp_group_world_size(among),
                                          .job = "test",
                                          .token = "a secret of this test, and long",
                                          .timeout_ms = timeout_ms,
                                          .exchange = &exchange,
                                          .wake = wake};

    exchange = (struct cddpi_exchange){
        .context = among, .world_size = params.world_size, .all_gather = gather};
    return ops->open(&params, out);
}

/* Byte @p i of what @p from sends to @p to. */
static unsigned char content(int from, int to, uint32_t tag, size_t i)
{
    return (unsigned char)((size_t)(from * 31 + to * 7) + tag * 13 + i + (i >> 8) * 5);
}

static void advance(struct cddpi_carrier *carrier, const struct cddpi_transfer *transfers, int n)
{
    int64_t deadline_ns = cddpi_deadline_ns(TIMEOUT_MS);
    bool all;

    do {
        bool any;

        MUST(ops->progress(carrier, &any) == CDDP_OK);
        all = true;
        for (int i = 0; i < n; i++) {
            all = all && transfers[i].is_done;
        }
        MUST(cddpi_now_ns() < deadline_ns);
        if (!any) {
            (void)nanosleep(&(struct timespec){0, 100000}, NULL);
        }
    } while (!all);
}

/* Messages of all sizes in both directions and channels between all ranks, with different tags and
 * all at once; receives are started in another order than sends. */
static void exchange_all(cddp_group *among, struct cddpi_carrier *carrier)
{
    static const size_t sizes[] = {0, 1, 7, 4096, 100000, 3 << 20};
    enum { SIZES = 6, MOST = MOST_RANKS * SIZES * CDDPI_NET_CHANNELS * 2 };
    static struct cddpi_transfer transfers[MOST];
    int rank = cddp_group_rank(among);
    int n = 0;

    memset(transfers, 0, sizeof transfers);
    for (int way = 0; way < 2; way++) {
        for (int peer = 0; peer < cddp_group_world_size(among); peer++) {
            for (int k = 0; k < SIZES * CDDPI_NET_CHANNELS && peer != rank; k++) {
                int at = way == 0 ? k : SIZES * CDDPI_NET_CHANNELS - 1 - k;
                struct cddpi_transfer *t = &transfers[n++];
                unsigned char *data;

                t->peer = peer;
                t->channel = at % 2 == 0 ? CDDPI_NET_COLLECTIVES : CDDPI_NET_MESSAGES;
                t->tag = at / 2 == SIZES - 1 ? (1u << CDDPI_NET_TAG_LOW_BITS) - 1
                                             : (uint32_t)at / 2;
                t->is_send = (way + rank) % 2 == 0;
                t->bytes = sizes[at / 2];
                t->cut_bytes = at / 2 % 2 == 0 ? 0 : 32768;
                t->data = data = t->bytes > 0 ? malloc(t->bytes) : NULL;
                MUST(data != NULL || t->bytes == 0);
                for (size_t i = 0; t->is_send && i < t->bytes; i++) {
                    data[i] = content(rank, peer, t->tag + t->channel, i);
                }
                MUST(ops->start(carrier, t) == CDDP_OK);
            }
        }
    }
    advance(carrier, transfers, n);
    for (int k = 0; k < n; k++) {
        const struct cddpi_transfer *t = &transfers[k];
        const unsigned char *data = t->data;

        for (size_t i = 0; !t->is_send && i < t->bytes; i++) {
            MUST(data[i] == content(t->peer, rank, t->tag + t->channel, i));
        }
        free(t->data);
    }
}

static void transfers(void)
{
    struct cddpi_carrier *first;
    struct cddpi_carrier *second;
    char text[256] = "rank 1 did not come: ";
    int peer = (cddp_group_rank(group) + 1) % cddp_group_world_size(group);

    MUST(open_carrier(group, TIMEOUT_MS, &first) == CDDP_OK);
    MUST(open_carrier(group, TIMEOUT_MS, &second) == CDDP_OK); /* two groups of one process */
    exchange_all(group, first);
    exchange_all(group, second);
    exchange_all(group, first);
    MUST(ops->check(first) == CDDP_OK);
    MUST(!ops->aborted(first, &(struct cddpi_failure){0}));
    MUST(ops->descriptor(first) == -1);
    ops->prepare_sleep(first);
    ops->describe(first, peer, text, sizeof text);
    MUST(strncmp(text, "rank 1 did not come: rank ", 26) == 0);
    MUST(strstr(text, ", which sent its last message by MPI ") != NULL);
    ops->close(first);
    exchange_all(group, second);
    ops->close(second);
}

/* A part of the group, in another order. */
static void parts(void)
{
    struct cddpi_carrier *carrier;
    cddp_group *part;
    int rank = cddp_group_rank(group);

    MUST(cddp_group_split(group, rank % 2, -rank, &part) == CDDP_OK);
    MUST(open_carrier(part, TIMEOUT_MS, &carrier) == CDDP_OK);
    exchange_all(part, carrier);
    ops->close(carrier);
    cddp_group_destroy(part);
}

/* The highest rank aborts; all others learn why, in its words. */
static void aborts(void)
{
    struct cddpi_failure failure = {.status = CDDP_ERR_IO, .rank = -1, .culprit = 2};
    int64_t deadline_ns = cddpi_deadline_ns(TIMEOUT_MS);
    struct cddpi_carrier *carrier;
    struct cddpi_failure heard;
    bool any;

    snprintf(failure.text, sizeof failure.text, "the disk is full");
    snprintf(failure.operation, sizeof failure.operation, "all_reduce #3");
    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    if (cddp_group_rank(group) == cddp_group_world_size(group) - 1) {
        ops->abort(carrier, &failure);
        ops->abort(carrier, &failure);
        MUST(atomic_load(&wakes) == 1);
        MUST(ops->progress(carrier, &any) == CDDP_OK);
    } else {
        while (!ops->aborted(carrier, &heard)) {
            MUST(cddpi_now_ns() < deadline_ns);
            MUST(ops->progress(carrier, &any) == CDDP_OK);
        }
        MUST(heard.status == CDDP_ERR_IO && heard.culprit == 2);
        printf("rank %d heard of %s: %s\n", cddp_group_rank(group), heard.operation, heard.text);
    }
    fflush(stdout);
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
    ops->forget(carrier);
    ops->close(carrier);
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
}

/* What nobody sends can be forgotten, and its memory goes. */
static void forgets(void)
{
    struct cddpi_transfer t = {.peer = cddp_group_rank(group) ^ 1, .tag = 5, .bytes = 1 << 20};
    struct cddpi_carrier *carrier;
    bool any;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    t.data = malloc(t.bytes);
    MUST(ops->start(carrier, &t) == CDDP_OK);
    MUST(ops->progress(carrier, &any) == CDDP_OK && !any && !t.is_done);
    MUST(ops->forget(carrier));
    free(t.data);
    ops->close(carrier);
    printf("rank %d forgot\n", cddp_group_rank(group));
    fflush(stdout);
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
}

/* What nobody receives MPI does not give back: that is told, so that its memory stays. */
static void lends(void)
{
    static unsigned char data[8 << 20];
    struct cddpi_transfer t = {.peer = cddp_group_rank(group) ^ 1,
                               .tag = 5,
                               .is_send = true,
                               .data = data,
                               .bytes = sizeof data};
    struct cddpi_carrier *carrier;
    bool any;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    MUST(ops->start(carrier, &t) == CDDP_OK);
    MUST(ops->progress(carrier, &any) == CDDP_OK && !any && !t.is_done);
    MUST(!ops->forget(carrier));
    printf("rank %d knows that its message is still under way\n", cddp_group_rank(group));
    fflush(stdout);
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
}

/* A message of another size than was expected, which the contract forbids. */
static void mismatches(void)
{
    int rank = cddp_group_rank(group);
    struct cddpi_transfer t = {.peer = rank ^ 1, .tag = 5, .is_send = rank == 0};
    struct cddpi_carrier *carrier;
    cddp_status status = CDDP_OK;
    bool any;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    t.bytes = rank == 0 ? 100 : 50;
    t.data = malloc(t.bytes);
    MUST(t.data != NULL);
    memset(t.data, 1, t.bytes);
    MUST(ops->start(carrier, &t) == CDDP_OK);
    while (status == CDDP_OK && !t.is_done) {
        status = ops->progress(carrier, &any);
    }
    if (rank == 1) {
        MUST(status == CDDP_ERR_MISMATCH && ops->check(carrier) == CDDP_ERR_MISMATCH);
        printf("rank 1: %s; culprit %d\n", cddp_last_error(), cddpi_error_culprit());
        fflush(stdout);
    }
    ops->forget(carrier);
    free(t.data);
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
}

/* What is cut goes in messages of so many bytes, in order: rank 1 takes them one by one. */
static void cuts(void)
{
    enum { CUT = 60000, MESSAGES = 40 };
    static unsigned char data[CUT * MESSAGES + 1000];
    int rank = cddp_group_rank(group);
    struct cddpi_transfer t = {.peer = rank ^ 1,
                               .tag = 5,
                               .is_send = rank == 0,
                               .data = data,
                               .bytes = sizeof data,
                               .cut_bytes = CUT};
    struct cddpi_carrier *carrier;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    for (size_t i = 0; rank == 0 && i < sizeof data; i++) {
        data[i] = content(0, 1, 5, i);
    }
    for (size_t from = 0; rank == 1 && from < sizeof data; from += CUT) {
        t.data = data + from;
        t.bytes = from < (size_t)CUT * MESSAGES ? CUT : sizeof data - from;
        MUST(ops->start(carrier, &t) == CDDP_OK);
        advance(carrier, &t, 1);
    }
    if (rank == 0) {
        MUST(ops->start(carrier, &t) == CDDP_OK);
        advance(carrier, &t, 1);
    }
    for (size_t i = 0; i < sizeof data; i++) {
        MUST(data[i] == content(0, 1, 5, i));
    }
    ops->close(carrier);
}

/* Rank 1 dies while the others wait for it. */
static void dies(void)
{
    struct cddpi_transfer t = {.peer = 1, .tag = 5, .bytes = 100};
    struct cddpi_carrier *carrier;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    if (cddp_group_rank(group) == 1) {
        (void)raise(SIGKILL);
    }
    t.data = malloc(t.bytes);
    MUST(ops->start(carrier, &t) == CDDP_OK);
    advance(carrier, &t, 1);
}

/* Rank 1 fails, by itself, when MPI runs already: mpirun has to end the others. */
static void fails(void)
{
    struct cddpi_carrier *carrier;

    MUST(open_carrier(group, TIMEOUT_MS, &carrier) == CDDP_OK);
    ops->close(carrier);
    if (cddp_group_rank(group) == 1) {
        exit(3);
    }
}

/* Rank 1 does not start MPI, which the others wait for in vain. */
static void misses(void)
{
    struct cddpi_carrier *carrier;

    if (cddp_group_rank(group) != 1) {
        cddp_group *part;

        MUST(cddp_group_split(group, 0, 0, &part) == CDDP_OK);
        MUST(open_carrier(part, 1000, &carrier) == CDDP_ERR_TIMEOUT);
        printf("%s\n", cddp_last_error());
        fflush(stdout);
    } else {
        MUST(cddp_group_split(group, -1, 0, &(cddp_group *){NULL}) == CDDP_OK);
    }
    MUST(cddp_barrier(group, NULL) == CDDP_OK);
}

#ifdef OWNS_MPI
/* Each half of the world, in reverse order, is a group of its own, of those ranks. */
static void halves(void)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    cddp_group *half;
    MPI_Comm comm;
    int32_t sum = 0;
    int32_t expected = 0;
    int32_t rank = cddp_group_rank(group);
    int size = cddp_group_world_size(group);

    MUST(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &comm) == MPI_SUCCESS);
    MUST(cddp_group_create_from_mpi(comm, NULL, &half) == CDDP_OK);
    MUST(MPI_Comm_free(&comm) == MPI_SUCCESS);
    for (int r = rank % 2; r < size; r += 2) {
        expected += r;
    }
    MUST(cddp_group_world_size(half) == (size + 1 - rank % 2) / 2);
    MUST(cddp_group_rank(half) == cddp_group_world_size(half) - 1 - rank / 2);
    if (getenv("CDDP_HOST_ID") == NULL) { /* on one host */
        MUST(cddp_group_get_info(half, &info) == CDDP_OK && info.local_rank == info.rank);
        MUST(info.local_world_size == info.world_size);
    }
    MUST(cddp_all_reduce(half, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
    MUST(sum == expected);
    cddp_group_destroy(half);
}

/* The program calls MPI while the carrier does. */
static void both(void)
{
    struct cddpi_carrier *carrier;
    cddp_group *part;
    int rank = cddp_group_rank(group);
    int sum = 0;
    MPI_Request request;

    MUST(cddp_group_split(group, rank % 2, rank, &part) == CDDP_OK);
    MUST(open_carrier(part, TIMEOUT_MS, &carrier) == CDDP_OK);
    MUST(MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    exchange_all(part, carrier);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MUST(sum == cddp_group_world_size(group) * (cddp_group_world_size(group) - 1) / 2);
    ops->close(carrier);
    cddp_group_destroy(part);
}

/* MPI was started for fewer threads than a group needs between machines. */
static void refuses(void)
{
    printf("refused: %s\n", cddp_last_error());
}

/* MPI was started for one thread at a time, which is this one. */
static void serializes(void)
{
    int32_t rank = cddp_group_rank(group);
    int32_t sum = 0;
    int level;

    MUST(MPI_Query_thread(&level) == MPI_SUCCESS);
    if (level == MPI_THREAD_SERIALIZED && getenv("CDDP_COMM_THREAD") == NULL) {
        refuses();
        return;
    }
    MUST(ops != NULL && !cddpi_group_has_thread(group));
    for (int i = 0; i < 20; i++) {
        MUST(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
        MUST(sum == cddp_group_world_size(group) * (cddp_group_world_size(group) - 1) / 2);
        MUST(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    printf("rank %d calls MPI between calls of cddp\n", (int)rank);
}

static cddp_status create_group(void)
{
    return cddp_group_create_from_mpi(MPI_COMM_WORLD, NULL, &group);
}
#else
static cddp_status create_group(void)
{
    return cddp_group_create(NULL, &group);
}
#endif

/* The group itself, whose ranks are on hosts that the carrier connects, is broken by rank 1. */
static void breaks(void)
{
    int rank = cddp_group_rank(group);
    float x = 1;
    cddp_status status = CDDP_OK;

    for (int i = 0; i < 10 && status == CDDP_OK; i++) {
        status = cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_MEAN, NULL);
    }
    MUST(status == CDDP_OK);
    if (rank == 1) {
        cddp_group_abort(group, "rank 1 has had enough");
    }
    status = cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_SUM, NULL);
    MUST(status != CDDP_OK);
    printf("rank %d ends: %s\n", rank, cddp_last_error());
    fflush(stdout);
    (void)nanosleep(&(struct timespec){2, 0}, NULL); /* mpirun ends all when the first has gone */
}

/* Rank 1 is stopped, and says before which process is to be continued. */
static void stands(void)
{
    float x = 1;

    MUST(cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    if (cddp_group_rank(group) == 1) {
        FILE *file = fopen("pid", "w");

        MUST(file != NULL && fprintf(file, "%d\n", (int)getpid()) > 0 && fclose(file) == 0);
        (void)raise(SIGSTOP);
    }
    MUST(cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
}

/* Two ranks wait for each other until the way between their hosts is gone. */
/* Also says its end in the file "ended-RANK": a cable that is out carries no output. */
static void waits(void)
{
    int rank = cddp_group_rank(group);
    float x = 1;
    char name[32];
    FILE *file;

    MUST(cddp_all_reduce(group, &x, &x, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    printf("rank %d waits\n", rank);
    fflush(stdout);
    MUST(cddp_recv(group, &x, 1, CDDP_F32, 1 - rank, NULL) == CDDP_ERR_PEER);
    MUST(cddpi_error_culprit() == 1 - rank);
    printf("rank %d ends: %s\n", rank, cddp_last_error());
    fflush(stdout);
    snprintf(name, sizeof name, "ended-%d", rank);
    file = fopen(name, "we");
    MUST(file != NULL && fputs("ended\n", file) >= 0 && fclose(file) == 0);
}

/* Which carrier it would be, for data between hosts. */
static void chooses(void)
{
    const struct cddpi_carrier_ops *carrier = cddpi_carrier_choose(NULL);

    MUST(carrier != NULL);
    cddpi_carrier_warn(carrier);
    printf("rank %d takes %s\n", cddp_group_rank(group), carrier->name);
}

static const struct action {
    const char *name;
    void (*run)(void);
} actions[] = {
    {"transfers", transfers}, {"parts", parts},
    {"aborts", aborts},       {"forgets", forgets},
    {"lends", lends},         {"mismatches", mismatches},
    {"dies", dies},           {"fails", fails},
    {"cuts", cuts},           {"misses", misses},
    {"breaks", breaks},       {"stands", stands},
    {"waits", waits},         {"chooses", chooses},
#ifdef OWNS_MPI
    {"halves", halves},       {"both", both},
    {"refuses", refuses},     {"serializes", serializes},
#endif
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(argv[1], actions[i].name) == 0) {
#ifdef OWNS_MPI
            int provided;
            int wanted = strcmp(argv[1], "refuses") == 0      ? MPI_THREAD_FUNNELED
                         : strcmp(argv[1], "serializes") == 0 ? MPI_THREAD_SERIALIZED
                                                              : MPI_THREAD_MULTIPLE;

            MUST(MPI_Init_thread(&argc, &argv, wanted, &provided) == MPI_SUCCESS);
#endif
            MUST(create_group() == CDDP_OK);
            ops = cddpi_carrier_choose("mpi");
            MUST(ops != NULL || strcmp(argv[1], "refuses") == 0 ||
                 strcmp(argv[1], "serializes") == 0);
            actions[i].run();
            cddp_group_destroy(group);
#ifdef OWNS_MPI
            MPI_Finalize();
#endif
            return 0;
        }
    }
    fprintf(stderr, "net_mpi_rank: what should it do?\n");
    return 2;
}
