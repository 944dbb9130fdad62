/* job_names.h - finds the names under which launchers restart a job, so that its run can
 * continue. */
#ifndef CDDPI_TRAIN_JOB_NAMES_H
#define CDDPI_TRAIN_JOB_NAMES_H

#include <stdbool.h>

enum { CDDPI_JOB_NAMES = 4, CDDPI_JOB_NAME_BYTES = 512 };

struct cddpi_job_name {
    char text[CDDPI_JOB_NAME_BYTES];
    bool is_restart; /* the launcher says that this start is a restart, or may be one */
};

/** Get the names of this process's job from the environment. Several launchers may have named it,
 *  such as cddp-run inside of Slurm. Returns the number of names. */
int cddpi_job_names(struct cddpi_job_name out[CDDPI_JOB_NAMES]);

#endif
