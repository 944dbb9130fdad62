/* test_members.c - ranks that join learn who is on which host. */
#include "group/members.h"
#include "support/test.h"

struct layout {
    const char *hosts; /* a letter a rank: its host */
    char url[4200];
};

/* Hosts count from 0 in the order of their lowest ranks: rank @p rank's, by the letters. */
static int host_of(const char *hosts, int rank)
{
    int host = 0;

    for (int r = 0; hosts[r] != hosts[rank]; r++) {
        host += strchr(hosts, hosts[r]) == hosts + r;
    }
    return host;
}

static int member_rank(int rank, int n, void *argument)
{
    const struct layout *layout = argument;
    struct cddpi_launch_env env = {
        .rank = rank, .world_size = n, .timeout_ms = SUPPORT_TIMEOUT_MS, .origin = "the test"};
    struct cddpi_rendezvous rendezvous;
    struct cddpi_members members;
    int local = 0;

    snprintf(env.store, sizeof env.store, "%.1100s", layout->url);
    snprintf(env.job, sizeof env.job, "%s", layout->hosts);
    setenv("CDDP_HOST_ID", (const char[]){layout->hosts[rank], '\0'}, 1);
    CHECK(cddpi_rendezvous_open(&env, &rendezvous) == CDDP_OK);
    CHECK(cddpi_members_gather(&env, &rendezvous, &members) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(members.host_of[r] == host_of(layout->hosts, r));
        if (layout->hosts[r] == layout->hosts[rank]) {
            CHECK(members.locals[local] == r);
            CHECK(r != rank || members.local_rank == local);
            local++;
        }
    }
    CHECK(members.local_size == local);
    cddpi_members_fini(&members);
    cddpi_rendezvous_close(&rendezvous, false);
    return 0;
}

static void every_rank_learns_the_host_of_every_rank(void **state)
{
    static const char *const layouts[] = {"aaaaaaa", "aaabbbb", "aabbccd", "abcdefg",
                                          "abcabca", "abbaabb", "aabbbcc", "zyyzxxw"};
    char *folder = support_mkdtemp();

    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct layout layout = {.hosts = layouts[i]};

        snprintf(layout.url, sizeof layout.url, "file://%s/%s", folder, layouts[i]);
        assert_int_equal(run_ranks((int)strlen(layouts[i]), member_rank, &layout), 0);
    }
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_learns_the_host_of_every_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
