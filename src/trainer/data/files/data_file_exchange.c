/* data_file_exchange.c - owns the messages with which ranks open data together, and the comparison
 * of data between ranks: otherwise nobody would notice that ranks train on different files of the
 * same name. Each message is one exchange of small structs (group/join/group_agree.h). */
#include "data/files/data_file_exchange.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/machine.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_all_gather_bytes(group, numbers, count * sizeof *numbers, &memory));
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

bool cddpi_map_exchanged(bool found, const struct cddpi_data_file_address *addresses,
                         const char *const *paths, int count, struct cddpi_data_file *out)
{
    int mapped = 0;

    while (found && mapped < count &&
           cddpi_data_file_map(&addresses[mapped], paths[mapped], &out[mapped]) == CDDP_OK) {
        mapped++;
    }
    if (mapped == count) {
        return true;
    }
    cddpi_log(CDDPI_LOG_INFO, "this rank opens %s itself: %s", paths[0],
              found ? cddp_last_error() : "no rank of this machine shares it");
    while (mapped-- > 0) {
        cddpi_data_file_close(&out[mapped]);
    }
    return false;
}

/* What ranks exchange about one content. */
struct seen {
    uint64_t is_known;
    uint64_t bytes;
    uint64_t digest;
};

uint64_t cddpi_hash_bytes(uint64_t hash, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = cddpi_hash_add(hash, data[i]);
    }
    return hash;
}

/* Hash the sample at @p at. The last sample may be shorter than the others. */
static bool hash_sample(const uint8_t *data, int fd, uint64_t at, size_t bytes, uint64_t *hash)
{
    uint8_t buffer[CDDPI_SAMPLE_BYTES];

    if (data != NULL) {
        *hash = cddpi_hash_bytes(*hash, data + at, bytes);
        return true;
    }
    while (bytes > 0) {
        ssize_t got = pread(fd, buffer, bytes, (off_t)at);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        *hash = cddpi_hash_bytes(*hash, buffer, (size_t)got);
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

bool cddpi_hash_samples(const uint8_t *data, int fd, uint64_t bytes, uint64_t samples,
                        uint64_t *hash)
{
    uint64_t whole = (bytes + CDDPI_SAMPLE_BYTES - 1) / CDDPI_SAMPLE_BYTES;
    uint64_t count = whole < samples ? whole : samples;
    bool done = true;

    for (uint64_t i = 0; done && i < count; i++) {
        uint64_t at = cddpi_spread(i, count, whole) * CDDPI_SAMPLE_BYTES;
        uint64_t left = bytes - at;

        done = hash_sample(data, fd, at,
                           left < CDDPI_SAMPLE_BYTES ? (size_t)left : CDDPI_SAMPLE_BYTES, hash);
    }
    return done;
}

static void look_at(const struct cddpi_content *content, uint64_t samples, struct seen *out)
{
    int fd = content->data == NULL ? cddpi_file_open_read(content->path) : -1;
    struct stat info;

    out->digest = cddpi_hash_start;
    if (content->data != NULL) {
        out->bytes = content->bytes;
        out->is_known = cddpi_hash_samples(content->data, -1, out->bytes, samples, &out->digest);
    } else if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        out->bytes = (uint64_t)info.st_size;
        out->is_known = cddpi_hash_samples(NULL, fd, out->bytes, samples, &out->digest);
    }
    cddpi_fd_close(&fd);
}

/* Compare what the ranks have seen.
 * @param all  Per rank: one entry that identifies its machine, then one entry per content. */
static cddp_status compare(const struct seen *all, int ranks, const struct cddpi_content *contents,
                           size_t count, bool between_machines)
{
    for (size_t i = 0; i < count; i++) {
        for (int rank = 1; rank < ranks; rank++) {
            const struct seen *own = all + (size_t)rank * (count + 1);

            for (int other = 0; other < rank && own[1 + i].is_known; other++) {
                const struct seen *its = all + (size_t)other * (count + 1);

                if (!its[1 + i].is_known || (!between_machines && its->digest != own->digest)) {
                    continue;
                }
                if (its[1 + i].bytes != own[1 + i].bytes) {
                    return cddpi_fail_rank(
                        CDDP_ERR_MISMATCH, rank,
                        "%s differs from that of rank %d: %llu bytes, there %llu", contents[i].path,
                        other, (unsigned long long)own[1 + i].bytes,
                        (unsigned long long)its[1 + i].bytes);
                }
                if (its[1 + i].digest != own[1 + i].digest) {
                    return cddpi_fail_rank(CDDP_ERR_MISMATCH, rank,
                                           "%s differs from that of rank %d: both have %llu "
                                           "bytes, but not the same",
                                           contents[i].path, other,
                                           (unsigned long long)own[1 + i].bytes);
                }
                break; /* equal to that rank's: no need to compare with further ranks */
            }
        }
    }
    return CDDP_OK;
}

/* The other ranks would wait for this one. */
static cddp_status no_memory(cddp_group *group, size_t count)
{
    cddp_status status = cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to compare %zu files",
                                    count);

    cddp_group_abort(group, cddp_last_error());
    return status;
}

cddp_status cddpi_agree_on_contents(cddp_group *group, const struct cddpi_content *contents,
                                    size_t count, bool between_machines)
{
    char machine[CDDPI_MACHINE_BYTES] = "";
    struct seen *mine = cddpi_zalloc_array(count + 1, sizeof *mine);
    void *all = NULL;
    cddp_status status;

    if (mine == NULL) {
        return no_memory(group, count);
    }
    /* a number that is the same for all ranks of one machine */
    if (cddpi_group_local_world_size(group) > 1) {
        cddpi_machine(machine);
    } else {
        snprintf(machine, sizeof machine, "rank %d", cddp_group_rank(group));
    }
    mine[0].digest = cddpi_hash_bytes(0, (const uint8_t *)machine, sizeof machine);
    for (size_t i = 0; i < count; i++) {
        look_at(&contents[i], cddpi_samples_of_each(count), &mine[1 + i]);
    }
    status = cddpi_all_gather_bytes(group, mine, (count + 1) * sizeof *mine, &all);
    if (status == CDDP_OK) {
        status = compare(all, cddp_group_world_size(group), contents, count, between_machines);
    }
    cddpi_free(all);
    cddpi_free(mine);
    return status;
}

cddp_status cddpi_agree_on_files(cddp_group *group, char *const *paths, size_t count,
                                 bool between_machines)
{
    struct cddpi_content *contents = cddpi_zalloc_array(count, sizeof *contents);
    cddp_status status;

    if (contents == NULL) {
        return no_memory(group, count);
    }
    for (size_t i = 0; i < count; i++) {
        contents[i].path = paths[i];
    }
    status = cddpi_agree_on_contents(group, contents, count, between_machines);
    cddpi_free(contents);
    return status;
}
