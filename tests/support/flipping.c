/* flipping.c - starts jobs whose memory fails. */
#include "support/flipping.h"

int make_flipping(void)
{
    if (mkdir(in_work("bin"), 0700) != 0 ||
        symlink(launcher_path("tests/flipping_train"), in_work("bin/cddp-train")) != 0) {
        return 1;
    }
    return system(argument("cp %s %s", launcher_path("launcher/cddp-run"), in_work("bin")));
}

void run_flipping(struct launched *job, const char *flip, const char *run_dir,
                  const char *const *arguments)
{
    setenv("TEST_FLIP", flip != NULL ? flip : "", 1);
    setenv("TEST_FLIPPED", in_work("%s-flipped", run_dir), 1);
    launcher_start_program(job, in_work("bin/cddp-run"), arguments);
    launcher_wait(job);
    assert_no_orphan(run_dir);
}

void assert_differing_rank(const struct launched *job, int rank)
{
    if (job->exit_status != 1) {
        fail_msg("exit status %d: %s", job->exit_status, job->err);
    }
    assert_err(job, argument(" the state of rank %d (host ", rank));
    assert_failed_rank(job, rank);
}
