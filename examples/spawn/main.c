/* Ranks without a launcher, as torch.multiprocessing.spawn: ./spawn 4 */
#include <cddp/cddp.h>

#include <stdio.h>
#include <stdlib.h>

static int train(int rank, void *arg)
{
    float *gradient = arg; /* a copy of the caller's: ranks are forks */
    cddp_group *group;

    if (cddp_group_create(NULL, &group) != CDDP_OK) {
        return 1;
    }
    *gradient += (float)rank;
    if (cddp_all_reduce(group, gradient, gradient, 1, CDDP_F32, CDDP_OP_MEAN, NULL) != CDDP_OK) {
        return 1;
    }
    printf("rank %d of %d: the mean is %g\n", rank, cddp_group_world_size(group), *gradient);
    cddp_group_destroy(group);
    return 0;
}

int main(int argc, char **argv)
{
    float gradient = 1;

    if (cddp_spawn(train, argc > 1 ? atoi(argv[1]) : 2, &gradient, NULL) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    return 0;
}
