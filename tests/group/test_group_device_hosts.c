/* test_group_device_hosts.c - groups on devices whose ranks are on several hosts: which backend
 * carries device memory, how NCCL is configured, and that ranks on other hosts are watched. */
#include "support/ddp_ranks.h"
#include "support/device_stage.h"
#include "support/failure.h"
#include "support/group.h"

#include <net/if.h>

struct wanted {
    const char *hosts; /* by rank, a letter each */
    const char *backend;
    const char *says; /* the backend, or a part of the error */
    cddp_status status;
    const char *encrypt; /* NULL: not set */
    bool user_told_nccl;
    int fault; /* of rank 1: 1 dies, 2 does not call, 3 calls something else */
};

static cddp_status create(const struct meeting *meeting, int rank, int n, cddp_group **out)
{
    const struct wanted *wanted = meeting->argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char url[4200];
    char host[32];

    snprintf(url, sizeof url, "file://%s/%s", meeting->folder, meeting->job);
    snprintf(host, sizeof host, "test host %c", wanted->hosts[rank]);
    setenv("CDDP_HOST_ID", host, 1);
    setenv("CDDP_FAKE_CUDA_DEVICES", "3", 1);
    if (wanted->encrypt != NULL) {
        setenv("CDDP_ENCRYPT", wanted->encrypt, 1);
    }
    if (wanted->user_told_nccl) {
        setenv("NCCL_SOCKET_IFNAME", "theirs", 1);
        setenv("NCCL_HOSTID", host + 5, 1);
        setenv("NCCL_LOCAL_REGISTER", "1", 1);
    }
    options.rendezvous = url;
    options.token = SUPPORT_TOKEN;
    options.job = meeting->job;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = wanted->fault == 2 ? 3000 : meeting->timeout_ms;
    options.device = "cuda";
    options.backend = wanted->backend;
    options.deterministic = true;
    return cddp_group_create(&options, out);
}

static bool is_an_interface(const char *name)
{
    return name != NULL && name[0] == '=' && if_nametoindex(name + 1) != 0;
}

/* What NCCL was told, which the fake of it does not need. */
static int look_at_nccl(const struct wanted *wanted, const cddp_group *group)
{
    const char *interface = getenv("NCCL_SOCKET_IFNAME");
    const char *host = getenv("NCCL_HOSTID");
    const char *registers = getenv("NCCL_LOCAL_REGISTER");
    bool is_spread = wanted->hosts[0] != wanted->hosts[cddp_group_world_size(group) - 1];

    if (strcmp(group_info(group).backend, "nccl") != 0 || !is_spread) {
        CHECK(interface == NULL && host == NULL && registers == NULL);
    } else if (wanted->user_told_nccl) {
        CHECK(strcmp(interface, "theirs") == 0 && strcmp(registers, "1") == 0);
        CHECK(strncmp(host, "host ", 5) == 0);
    } else {
        CHECK(is_an_interface(interface));
        CHECK(strcmp(registers, "0") == 0); /* before 2.32 */
        CHECK(strncmp(host, "test host ", 10) == 0);
    }
    return 0;
}

static int create_rank(int rank, int n, void *argument)
{
    const struct meeting *meeting = argument;
    const struct wanted *wanted = meeting->argument;
    float value = (float)rank + 1;
    float *there;
    cddp_group *group;

    CHECK(create(meeting, rank, n, &group) == wanted->status);
    if (wanted->status != CDDP_OK) {
        CHECK(last_error_has(wanted->says));
        return 0;
    }
    CHECK(strcmp(group_info(group).backend, wanted->says) == 0);
    CHECK(look_at_nccl(wanted, group) == 0);
    there = on_device(group, sizeof value);
    CHECK(put_there(group, there, &value, sizeof value) == 0);
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(value == (float)(n * (n + 1) / 2));
    if (wanted->hosts[0] != wanted->hosts[n - 1] && (rank == 0 || rank == n - 1)) {
        CHECK((rank == 0 ? cddp_send(group, there, 1, CDDP_F32, n - 1, NULL)
                         : cddp_recv(group, there, 1, CDDP_F32, 0, NULL)) == CDDP_ERR_UNAVAILABLE);
        CHECK(last_error_has("is on another host (copy it"));
    }
    cddp_group_destroy(group);
    return 0;
}

static void try(void **state, int n, struct wanted wanted)
{
    assert_int_equal(meet(*state, n, create_rank, &wanted, NULL), 0);
}

