/* Ranks without a launcher, as torch.multiprocessing.spawn: ./spawn 4 */
#include <cddp/cddp.h>

#include <stdio.h>
#include <stdlib.h>

static cddp_status train(void *state, int rank)
{
    float *gradient = state; /* a copy of the caller's: ranks are forks */
    cddp_group *group;
    cddp_status status = cddp_group_create(NULL, &group);

    if (status != CDDP_OK) {
        return status;
    }
    *gradient += (float)rank;
    status = cddp_all_reduce(group, gradient, gradient, 1, CDDP_F32, CDDP_OP_MEAN, NULL);
    if (status != CDDP_OK) {
        return status;
    }
    printf("rank %d of %d: the mean is %g\n", rank, cddp_group_world_size(group), *gradient);
    cddp_group_destroy(group);
    return CDDP_OK;
}

int main(int argc, char **argv)
{
    float gradient = 1;

    if (cddp_spawn(argc > 1 ? atoi(argv[1]) : 2, train, &gradient, NULL) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    return 0;
}
