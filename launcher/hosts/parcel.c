/* parcel.c - owns the form of a parcel, and its unpacking. */
#include "launcher/hosts/parcel.h"

#include "launcher/hosts/host_list.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_BYTES = 12, RECEIVE_MS = 60000, VARIABLE_BYTES = 1 << 17 };

#define PARCEL_MAGIC UINT64_C(0x316c656372617063) /* "cparcel1" */

cddp_status cddpi_parcel_pack(const struct cddpi_parcel *parcel, struct cddpi_message *out)
{
    static const uint8_t empty[HEAD_BYTES];
    struct cddpi_message message = {{NULL, 0, 0}, false};

    if (!cddpi_buffer_reserve(&message.buffer, HEAD_BYTES)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what other machines get");
    }
    cddpi_buffer_append(&message.buffer, empty, HEAD_BYTES);
    cddpi_message_put_text(&message, parcel->token);
    cddpi_message_put_text(&message, parcel->folder);
    cddpi_message_put_text(&message, parcel->host);
    cddpi_message_put_number(&message, parcel->variable_count);
    for (int i = 0; i < parcel->variable_count; i++) {
        cddpi_message_put_text(&message, parcel->variables[i]);
    }
    if (message.is_cut || message.buffer.bytes > CDDPI_PARCEL_BYTES) {
        cddpi_buffer_fini(&message.buffer);
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "the variables for other machines have more than %d "
                          "bytes",
                          CDDPI_PARCEL_BYTES);
    }
    cddpi_put_u64(message.buffer.data, PARCEL_MAGIC);
    cddpi_put_u32(message.buffer.data + 8, (uint32_t)(message.buffer.bytes - HEAD_BYTES));
    *out = message;
    return CDDP_OK;
}

/* Put "NAME=value" into the environment. False if it is none. */
static bool set_variable(char *text)
{
    char *value = strchr(text, '=');

    if (value == NULL || value == text) {
        return false;
    }
    *value++ = '\0';
    return setenv(text, value, 1) == 0;
}

cddp_status cddpi_parcel_unpack(struct cddpi_job *job, const uint8_t *data, size_t bytes,
                                const char **out_folder)
{
    static char folder[PATH_MAX];
    static char host[CDDPI_HOST_BYTES];
    struct cddpi_message_reader reader = {data, bytes, false};
    char *variable = cddpi_zalloc(VARIABLE_BYTES);
    int64_t count;

    if (variable == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for variables");
    }
    cddpi_message_text(&reader, job->rendezvous.token, sizeof job->rendezvous.token);
    cddpi_message_text(&reader, folder, sizeof folder);
    cddpi_message_text(&reader, host, sizeof host);
    count = cddpi_message_number(&reader, 0, CDDPI_PARCEL_VARIABLES);
    for (int64_t i = 0; i < count && !reader.is_bad; i++) {
        cddpi_message_text(&reader, variable, VARIABLE_BYTES);
        reader.is_bad = reader.is_bad || !set_variable(variable);
    }
    cddpi_free(variable);
    if (reader.is_bad || reader.left > 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "--agent: what came on standard input is not understood");
    }
    job->host = host;
    *out_folder = folder;
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

/* Keep standard input to see its end; what we start gets none. */
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

cddp_status cddpi_parcel_receive(struct cddpi_job *job)
{
    int64_t deadline_ns = cddpi_deadline_ns(RECEIVE_MS);
    uint8_t head[HEAD_BYTES];
    uint8_t *data = NULL;
    size_t bytes = 0;
    const char *folder = NULL;
    cddp_status status = read_all(head, sizeof head, deadline_ns);

    if (status == CDDP_OK) {
        bytes = cddpi_get_u32(head + 8);
        if (cddpi_get_u64(head) != PARCEL_MAGIC || bytes > CDDPI_PARCEL_BYTES) {
            status = cddpi_fail(CDDP_ERR_FORMAT,
                                "--agent: what comes on standard input is not understood");
        }
    }
    if (status == CDDP_OK) {
        data = cddpi_zalloc(bytes + 1);
        status = data != NULL ? read_all(data, bytes, deadline_ns)
                              : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    }
    if (status == CDDP_OK) {
        status = cddpi_parcel_unpack(job, data, bytes, &folder);
    }
    cddpi_free(data);
    if (status == CDDP_OK && chdir(folder) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_NOT_FOUND, errno,
                                  "%s: the folder %s, where cddp-run was started, is not there",
                                  job->host, folder);
    }
    return status == CDDP_OK ? keep_input(job) : status;
}
