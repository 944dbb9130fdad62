/* share.c - owns the messages by which ranks open data together, each one exchange of small records
 * (group/agree.h). */
#include "data/share.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/agree.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MACHINE_BYTES = 64 };

struct offer {
    int64_t has_read;
    char machine[MACHINE_BYTES];
    struct cddpi_source_address files[CDDPI_SHARED_FILES];
};

cddp_status cddpi_agree_on(cddp_group *group, const char *path, const char *const *names,
                           const uint64_t *numbers, size_t count)
{
    const uint64_t *all;
    void *memory = NULL;
    cddp_status status = cddpi_share_records(group, numbers, count * sizeof *numbers, &memory);

    if (status != CDDP_OK) {
        return status;
    }
    all = memory;
    for (size_t i = 0; i < (size_t)cddp_group_world_size(group) * count; i++) {
        if (all[i] != all[i % count]) {
            status = cddpi_fail(CDDP_ERR_MISMATCH,
                                "%s: %s differs between machines: %llu on rank 0, %llu on rank %zu",
                                path, names[i % count], (unsigned long long)all[i % count],
                                (unsigned long long)all[i], i / count);
            break;
        }
    }
    cddpi_free(memory);
    return status;
}

/* The running kernel's own number: equal for all containers of a machine, which may nevertheless be
 * unable to see each other; cddpi_source_map() notices. */
static void name_machine(char out[MACHINE_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, out, MACHINE_BYTES - 1) : -1;

    if (fd >= 0) {
        close(fd);
    }
    if (bytes <= 0) {
        (void)gethostname(out, MACHINE_BYTES - 1);
    }
}

cddp_status cddpi_share_sources(cddp_group *group, const struct cddpi_source *sources, int count,
                                bool *out_found, struct cddpi_source_address *out)
{
    struct offer mine;
    struct offer *all;
    void *memory = NULL;
    bool found = false;
    cddp_status status;

    memset(&mine, 0, sizeof mine);
    name_machine(mine.machine);
    mine.has_read = sources != NULL;
    for (int i = 0; sources != NULL && i < count; i++) {
        cddpi_source_address(&sources[i], &mine.files[i]);
    }
    status = cddpi_share_records(group, &mine, sizeof mine, &memory);
    if (status != CDDP_OK) {
        return status;
    }
    all = memory;
    for (int rank = 0; !found && rank < cddp_group_world_size(group); rank++) {
        found = all[rank].has_read != 0 &&
                memcmp(all[rank].machine, mine.machine, sizeof mine.machine) == 0;
        if (found) {
            memcpy(out, all[rank].files, (size_t)count * sizeof *out);
        }
    }
    *out_found = found;
    cddpi_free(memory);
    return CDDP_OK;
}
