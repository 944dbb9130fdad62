/* test_send_buffers.c - large messages between ranks of one machine while the sender does other
 * work: they are in memory that both ranks share (src/runtime/group/shm/shm_message.c). */
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>

enum { RING = SHM_RING_BYTES, PIECE = SHM_CHUNK_BYTES, ALL = SHM_SEND_BUFFERS * SHM_CHUNK_BYTES };

struct job {
    struct group_seed seed;
    int told[2];       /* a pipe: ranks tell rank 0 that they are through */
    bool group_memory; /* that is sent */
    bool dies;
};

/* The first would fill the ring. */
static const size_t sizes[] = {RING - 16,
                               1,
                               16,
                               RING - 32,
                               RING - 15,
                               RING + 1,
                               1,
                               3 * PIECE + 13,
                               7,
                               PIECE + 5,
                               12 * PIECE,
                               0,
                               2 * PIECE - 1,
                               PIECE,
                               RING / 2 + 3,
                               5 * PIECE - 16};
enum { MESSAGES = sizeof sizes / sizeof *sizes, MOST = 12 * PIECE };

static void run_with(rank_fn body, struct job job, int n, int *statuses)
{
    setenv("CDDP_COMM_THREAD", "0", 1);
    assert_int_equal(group_seed_create(n, &job.seed), CDDP_OK);
    assert_int_equal(pipe(job.told), 0);
    if (statuses != NULL) {
        (void)run_ranks_status(n, body, &job, statuses);
    } else {
        assert_int_equal(run_ranks(n, body, &job), 0);
    }
    close(job.told[0]);
    close(job.told[1]);
    close(job.seed.fd);
    unsetenv("CDDP_COMM_THREAD");
}

enum { PART = 4096 };

/* The bytes of a message from @p at on; returns how many. */
PURE static size_t make_part(unsigned char *out, int message, size_t at, size_t bytes)
{
    size_t count = bytes - at < PART ? bytes - at : PART;

    for (size_t i = at; i < at + count; i++) {
        *out++ = (unsigned char)(i * 131 + (i >> 9) + (size_t)message * 29);
    }
    return count;
}

static void fill(unsigned char *data, int message, size_t bytes)
{
    unsigned char part[PART];

    for (size_t at = 0; at < bytes; at += PART) {
        memcpy(data + at, part, make_part(part, message, at, bytes));
    }
}

static bool holds(const unsigned char *data, int message, size_t bytes)
{
    unsigned char part[PART];

    for (size_t at = 0; at < bytes; at += PART) {
        if (memcmp(data + at, part, make_part(part, message, at, bytes)) != 0) {
            fprintf(stderr, "message %d: a byte from %zu of %zu on differs\n", message, at, bytes);
            return false;
        }
    }
    return true;
}

/* Outside of cddp: wait until @p count ranks have told. */
static bool await_told(const struct job *job, int count)
{
    for (int i = 0; i < count; i++) {
        struct pollfd one = {.fd = job->told[0], .events = POLLIN};
        char byte;

        if (poll(&one, 1, SUPPORT_TIMEOUT_MS) != 1 || read(job->told[0], &byte, 1) != 1) {
            return false;
        }
    }
    return true;
}

static bool tell(const struct job *job)
{
    return write(job->told[1], "", 1) == 1;
}

static int receive_all(cddp_group *group, unsigned char *memory)
{
    for (int m = 0; m < MESSAGES; m++) {
        memset(memory, 0, sizes[m] + 32);
        CHECK(cddp_recv(group, memory + m % 16, sizes[m], CDDP_U8, 0, NULL) == CDDP_OK);
        CHECK(holds(memory + m % 16, m, sizes[m]));
        CHECK(memory[m % 16 + sizes[m]] == 0);
    }
    return 0;
}

