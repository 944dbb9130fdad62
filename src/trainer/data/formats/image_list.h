/* image_list.h - lists the files of a folder of images, whose sub-folders are classes. */
#ifndef CDDPI_DATA_FORMATS_IMAGE_LIST_H
#define CDDPI_DATA_FORMATS_IMAGE_LIST_H

#include "data/files/data_file.h"

/** List the JPEG and PNG files below @p root. The list holds their paths relative to @p root, each
 *  ended by a NUL, sorted as torchvision's ImageFolder sorts them: by class name, then by folder,
 *  then by file name. Symbolic links to folders are followed.
 *  @param shareable  Other processes of this machine may map the list.
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT (no class, a class without an
 *          image, an image of another format), CDDP_ERR_UNAVAILABLE, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_image_list_make(const char *root, bool shareable,
                                               struct cddpi_data_file *out);

#endif
