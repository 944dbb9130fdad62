/* rejoin_wire.h - what a rank and its launcher tell each other when the rank's process stays, and
 * gets a place in the job's next generation. The rank's end of a socket that keeps the bounds of
 * messages (SOCK_SEQPACKET) is CDDP_REJOIN_FD.
 *
 * The rank sends one byte: why its generation has ended for it. The launcher counts that as an exit
 * with this status. It closes the socket if the process is to exit, or answers with the
 * environment: "NAME=value" to set a variable and "NAME" to remove it, each ended by NUL. The rank
 * forgets which signals the launcher has sent, and says that it is ready. Those that the launcher
 * has sent since its answer are of the next generation, and it sends the last one again. */
#ifndef CDDPI_BASE_REJOIN_WIRE_H
#define CDDPI_BASE_REJOIN_WIRE_H

enum {
    CDDPI_REJOIN_BYTES = 1 << 15, /* of the longest answer */
    CDDPI_REJOIN_FAILED = 1,      /* another rank was lost */
    CDDPI_REJOIN_STOPPED = 3,     /* the rank was asked to stop, and has */
    CDDPI_REJOIN_READY = 255
};

#endif
