/* moment.h - measures the parts of a step on the processor. */
#ifndef CDDPI_TRAIN_MOMENT_H
#define CDDPI_TRAIN_MOMENT_H

#include "train/trainer.h"

/* A moment, and this rank's exposed communication up to then. On the processor a part of a step is
 * the time between two moments without the communication exposed between them, so that no time is
 * in two parts. */
struct cddpi_moment {
    int64_t now_ns;
    uint64_t exposed_ns; /* of all reducers of the rank */
};

struct cddpi_moment cddpi_moment_now(const struct cddpi_trainer *trainer);
/** Nanoseconds from @p begin to @p end, without exposed communication. */
int64_t cddpi_moment_work_ns(const struct cddpi_moment *begin, const struct cddpi_moment *end);

#endif
