/* idx.c - owns datasets in IDX files: checks their headers, and lets the ranks of a machine read
 * each file only once. */
#include "base/error.h"
#include "base/foreign.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <stdio.h>

enum { UNSIGNED_BYTES = 0x08, MOST_DIMENSIONS = 4 };
enum { MOST_SAMPLE_BYTES = 1 << 28 }; /* so that the sizes of one sample fit an int */

/* A file's header: the sizes of its dimensions, and the offset of the elements. */
struct idx {
    const char *path;
    int dimensions;
    uint32_t sizes[MOST_DIMENSIONS];
    size_t header_bytes;
};

struct idx_request {
    const char *paths[CDDPI_EXCHANGED_FILES_MAX];
    int classes;
};

static uint32_t read_u32(const uint8_t *in)
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

static cddp_status check_magic(const struct cddpi_data_file *file, int low, int high)
{
    const uint8_t *data = file->data;

    if (file->bytes < 4) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "truncated: the file has %zu bytes, too few for an IDX header",
                          file->bytes);
    }
    if (data[0] != 0 || data[1] != 0) {
        char words[CDDPI_FOREIGN_WORDS_BYTES];

        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "not an IDX file: it begins with %02x %02x %02x %02x, not with 00 00 08 %02x%s",
            data[0], data[1], data[2], data[3], (unsigned)low,
            cddpi_foreign_words(data, file->bytes, words));
    }
    if (data[2] != UNSIGNED_BYTES) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "byte 2: the elements have type 0x%02x, but only unsigned bytes (0x08) can be read",
            data[2]);
    }
    if (data[3] < low || data[3] > high) {
        return cddpi_fail(CDDP_ERR_FORMAT, "byte 3: the file has %d dimensions, but %s", data[3],
                          low < high ? "images have 3 or 4" : "labels have 1");
    }
    return CDDP_OK;
}

/* Check everything in the header against the file's contents. */
static cddp_status parse_header(const struct cddpi_data_file *file, int low, int high,
                                struct idx *out)
{
    struct idx idx = {0};
    uint64_t elements = 1;
    char text[64]; /* "60000 x 28 x 28" */
    size_t length = 0;

    CDDPI_TRY(check_magic(file, low, high));
    idx.dimensions = file->data[3];
    idx.header_bytes = 4 + 4 * (size_t)idx.dimensions;
    if (file->bytes < idx.header_bytes) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "truncated: the file ends at byte %zu, inside its header of %zu bytes",
                          file->bytes, idx.header_bytes);
    }
    for (int i = 0; i < idx.dimensions; i++) {
        idx.sizes[i] = read_u32(file->data + 4 + 4 * i);
        if (idx.sizes[i] == 0) {
            return cddpi_fail(CDDP_ERR_FORMAT, "byte %d: dimension %d is 0", 4 + 4 * i, i);
        }
        length += (size_t)snprintf(text + length, sizeof text - length, i > 0 ? " x %u" : "%u",
                                   idx.sizes[i]);
    }
    for (int i = 0; i < idx.dimensions; i++) {
        if (__builtin_mul_overflow(elements, idx.sizes[i], &elements)) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "byte 4: the dimensions %s are more than any memory holds", text);
        }
    }
    if (elements != file->bytes - idx.header_bytes) {
        bool less = elements > file->bytes - idx.header_bytes;

        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: the header says %s elements from byte %zu on, but %zu bytes are there",
            less ? "truncated" : "too long", text, idx.header_bytes,
            file->bytes - idx.header_bytes);
    }
    *out = idx;
    return CDDP_OK;
}

static cddp_status read_header(const char *path, const struct cddpi_data_file *file, int low,
                               int high, struct idx *out)
{
    cddp_status status = parse_header(file, low, high, out);

    out->path = path;
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "%s", path);
}

static cddp_status check_sample(const struct idx *images)
{
    uint64_t bytes = 1;

    for (int i = 1; i < images->dimensions; i++) {
        /* Each factor is below 2^32 and the product is checked each time, so it cannot overflow. */
        bytes *= images->sizes[i];
        if (bytes > MOST_SAMPLE_BYTES) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: byte 8: one image has more than %d bytes",
                              images->path, MOST_SAMPLE_BYTES);
        }
    }
    return CDDP_OK;
}

