/* program.c - a user's program against the installed cddp: ranks add up their numbers. */
#include <cddp/cddp.h>

#include <stdio.h>

int main(void)
{
    cddp_group *group = NULL;
    float sum = 1;
    cddp_status status = cddp_group_create(NULL, &group);

    if (status == CDDP_OK) {
        status = cddp_all_reduce(group, &sum, &sum, 1, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    if (status == CDDP_OK) {
        printf("%s: rank %d of %d: %g\n", cddp_version(), cddp_group_rank(group),
               cddp_group_world_size(group), (double)sum);
    } else {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    cddp_group_destroy(group);
    return status == CDDP_OK ? 0 : 1;
}
