/* data_file_exchange.c - owns the messages with which ranks open data together. Each message is one
 * exchange of small structs (group/join/group_agree.h). */
#include "data/files/data_file_exchange.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/machine.h"
#include "group/join/group_agree.h"

#include <string.h>

struct data_file_exchange_offer {
    int64_t has_read;
    char machine[CDDPI_MACHINE_BYTES];
    struct cddpi_data_file_address files[CDDPI_EXCHANGED_FILES_MAX];
};

cddp_status cddpi_agree_on(cddp_group *group, const char *path, const char *const *names,
                           const uint64_t *numbers, size_t count)
{
    const uint64_t *all;
    void *memory = NULL;
    cddp_status status = cddpi_all_gather_bytes(group, numbers, count * sizeof *numbers, &memory);

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

cddp_status cddpi_exchange_data_files(cddp_group *group, const struct cddpi_data_file *data_files,
                                      int count, bool *out_found,
                                      struct cddpi_data_file_address *out)
{
    struct data_file_exchange_offer mine;
    struct data_file_exchange_offer *all;
    void *memory = NULL;
    bool found = false;

    memset(&mine, 0, sizeof mine);
    /* Containers on one machine may be unable to see each other's files: cddpi_data_file_map()
     * finds out. */
    cddpi_machine(mine.machine);
    mine.has_read = data_files != NULL;
    for (int i = 0; data_files != NULL && i < count; i++) {
        cddpi_data_file_address(&data_files[i], &mine.files[i]);
    }
    CDDPI_TRY(cddpi_all_gather_bytes(group, &mine, sizeof mine, &memory));
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
