/* adopt.c - decides whether the caller's memory may become shared. Each rank checks its own memory,
 * and either all ranks share it or no rank does. The transport replaces the pages. */
#include "group/join/adopt.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "group/group.h"
#include "group/join/group_agree.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_BYTES = 256 << 10 }; /* for less, the cost of copies is not noticeable */

/* What a rank sends to the others about its block. */
struct adopt_place {
    uint64_t pages;  /* number of whole pages that may be shared; 0: none */
    uint64_t head;   /* bytes before the first of these pages */
    uint64_t shared; /* it is already memory from cddp_group_alloc() */
};

/* Whether all of [from, to) is private memory without a file, readable and writable. */
static bool is_private(uintptr_t from, uintptr_t to)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4352];
    bool good = maps != NULL;

    while (good && from < to && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end, inode;
        char mode[8];

        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, mode, &inode) != 4 ||
            end <= from) {
            continue;
        }
        good = start <= from && strcmp(mode, "rw-p") == 0 && inode == 0 &&
               strstr(line, "[stack") == NULL;
        from = end;
    }
    cddpi_stream_close(maps);
    return good && from >= to;
}

static struct adopt_place look(cddp_group *group, void *memory, size_t bytes, size_t element,
                               bool allowed)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)memory + bytes) / page * page;
    struct adopt_place place = {0, first - (uintptr_t)memory, 0};

    if (group->backend->ops->place != NULL &&
        group->backend->ops->place(group->backend, memory, bytes) != 0) {
        place.shared = 1;
    } else if (allowed && end > first && place.head % element == 0 &&
               cddpi_env_integer(CDDPI_ENV_SHARE_GRADS, 0, 1, 1) != 0 && is_private(first, end)) {
        place.pages = (end - first) / page;
    }
    return place;
}

/* Find the part that can be shared on all ranks; false: there is no such part. */
static bool choose(const struct adopt_place *places, int count, uint64_t page, uint64_t *out_pages,
                   struct cddpi_adopted *out)
{
    uint64_t pages = places[0].pages;
    uint64_t least = places[0].head;
    uint64_t most = places[0].head;

    for (int r = 1; r < count; r++) {
        pages = places[r].pages < pages ? places[r].pages : pages;
        least = places[r].head < least ? places[r].head : least;
        most = places[r].head > most ? places[r].head : most;
    }
    out->low = (size_t)most;
    out->high = (size_t)(least + pages * page);
    *out_pages = pages;
    return pages > 0 && out->high > out->low;
}

/* Say once what the copies of a block cost, and what would save them. */
static void tell_copies(const cddp_group *group, size_t bytes, bool allowed)
{
    if (allowed) {
        cddpi_log(CDDPI_LOG_WARN,
                  "the pages of a block of %zu bytes cannot be shared where they are, so it is "
                  "copied at each step: memory of cddp_group_alloc() is 2 to 3 times faster",
                  bytes);
    } else if (group->rank == 0) {
        cddpi_log(CDDPI_LOG_WARN,
                  "flat_grads: a block of %zu bytes is copied at each step: with "
                  "options.share_flat_grads (if it is from malloc), or in memory of "
                  "cddp_group_alloc(), it is reduced where it is, 2 to 3 times faster",
                  bytes);
    }
}

cddp_status cddpi_group_adopt(cddp_group *group, void *memory, size_t bytes, size_t element,
                              bool allowed, struct cddpi_adopted *out)
{
    struct adopt_place own = look(group, memory, bytes, element, allowed);
    struct cddpi_adopted made = {NULL, 0, 0};
    struct cddpi_group_op op = {.kind = CDDPI_ALLOC, .type = CDDP_U8, .out = &made.pages};
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t pages = 0;
    bool shared = true;
    bool possible;
    void *places;

    *out = made;
    if (!group->backend->ops->shares_pages || bytes < LEAST_BYTES) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_all_gather_bytes(group, &own, sizeof own, &places));
    for (int r = 0; r < group->world_size; r++) {
        shared = shared && ((const struct adopt_place *)places)[r].shared != 0;
    }
    possible = choose(places, group->world_size, page, &pages, &made);
    cddpi_free(places);
    if (!possible) {
        if (!shared) {
            tell_copies(group, bytes, allowed);
        }
        return CDDP_OK;
    }
    op.in = (char *)memory + own.head;
    op.count = (size_t)(pages * page);
    CDDPI_TRY(cddpi_group_run(group, &op, NULL));
    cddpi_log(CDDPI_LOG_INFO, "%zu of %zu bytes of a block of the caller's are shared now",
              made.high - made.low, bytes);
    *out = made;
    return CDDP_OK;
}
