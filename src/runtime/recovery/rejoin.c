/* rejoin.c - lets this process stay when its job has lost ranks, as a rank of the next generation.
 * The launcher's side is launcher/supervise/held_ranks.c. */
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "base/rejoin_wire.h"
#include "group/group.h"

#include <cddp/process.h>
#include <cddp/recovery.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Whether a loop that ended with @p why may go on with other ranks: it was asked to stop, or others
 * have failed. */
static bool is_by_others(cddp_status why)
{
    return why == CDDP_OK || why == CDDP_ERR_PEER || why == CDDP_ERR_TIMEOUT ||
           why == CDDP_ERR_BROKEN;
}

/* Set or remove one variable. @p text is changed. A value of the same length is written in the
 * place of the old one: there /proc/PID/environ reads it, by which people and tools tell ranks. */
static bool set_variable(char *text)
{
    char *equals = strchr(text, '=');
    char *old;

    if (equals == NULL) {
        return unsetenv(text) == 0;
    }
    *equals = '\0';
    old = getenv(text);
    if (old != NULL && strlen(old) == strlen(equals + 1)) {
        memcpy(old, equals + 1, strlen(old));
        return true;
    }
    return setenv(text, equals + 1, 1) == 0;
}

static cddp_status set_environment(char *text, size_t bytes)
{
    size_t length;

    for (size_t at = 0; at < bytes; at += length + 1) {
        length = strlen(text + at); /* set_variable() changes it */
        if (!set_variable(text + at)) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                    "recovery_rejoin: the environment of the next generation");
        }
    }
    return CDDP_OK;
}

/* Ask for a place, and wait for it as long as the launcher keeps the socket open. */
static cddp_status ask(int fd, unsigned char exit_status)
{
    char text[CDDPI_REJOIN_BYTES + 1];
    ssize_t got;

    if (send(fd, &exit_status, 1, MSG_NOSIGNAL) != 1) {
        return cddpi_fail(CDDP_ERR_CLOSED, "the launcher keeps this process no longer");
    }
    do {
        got = recv(fd, text, sizeof text, 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0 || got > CDDPI_REJOIN_BYTES) {
        return cddpi_fail(CDDP_ERR_CLOSED,
                          "the job ends, or has no place for this process in its next generation");
    }
    text[got - 1] = '\0';
    return set_environment(text, (size_t)got);
}

cddp_status cddp_recovery_rejoin(cddp_status why)
{
    int fd = cddpi_launcher_rejoin_fd();
    const unsigned char ready = CDDPI_REJOIN_READY;
    cddp_status status;

    if (!is_by_others(why)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "recovery_rejoin: %s is no failure of another rank: let the process end, "
                          "so that a new one takes its place",
                          cddp_status_name(why));
    }
    if (fd < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "recovery_rejoin: no launcher keeps this process (cddp-run does, if it "
                          "has started the process itself, with --max-restarts, --elastic or "
                          "--nnodes MIN:MAX)");
    }
    if (cddpi_group_any()) {
        return cddpi_fail(CDDP_ERR_STATE, "recovery_rejoin: destroy the process's groups before");
    }
    cddpi_stop_hold();
    status = ask(fd, why == CDDP_OK ? CDDPI_REJOIN_STOPPED : CDDPI_REJOIN_FAILED);
    if (status == CDDP_OK) {
        cddpi_launcher_report_anew();
    }
    cddpi_stop_release(status == CDDP_OK);
    CDDPI_TRY(status);
    (void)!send(fd, &ready, 1, MSG_NOSIGNAL); /* if the launcher is gone, this process ends soon */
    cddpi_log(CDDPI_LOG_INFO, "this process stays, as rank %s of generation %s",
              getenv("CDDP_RANK"), getenv("CDDP_GENERATION"));
    return CDDP_OK;
}
