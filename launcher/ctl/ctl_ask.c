/* ctl_ask.c - sends a request of cddp-ctl, and reads the answer. */
#include "launcher/ctl/ctl_ask.h"

#include "launcher/ctl/ctl_remote.h"
#include "launcher/ctl/ctl_socket.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <sys/socket.h>

static cddp_status send_request(int fd, const char *dir, const struct cddpi_ctl_request *request)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    cddp_status status = cddpi_message_encode(&cddpi_ctl_request_form, request, &message);

    if (status == CDDP_OK && send(fd, message.data, message.bytes, MSG_NOSIGNAL) < 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "asking the cddp-run of %s", dir);
    }
    cddpi_buffer_fini(&message);
    return status;
}

/* Texts of an answer may come from others, such as the names of hosts. */
static void clean(struct cddpi_ctl_answer *answer)
{
    cddpi_text_clean(answer->text, sizeof answer->text, true);
    cddpi_text_clean(answer->job, sizeof answer->job, true);
    cddpi_text_clean(answer->reason, sizeof answer->reason, true);
    cddpi_text_clean(answer->ending, sizeof answer->ending, true);
    for (int i = 0; i < answer->count; i++) {
        cddpi_text_clean(answer->rows[i].host, sizeof answer->rows[i].host, true);
    }
}

static cddp_status receive_answer(int fd, const char *dir, uint32_t timeout_ms, uint8_t *data,
                                  size_t room, struct cddpi_ctl_answer *out)
{
    ssize_t got;

    do {
        got = recv(fd, data, room, MSG_TRUNC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        return cddpi_fail(CDDP_ERR_TIMEOUT,
                          "the cddp-run of %s has not answered within %g s (--timeout)", dir,
                          timeout_ms / 1000.0);
    }
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
        return cddpi_fail(CDDP_ERR_CLOSED, "the cddp-run of %s ended without an answer", dir);
    }
    if (got < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "the answer of the cddp-run of %s", dir);
    }
    if ((size_t)got > room) {
        return cddpi_fail(CDDP_ERR_FORMAT, "the answer of the cddp-run of %s is too long", dir);
    }
    if (cddpi_message_decode(&cddpi_ctl_answer_form, data, (size_t)got, out) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_FORMAT, "the answer of the cddp-run of %s", dir);
    }
    return CDDP_OK;
}

static cddp_status ask_in_folder(const char *dir, const struct cddpi_ctl_request *request,
                                 uint32_t timeout_ms, struct cddpi_ctl_answer *out)
{
    size_t room = CDDPI_CTL_ANSWER_BYTES + CDDPI_MESSAGE_HEAD_BYTES;
    uint8_t *data;
    int fd = -1;
    cddp_status status;

    CDDPI_TRY(cddpi_ctl_socket_connect(dir, timeout_ms, &fd));
    data = cddpi_zalloc(room);
    status = data != NULL ? send_request(fd, dir, request)
                          : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for an answer");
    if (status == CDDP_OK) {
        status = receive_answer(fd, dir, timeout_ms, data, room, out);
    }
    cddpi_free(data);
    cddpi_fd_close(&fd);
    return status;
}

cddp_status cddpi_ctl_ask(const struct cddpi_ctl_job *job, const struct cddpi_ctl_request *request,
                          uint32_t timeout_ms, struct cddpi_ctl_answer *out)
{
    CDDPI_TRY(job->remote != NULL ? cddpi_ctl_remote_ask(job->remote, request, timeout_ms, out)
                                  : ask_in_folder(job->name, request, timeout_ms, out));
    clean(out);
    return CDDP_OK;
}
