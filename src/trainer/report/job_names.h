/* job_names.h - the names under which launchers start a job again, so that the run goes on. */
#ifndef CDDPI_TRAIN_JOB_NAMES_H
#define CDDPI_TRAIN_JOB_NAMES_H

#include <stdbool.h>

enum { CDDPI_JOB_NAMES = 4, CDDPI_JOB_NAME_BYTES = 512 };

struct cddpi_job_name {
    char text[CDDPI_JOB_NAME_BYTES];
    bool is_restart; /* whoever gave the name says that the job is started again, or may be */
};

/** What launchers call the job of this process, from the environment; a job may be one of several
 *  launchers: cddp-run inside of Slurm, say. Returns how many there are. */
int cddpi_job_names(struct cddpi_job_name out[CDDPI_JOB_NAMES]);

#endif
