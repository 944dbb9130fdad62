/* image_split.c - owns the choice of image files that are held back for evaluation: of each class,
 * the same part. It depends on the files' names only: with a seed, a run that goes on from another
 * run's weights would be evaluated on images that those were trained on. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"

#include <stdlib.h>
#include <string.h>

/* A file, and its place in the random order of its class. */
struct image_split_place {
    uint64_t place;
    size_t number;
};

static int compare_places(const void *a, const void *b)
{
    const struct image_split_place *one = a;
    const struct image_split_place *other = b;

    if (one->place != other->place) {
        return one->place < other->place ? -1 : 1;
    }
    return one->number < other->number ? -1 : one->number > other->number;
}

static size_t class_end(const struct cddpi_image_files *files, size_t class)
{
    return class + 1 < files->class_count ? files->firsts[class + 1] : files->count;
}

/* How many of a class of @p count files are held back: one at least, but never all. */
static size_t held_back(size_t count, double fraction)
{
    size_t part = (size_t)((double)count * fraction + 0.5);

    part = part > 0 ? part : 1;
    return part < count ? part : count - 1;
}

/* Mark what is held back in @p out, and count it. The place of a file follows from its own name, so
 * most files stay where they were if a user adds others. */
static cddp_status choose(const struct cddpi_image_files *files, double fraction, bool *out,
                          size_t *out_count)
{
    struct cddpi_philox stream = cddpi_philox_stream(0, CDDPI_RANDOM_HELD_BACK, 0);
    struct image_split_place *places = cddpi_zalloc_array(files->count, sizeof *places);

    CDDPI_TRY_MEMORY(places != NULL, "%s: no memory", files->root);
    *out_count = 0;
    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->names + files->offsets[i];
        uint32_t words[4];

        cddpi_philox4(&stream,
                      cddpi_hash_bytes(cddpi_hash_start, (const uint8_t *)name, strlen(name)),
                      words);
        places[i] = (struct image_split_place){(uint64_t)words[0] << 32 | words[1], i};
    }
    for (size_t class = 0; class < files->class_count; class ++) {
        size_t first = files->firsts[class];
        size_t count = class_end(files, class) - first;
        size_t part = held_back(count, fraction);

        qsort(places + first, count, sizeof *places, compare_places);
        for (size_t i = 0; i < part; i++) {
            out[places[first + i].number] = true;
        }
        *out_count += part;
    }
    cddpi_free(places);
    return CDDP_OK;
}

/* Append file @p number of @p from to @p out. Both may be the same. */
static void take_file(const struct cddpi_image_files *from, size_t number,
                      struct cddpi_image_files *out)
{
    if (out->count == 0 || out->labels[out->count - 1] != from->labels[number]) {
        out->firsts[out->class_count++] = out->count;
    }
    out->offsets[out->count] = from->offsets[number];
    out->labels[out->count++] = from->labels[number];
}

static cddp_status make_part(const struct cddpi_image_files *files, size_t count,
                             struct cddpi_image_files **out)
{
    struct cddpi_image_files *part = cddpi_zalloc(sizeof *part);

    if (part != NULL) {
        part->root = cddpi_strdup(files->root);
        part->names = files->names;
        part->offsets = cddpi_zalloc_array(count, sizeof *part->offsets);
        part->labels = cddpi_zalloc_array(count, sizeof *part->labels);
        part->firsts = cddpi_zalloc_array(files->class_count, sizeof *part->firsts);
    }
    if (part == NULL || part->root == NULL || part->offsets == NULL || part->labels == NULL ||
        part->firsts == NULL) {
        cddpi_image_files_free(part);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", files->root);
    }
    *out = part;
    return CDDP_OK;
}

cddp_status cddpi_dataset_split_image_folder(struct cddpi_dataset *train, double test_fraction,
                                             struct cddpi_dataset *out_test)
{
    struct cddpi_dataset_memory *memory = train->memory;
    struct cddpi_image_files *files = memory->image_files;
    size_t all = files->count;
    size_t count = 0;
    bool *held = cddpi_zalloc_array(all, sizeof *held);
    cddp_status status;

    CDDPI_TRY_MEMORY(held != NULL, "%s: no memory", files->root);
    CDDPI_TRY_GOTO(done, status, choose(files, test_fraction, held, &count));
    if (count == 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s: no class has two images, so none can be held back for evaluation",
                            files->root);
        goto done;
    }
    CDDPI_TRY_GOTO(done, status, make_part(files, count, &memory->held_back));
    files->count = 0;
    files->class_count = 0;
    for (size_t i = 0; i < all; i++) {
        take_file(files, i, held[i] ? memory->held_back : files);
    }
    *out_test = *train;
    out_test->files = memory->held_back;
    out_test->wide_labels = memory->held_back->labels;
    out_test->count = memory->held_back->count;
    train->count = files->count;
    memory->datasets++;

done:
    cddpi_free(held);
    return status;
}
