/* folder_visits.h - which folders a walk has come through, so that links cannot make a few folders
 * into a number of ways that nobody can walk. */
#ifndef CDDPI_DATA_FORMATS_FOLDER_VISITS_H
#define CDDPI_DATA_FORMATS_FOLDER_VISITS_H

#include <cddp/status.h>

#include <sys/stat.h>

/* Zeroed: none yet. */
struct cddpi_folder_visits {
    struct cddpi_folder_visit *slots; /* a table of powers of two */
    size_t count, room;
};

/** Count a visit of the folder that @p info is of. @p out: how often it was visited, this time
 *  included.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY without a text. */
CDDP_CHECKED cddp_status cddpi_folder_visits_add(struct cddpi_folder_visits *visits,
                                                 const struct stat *info, unsigned *out);
/** Forget them all. */
void cddpi_folder_visits_clear(struct cddpi_folder_visits *visits);

#endif
