/* tfevents.h - writes scalars in TensorBoard's event file format. */
#ifndef CDDPI_TRAIN_REPORT_TFEVENTS_H
#define CDDPI_TRAIN_REPORT_TFEVENTS_H

#include <cddp/status.h>

struct cddpi_tfevents;

/** Create the file events.out.tfevents.TIME.HOST.PID in @p dir.
 *  @param first_step  In a resumed run, TensorBoard forgets events of earlier files from this step
 *                     on. 0: the run is new. */
CDDP_CHECKED cddp_status cddpi_tfevents_open(const char *dir, uint64_t first_step,
                                             struct cddpi_tfevents **out);
void cddpi_tfevents_close(struct cddpi_tfevents *events); /* accepts NULL */

/** Add one event with @p count scalars, each named @p prefix/name. */
CDDP_CHECKED cddp_status cddpi_tfevents_add(struct cddpi_tfevents *events, uint64_t step,
                                            const char *prefix, const char *const *names,
                                            const double *values, size_t count);

/** CRC-32C (Castagnoli), as in iSCSI, and TensorFlow's masked form of it. */
uint32_t cddpi_crc32c(const void *data, size_t bytes);
uint32_t cddpi_crc32c_masked(const void *data, size_t bytes);

#endif
