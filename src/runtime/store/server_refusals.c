/* server_refusals.c - owns the list of clients that the TCP store's server has refused. */
#include "store/server_refusals.h"

#include "base/clock.h"
#include "base/log.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LOGGED = 20 };

static const char *const texts[] = {
    [CDDPI_REFUSED_TOKEN] = "it does not know the job's token",
    [CDDPI_REFUSED_VERSION] = "it speaks another version of the protocol",
    [CDDPI_REFUSED_CIPHER] = "CDDP_CIPHER leaves no cipher that both sides can use",
};

const char *cddpi_refused_text(enum cddpi_refused why)
{
    return texts[why];
}

/* Get the client's address without the port, which differs with each connection. */
static void get_address(int fd, char *out, size_t bytes)
{
    static const char of_v4[] = "::ffff:";
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;

    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0 ||
        getnameinfo((struct sockaddr *)&address, length, out, (socklen_t)bytes, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        snprintf(out, bytes, "unknown address");
    } else if (strncmp(out, of_v4, strlen(of_v4)) == 0) {
        memmove(out, out + strlen(of_v4), strlen(out) + 1 - strlen(of_v4));
    }
}

void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why)
{
    struct cddpi_store_refusal row = {.why = why, .count = 1, .last_ns = cddpi_now_ns()};
    int at = 0;

    get_address(fd, row.address, sizeof row.address);
    while (at < refusals->count && (refusals->rows[at].why != why ||
                                    strcmp(refusals->rows[at].address, row.address) != 0)) {
        at++;
    }
    if (at < refusals->count) {
        row.count += refusals->rows[at].count;
    } else {
        if (refusals->logged++ < LOGGED) {
            cddpi_log(CDDPI_LOG_WARN, "store server: refused a client from %s: %s", row.address,
                      texts[why]);
        }
        if (refusals->count < CDDPI_STORE_REFUSALS) {
            refusals->count++;
        } else {
            at--; /* replace the oldest row */
        }
    }
    memmove(&refusals->rows[1], &refusals->rows[0], (size_t)at * sizeof refusals->rows[0]);
    refusals->rows[0] = row;
}
