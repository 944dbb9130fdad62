/* info.h - what cddp-run prints about itself and the machine: --env and --check. */
#ifndef CDDPI_LAUNCHER_INFO_H
#define CDDPI_LAUNCHER_INFO_H

/** Every environment variable that cddp reads: name, default, value now, sentence. */
void cddpi_info_env(void);

/** What was found on this machine. Returns the exit status: 0 unless stdout fails. */
int cddpi_info_check(void);

/** check_machine.c: processors, memory, limits, and what processes may do to each other. */
void cddpi_check_processors(void);
void cddpi_check_memory(void);
void cddpi_check_limits(void);
void cddpi_check_processes(void);

#endif
