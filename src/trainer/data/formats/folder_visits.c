/* folder_visits.c - owns the hash table of folders, keyed by device and inode. */
#include "data/formats/image_list.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

#include <string.h>

enum { FIRST_ROOM = 64 };

struct cddpi_folder_visit {
    uint64_t dev, inode;
    unsigned times; /* 0: the slot is free */
};

static struct cddpi_folder_visit *find_visit(const struct cddpi_folder_visits *visits, uint64_t dev,
                                             uint64_t inode)
{
    uint64_t hash = cddpi_hash_add(cddpi_hash_add(cddpi_hash_start, dev), inode);
    size_t at = (size_t)(hash ^ hash >> 32) & (visits->room - 1);

    while (visits->slots[at].times != 0 &&
           (visits->slots[at].dev != dev || visits->slots[at].inode != inode)) {
        at = (at + 1) & (visits->room - 1);
    }
    return &visits->slots[at];
}

static cddp_status make_room(struct cddpi_folder_visits *visits)
{
    struct cddpi_folder_visits larger = {.count = visits->count,
                                         .room = visits->room > 0 ? 2 * visits->room : FIRST_ROOM};

    larger.slots = cddpi_zalloc_array(larger.room, sizeof *larger.slots);
    if (larger.slots == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < visits->room; i++) {
        const struct cddpi_folder_visit *slot = &visits->slots[i];

        if (slot->times != 0) {
            *find_visit(&larger, slot->dev, slot->inode) = *slot;
        }
    }
    cddpi_free(visits->slots);
    *visits = larger;
    return CDDP_OK;
}

cddp_status cddpi_folder_visits_add(struct cddpi_folder_visits *visits, const struct stat *info,
                                    unsigned *out)
{
    struct cddpi_folder_visit *slot;

    if (2 * visits->count >= visits->room) {
        CDDPI_TRY(make_room(visits));
    }
    slot = find_visit(visits, info->st_dev, info->st_ino);
    if (slot->times == 0) {
        slot->dev = info->st_dev;
        slot->inode = info->st_ino;
        visits->count++;
    }
    *out = ++slot->times;
    return CDDP_OK;
}

void cddpi_folder_visits_clear(struct cddpi_folder_visits *visits)
{
    cddpi_free(visits->slots);
    memset(visits, 0, sizeof *visits);
}
