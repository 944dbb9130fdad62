/* exchange_contents.c - owns the comparison of data between ranks: otherwise nobody would notice
 * that ranks train on different files of the same name. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/machine.h"
#include "data/files/data_file_exchange.h"
#include "group/join/group_agree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A sample has the size of a disk read. The samples are few enough that a thousand files on a slow
 * server take seconds. */
enum { SAMPLE_BYTES = 4096, SAMPLES = 1024, SAMPLES_OF_EACH = 8 };

/* What ranks exchange about one content. */
struct seen {
    uint64_t is_known;
    uint64_t bytes;
    uint64_t digest;
};

static uint64_t hash_more(uint64_t hash, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = cddpi_hash_add(hash, data[i]);
    }
    return hash;
}

/* Hash the sample at @p at of @p content, read from @p fd if the content is a file. The last sample
 * may be shorter. */
static bool hash_sample(const struct cddpi_content *content, int fd, uint64_t at, size_t bytes,
                        uint64_t *hash)
{
    uint8_t buffer[SAMPLE_BYTES];

    if (content->data != NULL) {
        *hash = hash_more(*hash, content->data + at, bytes);
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
        *hash = hash_more(*hash, buffer, (size_t)got);
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Hash all of the content, or @p samples samples spread evenly from the first byte to the last. */
static bool hash_content(const struct cddpi_content *content, int fd, uint64_t bytes,
                         uint64_t samples, uint64_t *out)
{
    uint64_t whole = (bytes + SAMPLE_BYTES - 1) / SAMPLE_BYTES;
    uint64_t count = whole < samples ? whole : samples;
    uint64_t hash = cddpi_hash_start;
    bool done = true;

    for (uint64_t i = 0; done && i < count; i++) {
        uint64_t number = count == whole
                              ? i
                              : (uint64_t)((double)i * (double)(whole - 1) / (double)(count - 1));
        uint64_t at = number * SAMPLE_BYTES;
        uint64_t left = bytes - at;

        done = hash_sample(content, fd, at, left < SAMPLE_BYTES ? (size_t)left : SAMPLE_BYTES,
                           &hash);
    }
    *out = hash;
    return done;
}

static void look_at_file(const struct cddpi_content *content, uint64_t samples, struct seen *out)
{
    int fd = cddpi_file_open_read(content->path);
    struct stat info;

    if (fd < 0) {
        return;
    }
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        out->bytes = (uint64_t)info.st_size;
        out->is_known = hash_content(content, fd, out->bytes, samples, &out->digest);
    }
    close(fd);
}

static void look_at(const struct cddpi_content *contents, size_t count, struct seen *out)
{
    uint64_t samples = SAMPLES / count > SAMPLES_OF_EACH ? SAMPLES / count : SAMPLES_OF_EACH;

    for (size_t i = 0; i < count; i++) {
        if (contents[i].data == NULL) {
            look_at_file(&contents[i], samples, &out[i]);
        } else {
            out[i].bytes = contents[i].bytes;
            out[i].is_known = hash_content(&contents[i], -1, contents[i].bytes, samples,
                                           &out[i].digest);
        }
    }
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

/* A number that is the same for all ranks of one machine. A rank that is alone on its machine has a
 * number of its own. */
static uint64_t name_neighbours(const cddp_group *group)
{
    char machine[CDDPI_MACHINE_BYTES] = "";

    if (cddp_group_local_world_size(group) > 1) {
        cddpi_machine(machine);
    } else {
        snprintf(machine, sizeof machine, "rank %d", cddp_group_rank(group));
    }
    return hash_more(0, (const uint8_t *)machine, sizeof machine);
}

cddp_status cddpi_agree_on_contents(cddp_group *group, const struct cddpi_content *contents,
                                    size_t count, bool between_machines)
{
    struct seen *mine = cddpi_zalloc_array(count + 1, sizeof *mine);
    void *all = NULL;
    cddp_status status;

    if (mine == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to compare %zu files", count);
        cddp_group_abort(group, cddp_last_error()); /* the other ranks would wait for this one */
        return status;
    }
    mine[0].digest = name_neighbours(group);
    look_at(contents, count, mine + 1);
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
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to compare %zu files", count);
        cddp_group_abort(group, cddp_last_error());
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        contents[i].path = paths[i];
    }
    status = cddpi_agree_on_contents(group, contents, count, between_machines);
    cddpi_free(contents);
    return status;
}
