/* image_list.h - lists the files of a folder of images, whose sub-folders are classes. */
#ifndef CDDPI_DATA_FORMATS_IMAGE_LIST_H
#define CDDPI_DATA_FORMATS_IMAGE_LIST_H

#include "data/files/data_file.h"

#include <sys/stat.h>

/** List the JPEG and PNG files below @p root. The list holds their paths relative to @p root, each
 *  ended by a NUL, sorted as torchvision's ImageFolder sorts them: by class name, then by folder,
 *  then by file name. Symbolic links to folders are followed.
 *  @param shareable  Other processes of this machine may map the list.
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT (no class, a class without an
 *          image, an image of another format), CDDP_ERR_UNAVAILABLE, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_image_list_make(const char *root, bool shareable,
                                               struct cddpi_data_file *out);

/* folder_visits.c: how often a walk visits each folder, so that symbolic links between a few
 * folders cannot make the walk endless */
/* Zeroed: no visits. */
struct cddpi_folder_visits {
    struct cddpi_folder_visit *slots; /* a hash table; its size is a power of two */
    size_t count, room;
};

/** Count a visit of the folder that @p info describes. @p out: how often it was visited, this time
 *  included.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY without an error text. */
CDDP_CHECKED cddp_status cddpi_folder_visits_add(struct cddpi_folder_visits *visits,
                                                 const struct stat *info, unsigned *out);
/** Forget all visits and release the table. */
void cddpi_folder_visits_clear(struct cddpi_folder_visits *visits);

#endif
