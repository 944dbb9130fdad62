/* test_group_bootstrap.c - groups of processes that are already connected, here by a page of
 * memory; test_net_mpi and test_embed_mpi do the same with MPI. */
#include "base/clock.h"
#include "group/group.h"
#include "group/join/user_store.h"
#include "group/net/tcp/address.h"
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <cddp/group.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { MOST_RANKS = 4, MOST_BYTES = 8192 };

/* What the ranks share. */
struct table {
    _Atomic uint32_t came, round;
    unsigned char records[MOST_RANKS][MOST_BYTES];
    bool breaks;       /* the broadcast fails on all ranks */
    size_t other_at;   /* of what rank 0 sends, this byte is another; 0: none */
    bool in_broadcast; /* in the broadcast, not in the first gather */
    _Atomic bool told; /* the user's token was sent */
};

struct me {
    struct table *table;
    int rank;
    int world_size;
};

static bool barrier(struct me *me)
{
    uint32_t round = atomic_load(&me->table->round);
    int64_t deadline_ns = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS);

    if (atomic_fetch_add(&me->table->came, 1) + 1 == (uint32_t)me->world_size) {
        atomic_store(&me->table->came, 0);
        atomic_store(&me->table->round, round + 1);
        return true;
    }
    while (atomic_load(&me->table->round) == round) {
        if (cddpi_now_ns() > deadline_ns) {
            return false;
        }
        support_sleep_ms(1);
    }
    return true;
}

/* What the ranks send each other may be read by others. */
static void look(struct me *me, const void *data, size_t bytes)
{
    if (memmem(data, bytes, SUPPORT_TOKEN, strlen(SUPPORT_TOKEN)) != NULL) {
        atomic_store(&me->table->told, true);
    }
}

static void spoil(struct me *me, size_t head, size_t bytes, bool in_broadcast)
{
    const struct table *table = me->table;

    if (me->rank == 0 && table->other_at > 0 && table->in_broadcast == in_broadcast &&
        head + table->other_at < bytes) {
        me->table->records[0][head + table->other_at] ^= 0x40;
    }
}

static cddp_status all_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    struct me *me = state;

    if (bytes > MOST_BYTES) {
        return CDDP_ERR_FORMAT;
    }
    look(me, own, bytes);
    memcpy(me->table->records[me->rank], own, bytes);
    spoil(me, sizeof(int32_t), bytes, false);
    if (!barrier(me)) {
        return CDDP_ERR_TIMEOUT;
    }
    for (int r = 0; r < me->world_size; r++) {
        memcpy((char *)out_all + (size_t)r * bytes, me->table->records[r], bytes);
    }
    return barrier(me) ? CDDP_OK : CDDP_ERR_TIMEOUT;
}

static cddp_status broadcast(void *state, void *data, size_t bytes)
{
    struct me *me = state;

    if (me->table->breaks) {
        return me->rank == 0 ? cddp_fail(CDDP_ERR_IO, "the cable is out") : CDDP_ERR_IO;
    }
    if (bytes > MOST_BYTES) {
        return CDDP_ERR_FORMAT;
    }
    if (me->rank == 0) {
        look(me, data, bytes);
        memcpy(me->table->records[0], data, bytes);
        spoil(me, 0, bytes, true);
    }
    if (!barrier(me)) {
        return CDDP_ERR_TIMEOUT;
    }
    memcpy(data, me->table->records[0], bytes);
    return barrier(me) ? CDDP_OK : CDDP_ERR_TIMEOUT;
}

static cddp_bootstrap bootstrap_of(struct me *me)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;

    bootstrap.state = me;
    bootstrap.rank = me->rank;
    bootstrap.world_size = me->world_size;
    bootstrap.broadcast = broadcast;
    bootstrap.all_gather = all_gather;
    return bootstrap;
}

static struct table *table_create(void)
{
    struct table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(table != MAP_FAILED);
    return table;
}

