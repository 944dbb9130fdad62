/* machine.h - which machine this is. */
#ifndef CDDPI_BASE_MACHINE_H
#define CDDPI_BASE_MACHINE_H

enum {
    CDDPI_MACHINE_BYTES = 64,
    CDDPI_MACHINE_RANKS = 512 /* that share memory, at most */
};

/** The running kernel's own number, else the host's name: equal for all processes of a machine,
 * those in other containers among them, and different from all other machines'. Any thread. */
void cddpi_machine(char out[CDDPI_MACHINE_BYTES]);

#endif
