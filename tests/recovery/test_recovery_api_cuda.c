/* test_recovery_api_cuda.c - jobs of cddp/recovery.h whose state is in the memory of CUDA devices:
 * it is copied after what was put into the compute stream before, and back before what comes
 * after. */
#include "support/device.h"
#include "support/recovery_api.h"

static int make_devices(void **state)
{
    (void)state;
    setenv("CDDP_DEVICE", "cuda", 1);
    setenv("CDDP_FAKE_CUDA_DEVICES", "5", 1);
    return 0;
}

static void each_rank_may_be_lost(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    RECOVERS("1", STATE_ALL "0.0:kill=5", "1.1: replaced 4\n", "1.1: ends at 9\n");
    RECOVERS("2", STATE_ALL "ddp=p 0.1:kill=5 1.0:met=7", "1.2: replaced 4\n", "2.2: replaced 7\n",
             "2.2: ends at 9\n");
    RECOVERS("3", STATE_ALL "ddp=s 0.0:kill=5 1.*:save=7", "1.3: replaced 4\n", "2.3: replaced 6\n",
             "2.3: ends at 9\n");
}

static void each_rank_takes_its_new_part_when_ranks_leave(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    LAUNCH(&job, "--nproc", "3", "--elastic", "1:3", "--", recovery_rank(),
           "every=3 steps=12 calls=1 ddp=s part=1 part=33 part=1000 whole=7 0.2:term=4 1.1:term=7");
    recovery_ends_well(&job, LOOPS("0.3: stopped 4\n", "1.2: replaced 4\n", "1.2: stopped 7\n",
                                   "2.1: replaced 7\n", "2.1: ends at 12\n"));
    launcher_end(&job);
}

static void damage_and_refusals_count_there_too(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    RECOVERS("2", STATE_ALL "ddp=s checkpoint=4 0.1:damage=7 1.0:refuse=9", "1.2: begins at 4\n",
             "2.2: begins at 8\n", "2.2: ends at 9\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_may_be_lost),
        cmocka_unit_test(each_rank_takes_its_new_part_when_ranks_leave),
        cmocka_unit_test(damage_and_refusals_count_there_too),
    };

    return cmocka_run_group_tests(tests, make_devices, NULL);
}
