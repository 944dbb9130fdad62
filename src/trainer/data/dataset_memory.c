/* dataset_memory.c - owns the allocation and release of datasets' memory. */
#include "data/dataset_memory.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/mapped_file.h"

#include <string.h>

struct cddpi_dataset_memory *cddpi_dataset_memory_create(size_t files, size_t shards,
                                                         cddp_group *group)
{
    struct cddpi_dataset_memory *memory = cddpi_zalloc(sizeof *memory);

    if (memory != NULL) {
        memory->datasets = 1;
        memory->file_count = files;
        memory->files = cddpi_zalloc_array(files, sizeof *memory->files);
        memory->shards = shards > 0 ? cddpi_zalloc_array(shards, sizeof *memory->shards) : NULL;
    }
    if (memory == NULL || memory->files == NULL || (shards > 0 && memory->shards == NULL)) {
        if (memory != NULL) {
            cddpi_dataset_memory_release(memory);
        }
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "data: no memory to describe %zu files", files);
        if (group != NULL) {
            cddp_group_abort(group, "no memory while opening the data");
        }
        return NULL;
    }
    return memory;
}

void cddpi_dataset_memory_close_files(struct cddpi_dataset_memory *memory)
{
    for (size_t i = 0; memory->files != NULL && i < memory->file_count; i++) {
        cddpi_data_file_close(&memory->files[i]);
    }
}

void cddpi_dataset_memory_release(struct cddpi_dataset_memory *memory)
{
    if (--memory->datasets > 0) {
        return;
    }
    cddpi_dataset_memory_close_files(memory);
    cddpi_free(memory->files);
    cddpi_free(memory->shards);
    cddpi_paths_fini(&memory->paths);
    cddpi_image_files_free(memory->image_files);
    cddpi_free(memory->labels[0]);
    cddpi_free(memory->labels[1]);
    cddpi_free(memory);
}

cddp_status cddpi_dataset_check(const struct cddpi_dataset *dataset, bool look)
{
    const struct cddpi_dataset_memory *memory = dataset->memory;

    for (size_t i = 0; memory != NULL && i < memory->file_count; i++) {
        const struct cddpi_mapped_file *file = memory->files[i].file;

        CDDPI_TRY(look ? cddpi_mapped_file_look(file) : cddpi_mapped_file_check(file));
    }
    return CDDP_OK;
}

void cddpi_dataset_close(struct cddpi_dataset *dataset)
{
    if (dataset->memory != NULL) {
        cddpi_dataset_memory_release(dataset->memory);
    }
    memset(dataset, 0, sizeof *dataset);
}
