/* image_folder.c - owns datasets of image files in folders: lets the ranks of a machine list the
 * files only once, and finds the class of each. The files themselves are read when samples are
 * made. */
#include "base/alloc.h"
#include "base/error.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/formats/image_list.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <string.h>

enum { CHANNELS = 3, MOST_SIZE = 4096 };

struct image_folder_request {
    const char *root;
    int size;
    const struct cddpi_dataset *like; /* take the classes of this dataset; NULL: own classes */
};

/* The length of the first folder in @p name, which is the class name. */
static size_t class_length(const char *name)
{
    return strcspn(name, "/");
}

static bool same_class(const char *one, const char *other)
{
    size_t length = class_length(one);

    return length == class_length(other) && memcmp(one, other, length) == 0;
}

/* The index of the class of @p name in @p like, or -1. Classes are sorted by name. */
static int find_class(const struct cddpi_dataset *like, const char *name)
{
    size_t length = class_length(name);
    int low = 0;
    int high = like->classes - 1;

    while (low <= high) {
        int middle = low + (high - low) / 2;
        const struct cddpi_image_files *files = like->files;
        const char *other = files->names + files->offsets[files->firsts[middle]];
        size_t other_length = class_length(other);
        int order = memcmp(name, other, length < other_length ? length : other_length);

        if (order == 0 && length == other_length) {
            return middle;
        }
        if (order < 0 || (order == 0 && length < other_length)) {
            high = middle - 1;
        } else {
            low = middle + 1;
        }
    }
    return -1;
}

static cddp_status count_files(const struct cddpi_data_file *list, struct cddpi_image_files *files)
{
    const char *names = (const char *)list->data;
    const char *end = names + list->bytes;
    const char *before = NULL;
    size_t classes = 0;
    size_t count = 0;

    for (const char *name = names; name < end; name += strlen(name) + 1) {
        classes += before == NULL || !same_class(before, name);
        count++;
        before = name;
    }
    files->names = names;
    files->class_count = classes;
    files->offsets = cddpi_zalloc_array(count, sizeof *files->offsets);
    files->labels = cddpi_zalloc_array(count, sizeof *files->labels);
    files->firsts = cddpi_zalloc_array(classes, sizeof *files->firsts);
    CDDPI_TRY_MEMORY(files->offsets != NULL && files->labels != NULL && files->firsts != NULL,
                     "%s: no memory for the numbers of %zu files", files->root, count);
    files->count = count;
    return CDDP_OK;
}

static cddp_status number_files(const struct image_folder_request *request, const char *end,
                                struct cddpi_image_files *files)
{
    const char *before = NULL;
    size_t own = 0;
    size_t i = 0;
    int label = -1;

    for (const char *name = files->names; name < end; name += strlen(name) + 1, i++) {
        if (before == NULL || !same_class(before, name)) {
            files->firsts[own++] = i;
            label = request->like != NULL ? find_class(request->like, name) : (int)own - 1;
        }
        if (label < 0) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s/%.*s: there is no such class among the %d that are trained on",
                              request->root, (int)class_length(name), name, request->like->classes);
        }
        files->offsets[i] = (uint64_t)(name - files->names);
        files->labels[i] = (uint16_t)label;
        before = name;
    }
    return CDDP_OK;
}

static cddp_status describe(const struct image_folder_request *request,
                            struct cddpi_dataset_memory *memory, struct cddpi_dataset *out)
{
    const struct cddpi_data_file *list = &memory->files[0];
    struct cddpi_image_files *files = cddpi_zalloc(sizeof *files);

    memory->image_files = files;
    if (files != NULL) {
        files->root = cddpi_strdup(request->root);
    }
    CDDPI_TRY_MEMORY(files != NULL && files->root != NULL, "%s: no memory", request->root);
    CDDPI_TRY(count_files(list, files));
    if (files->class_count > UINT16_MAX + 1) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: there are %zu classes, but at most 65536 can be",
                          request->root, files->class_count);
    }
    CDDPI_TRY(number_files(request, (const char *)list->data + list->bytes, files));
    *out = (struct cddpi_dataset){.count = files->count,
                                  .channels = CHANNELS,
                                  .height = request->size,
                                  .width = request->size,
                                  .classes = request->like != NULL ? request->like->classes
                                                                   : (int)files->class_count,
                                  .wide_labels = files->labels,
                                  .files = files,
                                  .memory = memory,
                                  .kind = CDDPI_DATASET_IMAGES};
    return CDDP_OK;
}

/* Open the folder collectively. After each step, all ranks agree on the outcome. */
static cddp_status open_together(const struct image_folder_request *request, cddp_group *group,
                                 struct cddpi_dataset_memory *memory, struct cddpi_dataset *out)
{
    struct cddpi_data_file *list = &memory->files[0];
    bool lists = cddpi_group_local_rank(group) == 0;
    bool shareable = cddpi_group_local_world_size(group) > 1;
    struct cddpi_data_file_address address;
    struct cddpi_content content = {.path = request->root};
    bool found = false;
    cddp_status status = lists ? cddpi_image_list_make(request->root, shareable, list) : CDDP_OK;

    CDDPI_TRY(cddpi_agree(group, status));
    CDDPI_TRY(cddpi_exchange_data_files(group, lists ? list : NULL, 1, &found, &address));
    if (!lists && !cddpi_map_exchanged(found, &address, &request->root, 1, list)) {
        status = cddpi_image_list_make(request->root, false, list);
    }
    status = status == CDDP_OK ? describe(request, memory, out) : status;
    CDDPI_TRY(cddpi_agree(group, status)); /* by now all ranks have mapped */
    content.data = list->data;
    content.bytes = list->bytes;
    return cddpi_agree_on_contents(group, &content, 1, true);
}

cddp_status cddpi_dataset_open_image_folder(const char *root, int size,
                                            const struct cddpi_dataset *like, cddp_group *group,
                                            struct cddpi_dataset *out)
{
    const struct image_folder_request request = {root, size, like};
    struct cddpi_dataset_memory *memory;
    struct cddpi_dataset dataset;
    cddp_status status;

    if (size < 1 || size > MOST_SIZE || (like != NULL && like->files == NULL)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "data: images of %d x %d pixels, but a side may be 1 to %d; or other "
                          "data that are no folder of images",
                          size, size, MOST_SIZE);
    }
    memory = cddpi_dataset_memory_create(1, 0, group);
    if (memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    if (group != NULL && cddp_group_world_size(group) > 1) {
        status = open_together(&request, group, memory, &dataset);
    } else {
        status = cddpi_image_list_make(root, false, &memory->files[0]);
        status = status == CDDP_OK ? describe(&request, memory, &dataset) : status;
    }
    cddpi_data_file_close_fd(&memory->files[0]);
    if (status != CDDP_OK) {
        cddpi_dataset_memory_release(memory);
        return status;
    }
    *out = dataset;
    return CDDP_OK;
}

void cddpi_image_files_free(struct cddpi_image_files *files)
{
    if (files == NULL) {
        return;
    }
    cddpi_free(files->root);
    cddpi_free(files->offsets);
    cddpi_free(files->labels);
    cddpi_free(files->firsts);
    cddpi_free(files);
}
