/* image_list.h - which files a folder of images has: sub-folders are classes. */
#ifndef CDDPI_DATA_FORMATS_IMAGE_LIST_H
#define CDDPI_DATA_FORMATS_IMAGE_LIST_H

#include "data/files/data_file.h"

/** List the JPEG and PNG files below @p root: the names that they have below it, each with a NUL
 * behind it, class after class in the order of the classes' names, and within one as torchvision's
 * ImageFolder has them: by folder, then by name. Links to folders are followed.
 *  @param shareable  Others of this machine may map the list.
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT (no class, a class without an
 *          image, an image of another format), CDDP_ERR_UNAVAILABLE, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_image_list_make(const char *root, bool shareable,
                                               struct cddpi_data_file *out);

#endif
