/* parcel.c - owns the encoding of parcels, and their unpacking. */
#include "launcher/hosts/parcel.h"

#include "launcher/hosts/host_list.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECEIVE_MS = 60000, VARIABLE_BYTES = 1 << 17 };

#define PARCEL struct cddpi_parcel

static const struct cddpi_field variable_fields[] = {
    {.type = CDDPI_FIELD_STRING, .bytes = VARIABLE_BYTES},
    {.type = CDDPI_FIELD_END},
};

CDDPI_MESSAGE_FORM(cddpi_parcel_form, PARCEL, PARCEL, CDDPI_PARCEL_BYTES,
                   CDDPI_STRING(PARCEL, token, CDDPI_TOKEN_BYTES + 1),
                   CDDPI_STRING(PARCEL, folder, PATH_MAX),
                   CDDPI_STRING(PARCEL, host, CDDPI_HOST_BYTES),
                   CDDPI_LIST(PARCEL, variables, variable_count, CDDPI_PARCEL_VARIABLES,
                              variable_fields));

cddp_status cddpi_parcel_unpack(struct cddpi_job *job, const struct cddpi_parcel *parcel)
{
    static char host[CDDPI_HOST_BYTES];

    for (int i = 0; i < parcel->variable_count; i++) {
        char *name = parcel->variables[i];
        char *value = strchr(name, '=');

        if (value == NULL || value == name) {
            return cddpi_fail(CDDP_ERR_FORMAT, "\"%.100s\" is not NAME=value", name);
        }
        *value = '\0';
        if (setenv(name, value + 1, 1) != 0) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "the variable %s", name);
        }
    }
    snprintf(host, sizeof host, "%s", parcel->host);
    snprintf(job->rendezvous.token, sizeof job->rendezvous.token, "%s", parcel->token);
    job->host = host;
    return CDDP_OK;
}

/* Read exactly @p bytes from standard input. */
static cddp_status read_all(uint8_t *to, size_t bytes, int64_t deadline_ns)
{
    size_t have = 0;

    while (have < bytes) {
        struct pollfd input = {STDIN_FILENO, POLLIN, 0};
        ssize_t got = poll(&input, 1, cddpi_left_ms(deadline_ns)) > 0
                          ? read(STDIN_FILENO, to + have, bytes - have)
                          : -1;

        if (got < 0 && input.revents != 0 && errno != EAGAIN && errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "--agent: standard input");
        }
        if (got == 0 || cddpi_left_ms(deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_IO,
                              "--agent: the token did not come on standard input: this option is "
                              "for cddp-run --hosts, and --ssh has to pass standard input on");
        }
        have += got > 0 ? (size_t)got : 0;
    }
    return CDDP_OK;
}

/* Keep standard input as head_fd, to see when it ends. Processes that we start get /dev/null. */
static cddp_status keep_input(struct cddpi_job *job)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    job->head_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (job->head_fd < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "--agent: standard input");
    }
    close(null);
    return CDDP_OK;
}

/* Read the whole parcel into @p out. */
static cddp_status read_parcel(struct cddpi_wire_buffer *out)
{
    int64_t deadline_ns = cddpi_deadline_ns(RECEIVE_MS);
    uint8_t head[CDDPI_MESSAGE_HEAD_BYTES];
    size_t bytes = 0;

    CDDPI_TRY(read_all(head, sizeof head, deadline_ns));
    if (cddpi_message_read_head(&cddpi_parcel_form, head, &bytes) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_FORMAT, "--agent: what comes on standard input is not "
                                                  "understood");
    }
    if (!cddpi_buffer_reserve(out, sizeof head + bytes)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    }
    cddpi_buffer_append(out, head, sizeof head);
    CDDPI_TRY(read_all(out->data + sizeof head, bytes, deadline_ns));
    out->bytes += bytes;
    return CDDP_OK;
}

cddp_status cddpi_parcel_receive(struct cddpi_job *job)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    struct cddpi_parcel parcel = {.token = NULL};
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, read_parcel(&message));
    status = cddpi_message_decode(&cddpi_parcel_form, message.data, message.bytes, &parcel);
    if (status == CDDP_OK) {
        status = cddpi_parcel_unpack(job, &parcel);
    }
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status,
                                   "--agent: what came on standard input is not understood");
        goto out;
    }
    status = chdir(parcel.folder) == 0
                 ? keep_input(job)
                 : cddpi_fail_errno(CDDP_ERR_NOT_FOUND, errno,
                                    "%s: the folder %s, where cddp-run was started, is not there",
                                    job->host, parcel.folder);

out:
    cddpi_message_fini(&cddpi_parcel_form, &parcel);
    cddpi_buffer_fini(&message);
    return status;
}