static cddp_status check_labels(const struct idx *labels, const uint8_t *data, int classes,
                                int *out_classes)
{
    uint64_t count = labels->sizes[0];
    int largest = 0;

    for (uint64_t i = 0; i < count; i++) {
        largest = data[i] > largest ? data[i] : largest;
    }
    for (uint64_t i = 0; classes > 0 && largest >= classes && i < count; i++) {
        if (data[i] >= classes) {
            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: byte %llu: sample %llu has label %d, but there are only %d classes",
                labels->path, (unsigned long long)(labels->header_bytes + i), (unsigned long long)i,
                data[i], classes);
        }
    }
    *out_classes = classes > 0 ? classes : largest + 1;
    return CDDP_OK;
}

/* Make a dataset of the two files in memory, which then own the data. */
static cddp_status describe(const struct idx_request *request, struct cddpi_dataset_memory *memory,
                            struct cddpi_dataset *out)
{
    const struct cddpi_data_file *files = memory->files;
    struct cddpi_dataset dataset = {.memory = memory};
    struct idx images, labels;

    CDDPI_TRY(read_header(request->paths[0], &files[0], 3, 4, &images));
    CDDPI_TRY(check_sample(&images));
    CDDPI_TRY(read_header(request->paths[1], &files[1], 1, 1, &labels));
    if (images.sizes[0] != labels.sizes[0]) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: byte 4: there are %u labels, but %s has %u images",
                          labels.path, labels.sizes[0], images.path, images.sizes[0]);
    }
    dataset.count = images.sizes[0];
    dataset.channels = images.dimensions == 4 ? (int)images.sizes[1] : 1;
    dataset.height = (int)images.sizes[images.dimensions - 2];
    dataset.width = (int)images.sizes[images.dimensions - 1];
    dataset.images = files[0].data + images.header_bytes;
    dataset.labels = files[1].data + labels.header_bytes;
    CDDPI_TRY(check_labels(&labels, dataset.labels, request->classes, &dataset.classes));
    for (int i = 0; i < CDDPI_EXCHANGED_FILES_MAX; i++) {
        CDDPI_TRY(cddpi_data_file_check(&files[i]));
    }
    *out = dataset;
    return CDDP_OK;
}

/* The file size that a header with @p low to @p high dimensions states; 0: this is no valid header.
 * Inflating stops at that size. */
static uint64_t size_said(const uint8_t *head, size_t head_bytes, int low, int high)
{
    uint64_t size = 1;
    size_t header_bytes;

    if (head_bytes < 4 || head[0] != 0 || head[1] != 0 || head[2] != UNSIGNED_BYTES ||
        head[3] < low || head[3] > high) {
        return 0;
    }
    header_bytes = 4 + 4 * (size_t)head[3];
    for (size_t at = 4; at < header_bytes; at += 4) {
        if (head_bytes < header_bytes ||
            __builtin_mul_overflow(size, (uint64_t)read_u32(head + at), &size)) {
            return 0;
        }
    }
    return size == 0 || __builtin_add_overflow(size, header_bytes, &size) ? 0 : size;
}

static uint64_t size_of_images(const uint8_t *head, size_t head_bytes)
{
    return size_said(head, head_bytes, 3, 4);
}

static uint64_t size_of_labels(const uint8_t *head, size_t head_bytes)
{
    return size_said(head, head_bytes, 1, 1);
}

static cddp_status open_alone(const struct idx_request *request, bool shareable,
                              struct cddpi_dataset_memory *memory, struct cddpi_dataset *out)
{
    static const cddpi_size_of sizes[CDDPI_EXCHANGED_FILES_MAX] = {size_of_images, size_of_labels};

    for (int i = 0; i < CDDPI_EXCHANGED_FILES_MAX; i++) {
        CDDPI_TRY(cddpi_data_file_open(request->paths[i], shareable, sizes[i], &memory->files[i]));
    }
    return describe(request, memory, out);
}

