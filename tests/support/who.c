/* who.c - sets variables as launchers do, and checks which rank or node this process then is. */
#include "support/who.h"
#include "support/failure.h"

#include "group/launch/launch_env.h"

#include <stdbool.h>

extern char **environ;

void support_clear_environment(void)
{
    static const char *const keep[] = {"PATH=", "HOME=", "TMPDIR=", "CDDP_TEST_",
                                       "LSAN",  "ASAN",  "UBSAN"};

    for (char **at = environ; *at != NULL;) {
        bool kept = false;

        for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
            kept = kept || strncmp(*at, keep[i], strlen(keep[i])) == 0;
        }
        if (kept) {
            at++;
        } else {
            char name[256];

            snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
            unsetenv(name);
            at = environ;
        }
    }
}

int who_clear(void **state)
{
    char *home = support_mkdtemp();

    (void)state;
    support_clear_environment();
    setenv("HOME", home, 1);
    free(home); /* the folder is removed when the process ends */
    return 0;
}

void who_set(const char *const (*variables)[2])
{
    for (; (*variables)[0] != NULL; variables++) {
        setenv((*variables)[0], (*variables)[1], 1);
    }
}

void who_is(int rank, int world_size, int local_rank, int local_world_size, const char *store)
{
    struct cddpi_launch_env env;

    if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.world_size, world_size);
    assert_int_equal(env.local_rank, local_rank);
    assert_int_equal(env.local_world_size, local_world_size);
    assert_string_equal(env.store, store);
    assert_true(env.token[0] != '\0');
    assert_true(env.hosts_store);
}

void who_is_refused(const char *name, const char *value)
{
    struct cddpi_launch_env env;
    char *before = getenv(name) != NULL ? strdup(getenv(name)) : NULL;

    if (value != NULL) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
    if (cddpi_launch_env_read(NULL, &env) != CDDP_ERR_ARGUMENT || !last_error_has(name)) {
        fail_msg("%s=%s: %s", name, value != NULL ? value : "", cddp_last_error());
    }
    if (before != NULL) {
        setenv(name, before, 1);
    } else {
        unsetenv(name);
    }
    free(before);
}

void who_is_node(int node, int nodes, int nproc, const char *rdzv)
{
    struct cddpi_launch_given given = {.nodes = 0};
    struct cddpi_launch_node read;

    if (cddpi_launch_node_read(&given, &read) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(read.node, node);
    assert_int_equal(read.nodes, nodes);
    assert_int_equal(read.nproc, nproc);
    assert_string_equal(read.rdzv, rdzv);
}

void who_is_no_node(struct cddpi_launch_given given, const char *text)
{
    struct cddpi_launch_node node;

    if (cddpi_launch_node_read(&given, &node) != CDDP_ERR_ARGUMENT || !last_error_has(text)) {
        fail_msg("%s is not in: %s", text, cddp_last_error());
    }
}

void who_is_alone(void)
{
    struct cddpi_launch_env env;

    if (cddpi_launch_env_read(NULL, &env) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_int_equal(env.world_size, 1);
}
