/* dataset_memory.h - what holds a dataset's samples. One thread opens and closes datasets. */
#ifndef CDDPI_DATA_DATASET_MEMORY_H
#define CDDPI_DATA_DATASET_MEMORY_H

#include "data/dataset.h"
#include "data/files/data_file.h"
#include "data/files/paths.h"

struct cddpi_dataset_memory {
    int datasets; /* how many use it */
    struct cddpi_data_file *files;
    size_t file_count;
    struct cddpi_token_shard *shards;      /* tokens */
    struct cddpi_paths paths;              /* what their texts name */
    char *labels[2];                       /* other names there */
    struct cddpi_image_files *image_files; /* image folders; the names are in the first file */
};

/** Memory for one dataset with @p files closed files and @p shards zeroed shards; NULL: there is
 *  none (worded). With a @p group, whose ranks would wait for this one, that ends it. */
struct cddpi_dataset_memory *cddpi_dataset_memory_create(size_t files, size_t shards,
                                                         cddp_group *group);

/** A dataset less: after the last one all is released. */
void cddpi_dataset_memory_release(struct cddpi_dataset_memory *memory);

void cddpi_image_files_free(struct cddpi_image_files *files); /* accepts NULL */

void cddpi_dataset_memory_close_files(struct cddpi_dataset_memory *memory);

#endif
