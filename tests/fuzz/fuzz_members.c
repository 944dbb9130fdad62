/* fuzz_members.c - rank 0's list of which ranks are on which host, as other ranks read it from the
 * store. The first byte is the expected number of ranks. */
#include "fuzz/fuzz.h"
#include "group/join/members.h"
#include "group/launch/launch_env.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* Hosts count from 0 in the order of their lowest ranks, so that each has one. */
static void check_hosts(const int *host_of, int size)
{
    int known = 0;

    for (int rank = 0; rank < size; rank++) {
        fuzz_check(host_of[rank] >= 0 && host_of[rank] <= known, "a host without ranks");
        known += host_of[rank] == known ? 1 : 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_launch_env env = {.rank = 0};
    struct cddpi_members members = {.env = &env};
    uint8_t *answer;

    if (size == 0) {
        return 0;
    }
    env.world_size = 1 + data[0] % MOST;
    answer = malloc(size);
    members.host_of = calloc((size_t)env.world_size, sizeof *members.host_of);
    fuzz_check(answer != NULL && members.host_of != NULL, "no memory");
    memcpy(answer, data + 1, size - 1);
    answer = realloc(answer, size > 1 ? size - 1 : 1); /* so that a read beyond it is seen */
    if (cddpi_members_read(&members, answer, size - 1) == CDDP_OK) {
        check_hosts(members.host_of, env.world_size);
    }
    free(members.host_of);
    free(answer);
    return 0;
}