static void nccl_and_staged_carry_it_between_hosts(void **state)
{
    need_emulated_module();
    try(state, 3, (struct wanted){.hosts = "abb", .backend = "staged", .says = "staged"});
    try(state, 3, (struct wanted){.hosts = "abc", .backend = "host", .says = "staged"});
    try(state, 3, (struct wanted){.hosts = "aab", .backend = "nccl", .says = "nccl"});
    try(state, 2, (struct wanted){.hosts = "ab", .says = "nccl"});
    try(state, 3, (struct wanted){.hosts = "aaa", .backend = "host", .says = "ipc"});
}

/* What NCCL sends between hosts nobody encrypts; on one host nothing goes over a network. */
static void with_encryption_nccl_goes_between_hosts_only_if_it_is_named(void **state)
{
    need_emulated_module();
    try(state, 2, (struct wanted){.hosts = "ab", .says = "staged", .encrypt = "1"});
    try(state, 3,
        (struct wanted){.hosts = "abb", .backend = "host", .says = "staged", .encrypt = "1"});
    try(state, 2,
        (struct wanted){.hosts = "ab", .backend = "nccl", .says = "nccl", .encrypt = "1"});
    try(state, 2, (struct wanted){.hosts = "aa", .says = "nccl", .encrypt = "1"});
    try(state, 2,
        (struct wanted){.hosts = "aa",
                        .status = CDDP_ERR_ARGUMENT,
                        .says = "CDDP_ENCRYPT=true",
                        .encrypt = "true"});
}

static void what_the_user_has_told_nccl_stays(void **state)
{
    need_emulated_module();
    try(state, 2,
        (struct wanted){.hosts = "ab", .backend = "nccl", .says = "nccl", .user_told_nccl = true});
}

static void ipc_says_why_it_cannot(void **state)
{
    need_emulated_module();
    try(state, 3,
        (struct wanted){.hosts = "aab",
                        .backend = "ipc",
                        .status = CDDP_ERR_UNAVAILABLE,
                        .says = "several machines"});
}

/* Rank 1, on a host of its own, fails while the devices of the others wait for it. */
static int fault_rank(int rank, int n, void *argument)
{
    const struct meeting *meeting = argument;
    const struct wanted *wanted = meeting->argument;
    float *there;
    cddp_group *group;
    cddp_status status = CDDP_OK;

    CHECK(create(meeting, rank, n, &group) == CDDP_OK);
    there = on_device(group, 100 * sizeof *there);
    CHECK(cddp_all_reduce(group, there, there, 100, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &(float){0}, there, sizeof(float)) == 0);
    if (rank == 1 && wanted->fault == 1) {
        raise(SIGKILL);
    }
    if (rank != 1 || wanted->fault == 3) {
        status = cddp_all_reduce(group, there, there, rank == 1 ? 99 : 100, CDDP_F32, CDDP_OP_SUM,
                                 NULL);
    }
    status = status == CDDP_OK ? await_failure(group) : status;
    CHECK(status == wanted->status || status == CDDP_ERR_PEER); /* another rank told it first */
    CHECK(last_error_has(wanted->says));
    CHECK(rank == 1 || wanted->fault == 3 || last_error_has("all_reduce sum f32 x 100, #"));
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_of_another_host_that_fails_is_named(void **state)
{
    static const char *const backends[] = {"nccl", "staged"};
    static const struct wanted faults[] = {
        {.hosts = "abaa", .fault = 1, .status = CDDP_ERR_PEER, .says = "rank 1 "},
        {.hosts = "abaa",
         .fault = 2,
         .status = CDDP_ERR_TIMEOUT,
         .says = " ms for rank 1 on host "},
        {.hosts = "abaa",
         .fault = 3,
         .status = CDDP_ERR_MISMATCH,
         .says = "ranks 0, 2: all_reduce sum f32 x 100; rank 1: all_reduce sum f32 x 99"},
    };

    need_emulated_module();
    for (size_t i = 0; i < 2 * sizeof faults / sizeof *faults; i++) {
        struct wanted wanted = faults[i / 2];
        int statuses[RANKS_MOST] = {0};

        wanted.backend = backends[i % 2];
        assert_int_equal(meet(*state, 3, fault_rank, &wanted, statuses), wanted.fault == 1);
        assert_int_equal(statuses[0] + statuses[2], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(nccl_and_staged_carry_it_between_hosts),
        RANKS_TEST(with_encryption_nccl_goes_between_hosts_only_if_it_is_named),
        RANKS_TEST(what_the_user_has_told_nccl_stays),
        RANKS_TEST(ipc_says_why_it_cannot),
        RANKS_TEST(a_rank_of_another_host_that_fails_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
