/* folder_visits.h - counts how often a walk visits each folder, so that symbolic links between a
 * few folders cannot make the walk endless. */
#ifndef CDDPI_DATA_FORMATS_FOLDER_VISITS_H
#define CDDPI_DATA_FORMATS_FOLDER_VISITS_H

#include <cddp/status.h>

#include <sys/stat.h>

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
