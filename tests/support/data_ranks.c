/* data_ranks.c - ranks, as processes, that open data together. */
#include "support/data_ranks.h"

cddp_status support_join(const char *folder, enum machines machines, int rank, int world_size,
                         cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char rendezvous[4300];

    snprintf(rendezvous, sizeof rendezvous, "file://%s/store", folder);
    options.rendezvous = rendezvous;
    options.token = SUPPORT_TOKEN;
    options.job = "data";
    options.rank = rank;
    options.world_size = world_size;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    if (machines == EACH_ALONE || (machines == FIRST_ALONE && rank == 0)) {
        options.local_world_size = 1;
    } else {
        options.local_rank = rank;
        options.local_world_size = world_size;
    }
    return cddp_group_create(&options, out);
}

void support_new_store(const char *folder)
{
    char path[4300];

    snprintf(path, sizeof path, "%s/store", folder);
    (void)unlink(path);
}

bool support_is_mapped_from(const void *memory, const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4400];
    bool found = false;

    while (!found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;

        found = sscanf(line, "%lx-%lx r--p", &begin, &end) == 2 && (uintptr_t)memory >= begin &&
                (uintptr_t)memory < end && strstr(line, name) != NULL;
    }
    fclose(maps);
    return found;
}
