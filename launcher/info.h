/* info.h - what cddp-run prints about itself and the machine: --env and --check. */
#ifndef CDDPI_LAUNCHER_INFO_H
#define CDDPI_LAUNCHER_INFO_H

/** Print every environment variable that cddp reads: name, default, current value, description. */
void cddpi_info_env(void);

/** Print what was found on this machine. Returns the exit status: 0 unless writing to stdout
 *  fails. */
int cddpi_info_check(void);

#endif