/* Rank 0 starts all messages to all others, and calls nothing before they have come. */
static int absent_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    unsigned char *memory[MESSAGES];
    cddp_work *works[MESSAGES * 8];
    cddp_group *group;

    CHECK(group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int m = 0; m < MESSAGES; m++) {
        void *shared = NULL;

        if (job->group_memory) {
            CHECK(cddp_group_alloc(group, sizes[m] + 32, 0, &shared) == CDDP_OK);
        }
        memory[m] = shared != NULL ? shared : malloc(MOST + 32);
        CHECK(memory[m] != NULL);
    }
    for (int round = 0; round < 3; round++) { /* send buffers are used again */
        if (rank != 0) {
            unsigned char *own = malloc(MOST + 32);

            CHECK(own != NULL && receive_all(group, own) == 0);
            free(own);
            CHECK(tell(job));
        }
        for (int m = 0; rank == 0 && m < MESSAGES; m++) {
            fill(memory[m] + m, m, sizes[m]);
            for (int r = 1; r < n; r++) {
                CHECK(cddp_send(group, memory[m] + m, sizes[m], CDDP_U8, r, &works[m * n + r]) ==
                      CDDP_OK);
            }
        }
        if (rank == 0) {
            CHECK(await_told(job, n - 1));
            for (int m = 0; m < MESSAGES; m++) {
                for (int r = 1; r < n; r++) {
                    CHECK(cddp_work_wait(works[m * n + r]) == CDDP_OK);
                    cddp_work_destroy(works[m * n + r]);
                }
            }
        }
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    }
    for (int m = 0; m < MESSAGES; m++) {
        if (job->group_memory) {
            cddp_group_free(group, memory[m]);
        } else {
            free(memory[m]);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

static void messages_come_while_their_sender_does_something_else(void **state)
{
    static const int ranks[] = {2, 3, 5};

    (void)state;
    for (int i = 0; i < 6; i++) {
        run_with(absent_rank, (struct job){.group_memory = i >= 3}, ranks[i % 3], NULL);
    }
}

/* Messages that are waited for go through the ring, between others that are not. */
static int mixed_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    unsigned char *memory = malloc(MOST + 32);
    cddp_group *group;

    CHECK(memory != NULL);
    CHECK(group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    for (int i = 0; rank == 0 && i < MESSAGES * (n - 1); i++) {
        int m = i % MESSAGES;
        bool waits = (i + i / MESSAGES) % 3 == 0;
        cddp_work *work = NULL;

        fill(memory, m, sizes[m]);
        CHECK(cddp_send(group, memory, sizes[m], CDDP_U8, 1 + i / MESSAGES, waits ? NULL : &work) ==
              CDDP_OK);
        if (work != NULL) {
            CHECK(cddp_work_wait(work) == CDDP_OK);
            cddp_work_destroy(work);
        }
        memset(memory, 255, sizes[m]); /* ours again, whether it has been received or not */
    }
    CHECK(rank == 0 || receive_all(group, memory) == 0);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    free(memory);
    return 0;
}

static void messages_of_both_kinds_keep_their_order(void **state)
{
    (void)state;
    run_with(mixed_rank, (struct job){.dies = false}, 2, NULL);
    run_with(mixed_rank, (struct job){.dies = false}, 3, NULL);
    run_with(mixed_rank, (struct job){.dies = false}, 5, NULL);
}

static void a_limit_of_file_sizes_leaves_room_for_fewer(void **state)
{
    static const rlim_t limits[] = {3 << 20, 12 << 20, 30 << 20};
    struct rlimit before;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 3; i++) { /* the first leaves none */
        struct rlimit limit = {limits[i], before.rlim_max};

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        run_with(mixed_rank, (struct job){.dies = false}, 2, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    }
}

/* Rank 1 takes nothing of more than send buffers hold, and rank 2 gets its message all the same. */
static int greedy_rank(int rank, int n, void *argument)
{
    enum { BIG = ALL + 9 * PIECE + 5 };
    const struct job *job = argument;
    unsigned char *memory = malloc(BIG);
    cddp_work *works[2];
    cddp_group *group;

    CHECK(memory != NULL);
    CHECK(group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == 0) {
        fill(memory, 3, BIG);
        CHECK(cddp_send(group, memory, BIG, CDDP_U8, 1, &works[0]) == CDDP_OK);
        CHECK(cddp_send(group, memory, MOST + 3, CDDP_U8, 2, &works[1]) == CDDP_OK);
        CHECK(cddp_work_wait(works[1]) == CDDP_OK);
        CHECK(await_told(job, 1));
    } else if (rank == 2) {
        CHECK(cddp_recv(group, memory, MOST + 3, CDDP_U8, 0, NULL) == CDDP_OK);
        CHECK(holds(memory, 3, MOST + 3));
        CHECK(tell(job));
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    if (rank == 1) {
        CHECK(cddp_recv(group, memory, BIG, CDDP_U8, 0, NULL) == CDDP_OK);
        CHECK(holds(memory, 3, BIG));
    }
    for (int i = 0; rank == 0 && i < 2; i++) {
        CHECK(cddp_work_wait(works[i]) == CDDP_OK);
        cddp_work_destroy(works[i]);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    free(memory);
    return 0;
}

static void a_peer_that_takes_nothing_keeps_no_other_waiting(void **state)
{
    (void)state;
    run_with(greedy_rank, (struct job){.dies = false}, 3, NULL);
}

/* Rank 0 leaves, or dies, with messages under way: what it had begun to the end arrives. */
static int gone_rank(int rank, int n, void *argument)
{
    enum { BIG = ALL + 9 * PIECE };
    const struct job *job = argument;
    bool dies = job->dies;
    unsigned char *memory = malloc(BIG);
    cddp_work *works[2];
    cddp_group *group;

    CHECK(memory != NULL);
    CHECK(group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == 0) {
        fill(memory, 5, BIG);
        CHECK(cddp_send(group, memory, MOST, CDDP_U8, 1, &works[0]) == CDDP_OK);
        CHECK(cddp_send(group, memory, BIG, CDDP_U8, 1, &works[1]) == CDDP_OK);
        CHECK(cddp_work_wait(works[0]) == CDDP_OK);
        CHECK(tell(job));
        if (dies) {
            raise(SIGKILL);
        }
    } else {
        CHECK(await_told(job, 1));
        support_sleep_ms(50);
        CHECK(cddp_recv(group, memory, MOST, CDDP_U8, 0, NULL) == CDDP_OK);
        CHECK(holds(memory, 5, MOST));
        CHECK(failure_is(cddp_recv(group, memory, BIG, CDDP_U8, 0, NULL), CDDP_ERR_PEER, 1, 0,
                         "recv #2"));
    }
    cddp_group_destroy(group);
    if (rank == 0) {
        CHECK(cddp_work_wait(works[1]) != CDDP_OK);
        cddp_work_destroy(works[0]);
        cddp_work_destroy(works[1]);
    }
    free(memory);
    return 0;
}

static void what_a_rank_sent_arrives_although_it_has_gone(void **state)
{
    int statuses[2] = {0};

    (void)state;
    run_with(gone_rank, (struct job){.dies = false}, 2, NULL);
    run_with(gone_rank, (struct job){.dies = true}, 2, statuses);
    assert_true(WIFSIGNALED(statuses[0]));
    assert_int_equal(statuses[1], 0);
}

/* Rank 1 dies while rank 0 waits for send buffers. */
static int dead_receiver_rank(int rank, int n, void *argument)
{
    enum { BIG = ALL + 9 * PIECE };
    const struct job *job = argument;
    unsigned char *memory = calloc(BIG, 1);
    cddp_work *work;
    cddp_group *group;

    CHECK(memory != NULL);
    CHECK(group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    if (rank == 1) {
        CHECK(cddp_recv(group, memory, MOST, CDDP_U8, 0, NULL) == CDDP_OK);
        support_sleep_ms(50);
        raise(SIGKILL);
    }
    CHECK(cddp_send(group, memory, MOST, CDDP_U8, 1, NULL) == CDDP_OK);
    CHECK(cddp_send(group, memory, BIG, CDDP_U8, 1, &work) == CDDP_OK);
    CHECK(failure_is(cddp_work_wait(work), CDDP_ERR_PEER, 0, 1, "send"));
    cddp_work_destroy(work);
    cddp_group_destroy(group);
    free(memory);
    return 0;
}

static void a_sender_is_told_that_its_receiver_died(void **state)
{
    int statuses[2] = {0};

    (void)state;
    run_with(dead_receiver_rank, (struct job){.dies = false}, 2, statuses);
    assert_int_equal(statuses[0], 0);
    assert_true(WIFSIGNALED(statuses[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_while_their_sender_does_something_else),
        cmocka_unit_test(messages_of_both_kinds_keep_their_order),
        cmocka_unit_test(a_limit_of_file_sizes_leaves_room_for_fewer),
        cmocka_unit_test(a_peer_that_takes_nothing_keeps_no_other_waiting),
        cmocka_unit_test(what_a_rank_sent_arrives_although_it_has_gone),
        cmocka_unit_test(a_sender_is_told_that_its_receiver_died),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
