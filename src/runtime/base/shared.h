/* shared.h - marks the private functions that libcddp-model.so calls in libcddp.so. Functions with
 * CDDP_CHECKED are visible anyway. Which ones libcddp.so really shows says src/runtime/cddp.map. */
#ifndef CDDPI_SHARED_H
#define CDDPI_SHARED_H

#define CDDPI_SHARED __attribute__((visibility("default")))

#endif
