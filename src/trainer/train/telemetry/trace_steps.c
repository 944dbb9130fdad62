/* trace_steps.c - owns the beginning of a run's trace. */
#include "train/telemetry/trace_steps.h"

#include "base/env.h"
#include "base/error.h"
#include "group/watch/group_trace.h"

/* Barriers in a row. From each, the program that merges traces knows that no rank left before all
 * had entered, so the clock offsets are known as precisely as the fastest barrier allows. */
enum { CLOCK_BARRIERS = 8 };

cddp_status cddpi_trainer_check_trace(const struct cddpi_config *config)
{
    uint64_t first;
    uint64_t last;

    if (config->train.trace[0] != '\0' &&
        cddpi_trace_parse(config->train.trace, &first, &last) != CDDP_OK) {
        return cddpi_config_fail(config, "train.trace", "\"%.40s\" are not steps: \"10-20\" is",
                                 config->train.trace);
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_open_trace(struct cddpi_trainer *trainer)
{
    const char *text = trainer->config->train.trace;
    uint64_t first;
    uint64_t last;
    cddp_status status;

    if (text[0] == '\0') {
        text = cddpi_env(CDDPI_ENV_TRACE);
    }
    if (text == NULL) {
        return CDDP_OK;
    }
    status = cddpi_trace_parse(text, &first, &last);
    return status == CDDP_OK ? cddpi_trace_open(trainer->group, first, last)
                             : cddpi_fail_prefix(status, "CDDP_TRACE");
}

cddp_status cddpi_trainer_trace_step(struct cddpi_trainer *trainer)
{
    bool begins = false;
    cddp_status status = CDDP_OK;

    cddpi_trace_step(trainer->group, trainer->cursor.step + 1, &begins);
    for (int i = 0; begins && i < CLOCK_BARRIERS && status == CDDP_OK; i++) {
        status = cddp_barrier(trainer->group, NULL);
    }
    return status;
}
