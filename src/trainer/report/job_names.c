/* job_names.c - owns the names that launchers give to a job, and whether it was restarted.
 *
 * A name alone does not tell a restart from another run of the same user: torchrun's id is "none"
 * by default, and all commands of a batch script have the same id in Slurm. So the launcher's count
 * of restarts must be above zero, too, if the launcher keeps one. */
#include "report/job_names.h"

#include "base/env.h"
#include "base/number.h"
#include "group/launch/launch_variable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_above_zero(const char *name)
{
    const char *text = cddpi_launch_variable(name);
    int64_t number;

    return text != NULL && cddpi_parse_integer(text, 1, INT64_MAX, &number);
}

/* cddp-run's random id, or the id that the user gives to all starts of one job. */
static bool name_of_cddp(struct cddpi_job_name *out)
{
    const char *job = cddpi_env(CDDPI_ENV_JOB);

    if (job == NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "%s", job);
    out->is_restart = cddpi_launch_variable("CDDP_GENERATION") == NULL ||
                      is_above_zero("CDDP_GENERATION");
    return true;
}

static bool name_of_torchrun(struct cddpi_job_name *out)
{
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");

    if (run == NULL || cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return false; /* CDDP_RANK is set: cddp-run is the launcher */
    }
    snprintf(out->text, sizeof out->text, "torchrun %s", run);
    out->is_restart = is_above_zero("TORCHELASTIC_RESTART_COUNT");
    return true;
}

/* A torchrun keeps all its attempts in one folder, FOLDER/attempt_0/0/error.json. The folder
 * identifies restarts that torchrun does not count, because nodes joined or left. */
static bool name_of_agent(struct cddpi_job_name *out)
{
    const char *file = cddpi_launch_variable("TORCHELASTIC_ERROR_FILE");
    const char *attempt = file != NULL ? strstr(file, "/attempt_") : NULL;

    if (attempt == NULL || cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "torchrun of %.*s", (int)(attempt - file), file);
    out->is_restart = true;
    return true;
}

static bool name_of_slurm(struct cddpi_job_name *out)
{
    const char *job = cddpi_launch_variable("SLURM_JOB_ID");
    const char *step = cddpi_launch_variable("SLURM_STEP_ID");

    if (job == NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "Slurm %s%s%s", job, step != NULL ? "." : "",
             step != NULL ? step : "");
    out->is_restart = is_above_zero("SLURM_RESTART_COUNT");
    return true;
}

int cddpi_job_names(struct cddpi_job_name out[CDDPI_JOB_NAMES])
{
    static bool (*const rows[CDDPI_JOB_NAMES])(struct cddpi_job_name *) = {
        name_of_cddp, name_of_torchrun, name_of_agent, name_of_slurm};
    int count = 0;

    for (int i = 0; i < CDDPI_JOB_NAMES; i++) {
        count += rows[i](&out[count]) ? 1 : 0;
    }
    return count;
}