/* Open the files collectively. After each step, all ranks agree on the outcome. */
static cddp_status open_together(const struct idx_request *request, cddp_group *group,
                                 struct cddpi_dataset_memory *memory, struct cddpi_dataset *out)
{
    static const char *const names[] = {"samples", "channels", "height", "width", "classes"};
    bool reads = cddpi_group_local_rank(group) == 0;
    bool shareable = cddpi_group_local_world_size(group) > 1;
    struct cddpi_data_file_address addresses[CDDPI_EXCHANGED_FILES_MAX];
    struct cddpi_content read[CDDPI_EXCHANGED_FILES_MAX];
    struct cddpi_content own[CDDPI_EXCHANGED_FILES_MAX];
    uint64_t facts[sizeof names / sizeof *names];
    bool found;
    cddp_status status = reads ? open_alone(request, shareable, memory, out) : CDDP_OK;

    CDDPI_TRY(cddpi_agree(group, status));
    CDDPI_TRY(cddpi_exchange_data_files(group, reads ? memory->files : NULL,
                                        CDDPI_EXCHANGED_FILES_MAX, &found, addresses));
    if (!reads) {
        status = cddpi_map_exchanged(found, addresses, request->paths, CDDPI_EXCHANGED_FILES_MAX,
                                     memory->files)
                     ? describe(request, memory, out)
                     : open_alone(request, false, memory, out);
    }
    CDDPI_TRY(cddpi_agree(group, status)); /* by now all ranks have mapped */
    facts[0] = out->count;
    facts[1] = (uint64_t)out->channels;
    facts[2] = (uint64_t)out->height;
    facts[3] = (uint64_t)out->width;
    facts[4] = (uint64_t)out->classes;
    CDDPI_TRY(cddpi_agree_on(group, request->paths[0], names, facts, sizeof facts / sizeof *facts));
    /* all ranks must train on the same data; a rank that has mapped a neighbour's file also checks
     * that its own file of that name has the same contents */
    for (int i = 0; i < CDDPI_EXCHANGED_FILES_MAX; i++) {
        read[i] = (struct cddpi_content){request->paths[i], memory->files[i].data,
                                         memory->files[i].bytes};
        own[i] = (struct cddpi_content){.path = request->paths[i]};
    }
    CDDPI_TRY(cddpi_agree_on_contents(group, read, CDDPI_EXCHANGED_FILES_MAX, true));
    return cddpi_agree_on_contents(group, own, CDDPI_EXCHANGED_FILES_MAX, false);
}

static cddp_status find_images(const char *path, const struct cddpi_data_file *file,
                               int64_t out_shape[4], const uint8_t **out)
{
    struct idx images;

    CDDPI_TRY(read_header(path, file, 3, 4, &images));
    CDDPI_TRY(check_sample(&images));
    out_shape[0] = images.sizes[0];
    out_shape[1] = images.dimensions == 4 ? images.sizes[1] : 1;
    out_shape[2] = images.sizes[images.dimensions - 2];
    out_shape[3] = images.sizes[images.dimensions - 1];
    *out = file->data + images.header_bytes;
    return CDDP_OK;
}

cddp_status cddpi_idx_open_images(const char *path, struct cddpi_data_file *file,
                                  int64_t out_shape[4], const uint8_t **out)
{
    cddp_status status;

    *file = (struct cddpi_data_file)CDDPI_DATA_FILE_CLOSED;
    CDDPI_TRY(cddpi_data_file_open(path, false, size_of_images, file));
    status = find_images(path, file, out_shape, out);
    return status == CDDP_OK ? CDDP_OK : cddpi_data_file_finish(file, status);
}

cddp_status cddpi_dataset_open_idx(const char *images_path, const char *labels_path, int classes,
                                   cddp_group *group, struct cddpi_dataset *out)
{
    const struct idx_request request = {{images_path, labels_path}, classes};
    struct cddpi_dataset_memory *memory;
    struct cddpi_dataset dataset;
    cddp_status status;

    if (images_path == NULL || labels_path == NULL || classes < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "data: a path is missing, or the number of classes (%d) is negative",
                          classes);
    }
    memory = cddpi_dataset_memory_create(CDDPI_EXCHANGED_FILES_MAX, 0, group);
    if (memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = group != NULL && cddp_group_world_size(group) > 1
                 ? open_together(&request, group, memory, &dataset)
                 : open_alone(&request, false, memory, &dataset);
    for (int i = 0; i < CDDPI_EXCHANGED_FILES_MAX; i++) {
        cddpi_data_file_close_fd(&memory->files[i]);
    }
    if (status != CDDP_OK) {
        cddpi_dataset_memory_release(memory);
        return status;
    }
    *out = dataset;
    return CDDP_OK;
}
