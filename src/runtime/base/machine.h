/* machine.h - identifies this machine. */
#ifndef CDDPI_BASE_MACHINE_H
#define CDDPI_BASE_MACHINE_H

enum {
    CDDPI_MACHINE_BYTES = 64,
    CDDPI_MACHINE_RANKS = 512 /* the most ranks that can share memory */
};

/** The boot id of the running kernel, else the host name. It is equal for all processes of a
 *  machine, including those in other containers, and different on every other machine. Any
 *  thread. */
void cddpi_machine(char out[CDDPI_MACHINE_BYTES]);

#endif
