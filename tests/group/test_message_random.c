/* test_message_random.c - messages drawn at random: between which ranks, types, sizes around those
 * of rings and pieces, the order in which a rank starts and waits for them, and collectives between
 * them. Every message arrives whole, in its turn, and nothing is written behind it. */
#include "support/group_cases.h"

enum { MOST = 8, MESSAGES = 24, GUARD = 64, PATTERN = 0x5a };

struct job {
    char store[256];   /* empty: no net, but group_from_seed() */
    const char *hosts; /* by rank: a digit */
    const char *thread;
    struct group_seed seed;
    uint64_t draws;
    int steps;
};

/* Ranks draw the same numbers from the first, each its own from the second. */
static uint64_t shared_state, own_state;

static size_t draw_from(uint64_t *state, size_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (size_t)(*state >> 11) % below;
}

static size_t draw(size_t below)
{
    return draw_from(&shared_state, below);
}

struct message {
    int from, to;
    cddp_type type;
    size_t count;
    char *memory; /* with guards, of the sender or the receiver */
    cddp_work *work;
};

static void draw_message(struct message *out, int n)
{
    static const cddp_type all[] = {CDDP_F32, CDDP_F64, CDDP_BF16, CDDP_I64, CDDP_U8};
    static const size_t edges[] = {16,
                                   4096,
                                   SHM_RING_BYTES / 4,
                                   SHM_RING_BYTES / 2,
                                   SHM_RING_BYTES,
                                   SHM_CHUNK_BYTES,
                                   2 * SHM_RING_BYTES};
    size_t bytes;

    *out = (struct message){.type = all[draw(5)]};
    out->from = (int)draw((size_t)n);
    out->to = (out->from + 1 + (int)draw((size_t)n - 1)) % n;
    bytes = edges[draw(draw(3) == 0 ? 7 : 3)];
    out->count = bytes / cddp_type_bytes(out->type) + draw(5) - (bytes > 64 ? 2 : 0);
    out->count = draw(12) == 0 ? draw(3) : out->count;
}

static size_t bytes_of(const struct message *message)
{
    return message->count * cddp_type_bytes(message->type);
}

static void fill(const struct message *message, size_t index, void *out)
{
    fill_rank(out, message->from, index * 131, message->count, message->type);
}

static bool start(cddp_group *group, struct message *message, size_t index, int rank)
{
    size_t bytes = bytes_of(message);
    bool sends = message->from == rank;
    char *data;

    if (!sends && message->to != rank) {
        return true;
    }
    message->memory = malloc(bytes + 2 * GUARD);
    if (message->memory == NULL) {
        return false;
    }
    memset(message->memory, PATTERN, bytes + 2 * GUARD);
    data = message->memory + GUARD;
    if (sends) {
        fill(message, index, data);
    }
    return (sends
                ? cddp_send(group, data, message->count, message->type, message->to, &message->work)
                : cddp_recv(group, data, message->count, message->type, message->from,
                            &message->work)) == CDDP_OK;
}

static bool is_whole(const struct message *message, size_t index)
{
    size_t bytes = bytes_of(message);
    char *right = malloc(bytes + 1);
    bool same;

    fill(message, index, right);
    same = memcmp(message->memory + GUARD, right, bytes) == 0;
    free(right);
    for (size_t i = 0; i < GUARD; i++) {
        same = same && message->memory[i] == PATTERN &&
               message->memory[GUARD + bytes + i] == PATTERN;
    }
    return same;
}

static int finish(struct message *message, size_t index, int rank, const struct job *job)
{
    if (message->work == NULL) {
        return 0;
    }
    CHECK(cddp_work_wait(message->work) == CDDP_OK);
    cddp_work_destroy(message->work);
    if (!is_whole(message, index)) {
        fprintf(stderr,
                "rank %d on hosts %s, draws %llu: message %zu, %s x %zu from %d to %d, %s\n", rank,
                job->hosts, (unsigned long long)job->draws, index, cddp_type_name(message->type),
                message->count, message->from, message->to, "differs, or more was written");
        return 1;
    }
    free(message->memory);
    message->work = NULL;
    return 0;
}

/* A collective between the messages. */
static int sum(cddp_group *group, int n)
{
    double value = 1;

    CHECK(cddp_all_reduce(group, &value, &value, 1, CDDP_F64, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(value == n);
    return 0;
}

static int drawing_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    cddp_group *group;

    if (job->thread != NULL) {
        setenv("CDDP_COMM_THREAD", job->thread, 1);
    }
    CHECK((job->store[0] == '\0' ? group_from_seed(&job->seed, rank, n, SUPPORT_TIMEOUT_MS, &group)
                                 : group_join_on(job->hosts[rank] - '0', job->store, rank, n,
                                                 SUPPORT_TIMEOUT_MS, &group)) == CDDP_OK);
    shared_state = job->draws;
    own_state = job->draws + (uint64_t)rank + 1;
    for (int step = 0; step < job->steps; step++) {
        struct message messages[MESSAGES];
        size_t count = 1 + draw(MESSAGES);
        size_t between = draw(2 * count);
        size_t first;

        for (size_t i = 0; i < count; i++) {
            draw_message(&messages[i], n);
        }
        for (size_t i = 0; i < count; i++) {
            bool done;

            CHECK(start(group, &messages[i], i, rank));
            CHECK(messages[i].work == NULL || draw_from(&own_state, 3) > 0 ||
                  cddp_work_test(messages[i].work, &done) == CDDP_OK);
            CHECK(i != between || sum(group, n) == 0);
        }
        first = draw_from(&own_state, count);
        for (size_t i = 0; i < count; i++) {
            size_t index = (first + i) % count;

            CHECK(finish(&messages[index], index, rank, job) == 0);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

/* By hand, $TEST_DRAWS makes other draws, and $TEST_STEPS more. */
static void run(const char *hosts, bool is_net, const char *thread)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    const char *steps = getenv("TEST_STEPS");
    const char *draws = getenv("TEST_DRAWS");
    static uint64_t number;
    struct job job = {.hosts = hosts, .thread = thread, .steps = 25};

    job.draws = (88172645463325252u + (draws != NULL ? strtoull(draws, NULL, 10) : 1)) *
                (2 * ++number + 1);
    job.steps = steps != NULL ? atoi(steps) : job.steps;
    if (is_net) {
        snprintf(job.store, sizeof job.store, "file://%s/cddp-test-messages-%d-%d", folder,
                 (int)getpid(), (int)number);
    }
    assert_int_equal(group_seed_create((int)strlen(hosts), &job.seed), CDDP_OK);
    assert_int_equal(run_ranks((int)strlen(hosts), drawing_rank, &job), 0);
    close(job.seed.fd);
}

static void messages_on_one_host_arrive_whole(void **state)
{
    (void)state;
    run("00", false, "0");
    run("000", false, "1");
    run("00000", false, NULL);
}

static void so_do_those_between_hosts(void **state)
{
    (void)state;
    run("01", true, "0");
    run("0011", true, "1");
    run("01201", true, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_on_one_host_arrive_whole),
        cmocka_unit_test(so_do_those_between_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
