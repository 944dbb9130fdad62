/* dataset_memory.h - owns the files and lists that hold a dataset's samples, and divides shards of
 * tokens into sequences, for all formats. One thread opens and closes datasets. */
#ifndef CDDPI_DATA_DATASET_MEMORY_H
#define CDDPI_DATA_DATASET_MEMORY_H

#include "data/dataset.h"
#include "data/files/data_file.h"
#include "data/files/paths.h"
#include "data/numbers.h"

struct cddpi_dataset_memory {
    int datasets; /* how many datasets use it */
    struct cddpi_data_file *files;
    size_t file_count;
    struct cddpi_token_shard *shards;      /* for tokens */
    struct cddpi_paths paths;              /* the paths that shards name in error texts */
    char *labels[2];                       /* more paths for error texts */
    struct cddpi_image_files *image_files; /* for image folders; the names are in the first file */
    struct cddpi_number_shard *number_shards; /* for numbers */
    cddp_sampler *split;                      /* for numbers: see struct cddpi_dataset */
};

/** Memory for one dataset, with @p files closed files and @p shards zeroed shards. NULL: no memory,
 *  and the error text is set. The other ranks of @p group would wait for this one, so the group is
 *  aborted, too. */
struct cddpi_dataset_memory *cddpi_dataset_memory_create(size_t files, size_t shards,
                                                         cddp_group *group);

/** One dataset less uses it; after the last one, everything is released. */
void cddpi_dataset_memory_release(struct cddpi_dataset_memory *memory);

void cddpi_image_files_free(struct cddpi_image_files *files); /* accepts NULL */

/** Number the sequences of @p shards (borrowed; sets `first_sequence`) and describe them in @p out,
 *  whose context, token_bytes and classes are set already. Each shard must hold at least one
 *  sequence; only the last of several shards may be shorter.
 *  @return CDDP_OK, CDDP_ERR_FORMAT with a text that begins with the shard's path. */
CDDP_CHECKED cddp_status cddpi_tokens_lay_out(struct cddpi_token_shard *shards, size_t count,
                                              struct cddpi_dataset *out);

/** Check that all ranks have the same shards, by their sizes. Collective.
 *  @return CDDP_OK, CDDP_ERR_MISMATCH, or an error of the group. */
CDDP_CHECKED cddp_status cddpi_tokens_agree(cddp_group *group, const struct cddpi_dataset *dataset);

#endif
