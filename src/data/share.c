/* share.c - owns the messages by which ranks open data together. Each is one all-gather of a small
 * record; all ranks see all records, so they all come to the same decision. */
#include "data/share.h"

#include "base/alloc.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 1024, MACHINE_BYTES = 64 };

struct outcome {
    int32_t status;
    char text[TEXT_BYTES];
};

struct offer {
    int64_t has_read;
    char machine[MACHINE_BYTES];
    struct cddpi_source_address files[CDDPI_SHARED_FILES];
};

/* All ranks' records in rank order; release with cddpi_free(). */
static cddp_status gather(cddp_group *group, const void *record, size_t bytes, void **out)
{
    void *all = cddpi_zalloc_array((size_t)cddp_group_world_size(group), bytes);
    cddp_status status;

    if (all == NULL) {
        /* the others are on their way into the all-gather */
        cddp_group_abort(group, "no memory while opening the data");
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory for %d x %zu bytes",
                          cddp_group_world_size(group), bytes);
    }
    status = cddp_all_gather(group, record, all, bytes, CDDP_U8, NULL);
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

cddp_status cddpi_agree(cddp_group *group, cddp_status mine)
{
    struct outcome outcome;
    struct outcome *all;
    void *memory = NULL;
    cddp_status status;

    memset(&outcome, 0, sizeof outcome);
    outcome.status = mine;
    if (mine != CDDP_OK) {
        snprintf(outcome.text, sizeof outcome.text, "%s", cddp_last_error());
    }
    status = gather(group, &outcome, sizeof outcome, &memory);
    if (status != CDDP_OK) {
        return status;
    }
    all = memory;
    for (int rank = 0; rank < cddp_group_world_size(group); rank++) {
        if (all[rank].status != CDDP_OK) {
            all[rank].text[TEXT_BYTES - 1] = '\0';
            status = cddpi_fail((cddp_status)all[rank].status, "%s", all[rank].text);
            break;
        }
    }
    cddpi_free(memory);
    return status;
}

cddp_status cddpi_agree_on(cddp_group *group, const char *path, const char *const *names,
                           const uint64_t *numbers, size_t count)
{
    const uint64_t *all;
    void *memory = NULL;
    cddp_status status = gather(group, numbers, count * sizeof *numbers, &memory);

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

cddp_status cddpi_share_sources(cddp_group *group, const struct cddpi_source *sources,
                                bool *out_found,
                                struct cddpi_source_address out[CDDPI_SHARED_FILES])
{
    struct offer mine;
    struct offer *all;
    void *memory = NULL;
    bool found = false;
    cddp_status status;

    memset(&mine, 0, sizeof mine);
    name_machine(mine.machine);
    mine.has_read = sources != NULL;
    for (int i = 0; sources != NULL && i < CDDPI_SHARED_FILES; i++) {
        cddpi_source_address(&sources[i], &mine.files[i]);
    }
    status = gather(group, &mine, sizeof mine, &memory);
    if (status != CDDP_OK) {
        return status;
    }
    all = memory;
    for (int rank = 0; !found && rank < cddp_group_world_size(group); rank++) {
        found = all[rank].has_read != 0 &&
                memcmp(all[rank].machine, mine.machine, sizeof mine.machine) == 0;
        if (found) {
            memcpy(out, all[rank].files, sizeof all[rank].files);
        }
    }
    *out_found = found;
    cddpi_free(memory);
    return CDDP_OK;
}
