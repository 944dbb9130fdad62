/* device_module_loader.h - opening the CUDA module, inside src/device. */
#ifndef CDDPI_DEVICE_MODULE_LOADER_H
#define CDDPI_DEVICE_MODULE_LOADER_H

#include "base/module_loader.h"
#include "device/device_module.h"

/** The module, opened once a process; it is never closed. CDDP_ERR_UNAVAILABLE: where it was looked
 *  for and why that failed. Opening it calls nothing of CUDA. Any thread. */
cddp_status cddpi_module_open(const struct cddpi_module **out);

/** Run @p probe in a child process, and read the text that it writes to @p fd: a driver must not
 *  be touched before a fork, and may hang or crash. Release the text with cddpi_free(). NULL, with
 *  the error's text: the child hung or crashed. */
char *cddpi_probe_child(void (*probe)(int fd), uint32_t timeout_ms);

#endif