static int join_rank(int rank, int n, void *argument)
{
    struct me me = {argument, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group *group;
    int32_t sum = 0;

    for (int i = 0; i < 2; i++) { /* left, and made anew */
        CHECK(cddp_group_create_by(&bootstrap, NULL, &group) == CDDP_OK);
        CHECK(cddp_group_rank(group) == rank && cddp_group_world_size(group) == n);
        CHECK(group_info(group).local_rank == rank && group_info(group).local_world_size == n);
        CHECK(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
        CHECK(sum == n * (n - 1) / 2);
        cddp_group_destroy(group);
    }
    return 0;
}

static void connected_processes_become_a_group_whatever_the_environment_says(void **state)
{
    struct table *table = table_create();

    (void)state;
    setenv("RANK", "17", 1); /* of a job that this one is a part of */
    setenv("WORLD_SIZE", "99", 1);
    for (int n = 1; n <= MOST_RANKS; n++) {
        assert_int_equal(run_ranks(n, join_rank, table), 0);
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    munmap(table, sizeof *table);
}

/* The ranks of @p argument that have the user's token: a bit each. */
struct tokens {
    struct table *table;
    unsigned who;
    bool encrypts;
};

static int token_rank(int rank, int n, void *argument)
{
    const struct tokens *tokens = argument;
    struct me me = {tokens->table, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    char all[MOST_RANKS][256];
    bool have_all = tokens->who == (1u << n) - 1;

    options.token = (tokens->who >> rank & 1) != 0 ? SUPPORT_TOKEN : "";
    if (tokens->encrypts) {
        setenv("CDDP_ENCRYPT", "1", 1);
    }
    if (tokens->encrypts && !have_all) {
        CHECK(failure_is(cddp_group_create_by(&bootstrap, &options, &group), CDDP_ERR_ARGUMENT, -1,
                         -1, ""));
        CHECK(last_error_has("would travel unencrypted. Set CDDP_TOKEN"));
        return 0;
    }
    CHECK(cddp_group_create_by(&bootstrap, &options, &group) == CDDP_OK);
    CHECK(cddp_all_gather(group, group->token, all, sizeof all[0], CDDP_U8, NULL) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(strcmp(all[r], all[0]) == 0 && strlen(all[r]) >= 32);
    }
    CHECK((strcmp(group->token, SUPPORT_TOKEN) == 0) == have_all);
    cddp_group_destroy(group);
    return 0;
}

static void a_token_of_the_users_is_never_sent(void **state)
{
    static const unsigned who[] = {7, 6, 3, 1, 0};

    (void)state;
    setenv("CDDP_LOG", "error", 1);
    for (int i = 0; i < 10; i++) {
        struct tokens tokens = {table_create(), who[i % 5], i >= 5};

        assert_int_equal(run_ranks(3, token_rank, &tokens), 0);
        assert_false(atomic_load(&tokens.table->told));
        munmap(tokens.table, sizeof *tokens.table);
    }
    unsetenv("CDDP_LOG");
}

static void the_token_of_a_groups_store_follows_from_the_jobs_and_tells_nothing_of_it(void **state)
{
    uint8_t nonces[2][CDDPI_NONCE_BYTES] = {{1}, {2}};
    char tokens[4][33];

    (void)state;
    cddpi_user_store_token(SUPPORT_TOKEN, nonces[0], tokens[0]);
    cddpi_user_store_token(SUPPORT_TOKEN, nonces[0], tokens[1]);
    cddpi_user_store_token(SUPPORT_TOKEN, nonces[1], tokens[2]);
    cddpi_user_store_token(SUPPORT_TOKEN ".", nonces[0], tokens[3]);
    assert_string_equal(tokens[0], tokens[1]);
    assert_string_not_equal(tokens[0], tokens[2]);
    assert_string_not_equal(tokens[0], tokens[3]);
    assert_int_equal(cddpi_token_check(tokens[0], "the store"), CDDP_OK);
}

/* With $CDDP_HOST_ID as on two hosts, so that the store is at all addresses. Where one transport
 * cannot connect those, that is said; the store has been reached by then. */
static int remote_rank(int rank, int n, void *argument)
{
    struct me me = {argument, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group *group = NULL;
    cddp_status status;

    support_setenv_number("CDDP_HOST_ID", rank % 2);
    status = cddp_group_create_by(&bootstrap, NULL, &group);
    if (status == CDDP_OK) {
        CHECK(group_info(group).local_rank == rank / 2);
        CHECK(group_info(group).local_world_size == (n + 1 - rank % 2) / 2);
    } else {
        CHECK(last_error_has("2 hosts"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void ranks_of_several_hosts_find_an_address_that_they_reach(void **state)
{
    struct tcp_offer own = {0};
    struct table *table;

    (void)state;
    if (cddpi_tcp_offer_make(&own) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        skip();
    }
    table = table_create();
    assert_int_equal(run_ranks(3, remote_rank, table), 0);
    munmap(table, sizeof *table);
}

static int broken_rank(int rank, int n, void *argument)
{
    struct me me = {argument, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group *group;

    CHECK(failure_is(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_IO, -1, -1, ""));
    CHECK(last_error_has(rank == 0 ? "joining: the cable is out"
                                   : "the bootstrap's broadcast returned -6 (CDDP_ERR_IO)"));
    return 0;
}

static void an_error_of_the_bootstrap_is_told_in_its_words(void **state)
{
    struct table *table = table_create();

    (void)state;
    table->breaks = true;
    assert_int_equal(run_ranks(2, broken_rank, table), 0);
    munmap(table, sizeof *table);
}

static int misled_rank(int rank, int n, void *argument)
{
    enum { VERSION_AT = 8 };
    struct table *table = argument;
    struct me me = {table, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_status expected = table->other_at == VERSION_AT ? CDDP_ERR_MISMATCH : CDDP_ERR_FORMAT;
    cddp_group *group;

    CHECK(cddp_group_create_by(&bootstrap, NULL, &group) == expected);
    CHECK(last_error_has("joining: what rank 0 sends: it is "));
    return 0;
}

static void what_another_version_sends_is_refused_by_all_ranks_with_a_reason(void **state)
{
    static const size_t places[] = {1, 8, 16, 24 + 7}; /* magic, version, length, a first member */

    (void)state;
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        struct table *table = table_create();

        table->other_at = places[i / 2];
        table->in_broadcast = i % 2 == 1;
        if (!table->in_broadcast || table->other_at < 24) { /* the offer begins with any number */
            assert_int_equal(run_ranks(2, misled_rank, table), 0);
        }
        munmap(table, sizeof *table);
    }
}

/* Rank 1 cannot: the interfaces that it may use do not exist. */
static int cut_off_rank(int rank, int n, void *argument)
{
    struct me me = {argument, rank, n};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group *group;

    support_setenv_number("CDDP_HOST_ID", rank);
    if (rank == 1) {
        setenv("CDDP_SOCKET_IFNAME", "=nothing0", 1);
    }
    CHECK(failure_is(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_ARGUMENT, 1, ANY_RANK,
                     ""));
    CHECK(last_error_has("CDDP_STORE=tcp://host:port"));
    return 0;
}

static void all_ranks_fail_at_once_when_one_cannot_reach_the_store(void **state)
{
    struct tcp_offer own = {0};
    struct table *table;

    (void)state;
    if (cddpi_tcp_offer_make(&own) != CDDP_OK) {
        skip();
    }
    table = table_create();
    assert_int_equal(run_ranks(3, cut_off_rank, table), 0);
    munmap(table, sizeof *table);
}

static void addresses_that_do_not_answer_are_listed(void **state)
{
    struct tcp_offer offer = {0};
    char host[TCP_HOST_TEXT_BYTES];

    (void)state;
    if (cddpi_tcp_offer_make(&offer) != CDDP_OK) {
        skip();
    }
    offer.port = support_free_port(); /* nobody listens there */
    assert_true(
        failure_is(cddpi_tcp_reachable(&offer, 5000, host), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("(Connection refused)"));
}

static void a_bootstrap_that_makes_no_sense_is_refused(void **state)
{
    struct me me = {NULL, 0, 1};
    cddp_bootstrap bootstrap = bootstrap_of(&me);
    cddp_group *group;

    (void)state;
    assert_int_equal(cddp_group_create_by(NULL, NULL, &group), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_group_create_by(&bootstrap, NULL, NULL), CDDP_ERR_ARGUMENT);
    bootstrap.world_size = 0;
    assert_int_equal(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_ARGUMENT);
    bootstrap = bootstrap_of(&me);
    bootstrap.rank = 1;
    assert_int_equal(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_ARGUMENT);
    bootstrap = bootstrap_of(&me);
    bootstrap.broadcast = NULL;
    assert_int_equal(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_ARGUMENT);
    bootstrap = bootstrap_of(&me);
    bootstrap.struct_size = 8;
    assert_int_equal(cddp_group_create_by(&bootstrap, NULL, &group), CDDP_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connected_processes_become_a_group_whatever_the_environment_says),
        cmocka_unit_test(a_token_of_the_users_is_never_sent),
        cmocka_unit_test(the_token_of_a_groups_store_follows_from_the_jobs_and_tells_nothing_of_it),
        cmocka_unit_test(ranks_of_several_hosts_find_an_address_that_they_reach),
        cmocka_unit_test(an_error_of_the_bootstrap_is_told_in_its_words),
        cmocka_unit_test(what_another_version_sends_is_refused_by_all_ranks_with_a_reason),
        cmocka_unit_test(all_ranks_fail_at_once_when_one_cannot_reach_the_store),
        cmocka_unit_test(addresses_that_do_not_answer_are_listed),
        cmocka_unit_test(a_bootstrap_that_makes_no_sense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
