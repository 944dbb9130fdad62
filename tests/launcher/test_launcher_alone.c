/* test_launcher_alone.c - a job on one machine, whose only node hears what it has published itself.
 * Its ranks are not started. */
#include "launcher/nodes/nodes.h"
#include "support/launcher.h"

enum { STAGES = 12 };

static void begin(struct cddpi_nodes *nodes, struct cddpi_job *job, struct cddpi_wait *wait)
{
    assert_int_equal(cddpi_nodes_alone(job, wait, nodes), CDDP_OK);
    CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_BEGIN);
    assert_true(nodes->is_due);
    nodes->is_due = false;
}

/* A pipeline of many stages leaves as a whole when one of its ranks does: the configuration is
 * asked about each number of ranks in between, and nothing that is published meanwhile is lost. */
static void a_long_pipeline_leaves_as_a_whole(void **state)
{
    char *dir = support_mkdtemp();
    char *path = NULL;
    char *argv[] = {(char *)"validate", NULL};
    struct cddpi_output output;
    struct cddpi_wait wait = {.output = &output};
    struct cddpi_job job = {.local_world_size = 2 * STAGES};
    struct cddpi_nodes nodes;

    (void)state;
    assert_true(asprintf(&path, "%s/validate", dir) > 0);
    launcher_write(dir, "validate", "#!/bin/sh\n[ $((CDDP_WORLD_SIZE % 12)) = 0 ] || exit 2\n");
    cddpi_output_init(&output);
    cddpi_rendezvous_clear(&job.rendezvous);
    job.command = (struct cddpi_command){.path = path, .argv = argv};
    job.options.config = "train.conf";
    job.options.least = STAGES;
    job.options.most = 2 * STAGES;
    job.options.max_restarts = -1;
    begin(&nodes, &job, &wait);
    CDDPI_MEMBERS_FEED(&nodes, .kind = CDDPI_MEMBERS_RANK_LEAVES, .number = 5);
    assert_int_equal(nodes.members.change.kind, CDDPI_EVENT_CHANGE);
    CDDPI_MEMBERS_FEED(&nodes, .kind = CDDPI_MEMBERS_RANKS_ENDED,
                       .outcome = {.exit_status = CDDPI_STOPPED_EARLY, .has_saved = true});
    assert_int_equal(nodes.members.generation, 1);
    assert_int_equal(nodes.members.world_size, STAGES);
    assert_true(nodes.is_due);
    cddpi_nodes_fini(&nodes);
    cddpi_rendezvous_fini(&job.rendezvous);
    cddpi_output_fini(&output);
    free(path);
    support_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_long_pipeline_leaves_as_a_whole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
