/* bench_footprint.c - what a rank holds: heap bytes in use after it has joined and, in addition,
 * after it has reduced 1 MiB; private memory; threads. Reports the rank with the most. Any launcher
 * can start the ranks; rank 0 prints a line of JSON. The heap counts as 0 if the allocator is a
 * sanitizer's. */
#include "support/test.h"

#include <cddp/cddp.h>

#include <malloc.h>
#include <stdlib.h>

enum { COUNT = 1 << 18, CALLS = 3, FIGURES = 4 };

/* The number behind @p name in /proc/self/status; -1: there is none. */
static int64_t status_number(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    size_t length = strlen(name);
    char line[256];
    int64_t number = -1;

    while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            number = strtoll(line + length + 1, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return number;
}

static int64_t heap_bytes(void)
{
    struct mallinfo2 heap = mallinfo2();

    return (int64_t)(heap.uordblks + heap.hblkhd);
}

static cddp_status reduce(cddp_group *group, float *data)
{
    cddp_status status = CDDP_OK;

    for (int call = 0; call < CALLS && status == CDDP_OK; call++) {
        status = cddp_all_reduce(group, data, data, COUNT, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    return status == CDDP_OK ? cddp_barrier(group, NULL) : status;
}

static void print(const cddp_group *group, const int64_t *figures)
{
    printf("{\"ranks\": %d, \"joined_bytes\": %lld, \"reduced_bytes\": %lld, "
           "\"private_bytes\": %lld, \"threads\": %lld}\n",
           cddp_group_world_size(group), (long long)figures[0], (long long)figures[1],
           (long long)figures[2], (long long)figures[3]);
}

int main(void)
{
    int64_t figures[FIGURES];
    int64_t data_bytes;
    cddp_group *group = NULL;
    void *data = NULL;

    CHECK(cddp_group_create(NULL, &group) == CDDP_OK);
    figures[0] = heap_bytes();
    CHECK(cddp_group_alloc(group, COUNT * sizeof(float), 0, &data) == CDDP_OK);
    data_bytes = heap_bytes() - figures[0]; /* none where it is shared memory */
    memset(data, 0, COUNT * sizeof(float));
    CHECK(reduce(group, data) == CDDP_OK);
    figures[1] = heap_bytes() - data_bytes;
    figures[2] = status_number("RssAnon") * 1024;
    figures[3] = status_number("Threads");
    CHECK(figures[2] > 0 && figures[3] > 0);
    CHECK(cddp_all_reduce(group, figures, figures, FIGURES, CDDP_I64, CDDP_OP_MAX, NULL) ==
          CDDP_OK);
    if (cddp_group_rank(group) == 0) {
        print(group, figures);
    }
    cddp_group_free(group, data);
    cddp_group_destroy(group);
    return 0;
}
