/* convert_verify.h - owns cddp-convert --verify: whether the checkpoints of a run are whole. */
#ifndef CDDPI_PROGRAMS_CONVERT_VERIFY_H
#define CDDPI_PROGRAMS_CONVERT_VERIFY_H

#include <cddp/status.h>

/** Check @p path: a run's folder, its folder of checkpoints, one checkpoint, or a safetensors file.
 *  Print a line about each checkpoint.
 *  @return CDDP_OK; an error if anything is damaged, or if there is nothing to check. */
CDDP_CHECKED cddp_status cddpi_convert_verify(const char *path);

#endif
