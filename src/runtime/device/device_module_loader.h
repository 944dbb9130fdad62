/* device_module_loader.h - opens the CUDA module. Used only inside src/runtime/device. */
#ifndef CDDPI_DEVICE_MODULE_LOADER_H
#define CDDPI_DEVICE_MODULE_LOADER_H

#include "base/module_loader.h"
#include "device/device_module.h"

/** Open the module, once per process; it is never closed. Opening it calls no CUDA function.
 *  CDDP_ERR_UNAVAILABLE: the text says where it was searched and why that failed. Any thread. */
cddp_status cddpi_module_open(const struct cddpi_module **out);

/** Run @p probe in a child process and return the text that it writes to @p fd. A child is needed
 *  because a driver must not be touched before a fork, and because it may hang or crash. Release
 *  the text with cddpi_free(). NULL: the child hung or crashed; the error's text says so. */
char *cddpi_probe_child(void (*probe)(int fd), uint32_t timeout_ms);

#endif
