/* job_rendezvous.c - owns the job's store server and the port that torch.distributed will bind. */
#include "launcher/nodes/job_rendezvous.h"

#include "launcher/output/hide_token.h"

#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "store/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static cddp_status check_characters(const char *token, size_t bytes, const char *where)
{
    for (size_t i = 0; i < bytes; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "the token in %s may have letters, digits and signs only", where);
        }
    }
    return bytes <= CDDPI_TOKEN_BYTES
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "the token in %s has more than %d characters", where,
                            CDDPI_TOKEN_BYTES);
}

static cddp_status check_mode(int fd, const char *path)
{
    struct stat status;

    if (fstat(fd, &status) != 0) {
        return cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    return (status.st_mode & 0077) == 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_CONFIG,
                            "%s may be read by others (mode %04o), and so is no secret: chmod 600 "
                            "%s, and change the token",
                            path, (unsigned)status.st_mode & 07777, path);
}

static cddp_status read_file(const char *path, char out[CDDPI_TOKEN_BYTES + 1])
{
    char text[4096];
    ssize_t bytes;
    size_t mark;
    int fd;
    cddp_status status;

    if (cddpi_file_open_regular(path, O_RDONLY, 0, &fd) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_CONFIG, "--token-file %s", path);
    }
    status = check_mode(fd, path);
    bytes = status == CDDP_OK ? read(fd, text, sizeof text - 1) : 0;
    if (bytes < 0) {
        status = cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    close(fd);
    CDDPI_TRY(status);
    text[bytes] = '\0';
    mark = cddpi_utf8_mark(text, (size_t)bytes);
    memmove(text, text + mark, (size_t)bytes + 1 - mark);
    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] == '\0') {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: its first line is empty", path);
    }
    CDDPI_TRY(check_characters(text, strlen(text), path));
    memcpy(out, text, strlen(text) + 1);
    return CDDP_OK;
}

cddp_status cddpi_token_read(const char *path, char out[CDDPI_TOKEN_BYTES + 1])
{
    const char *token = cddpi_env(CDDPI_ENV_TOKEN);

    out[0] = '\0';
    if (path != NULL) {
        return read_file(path, out);
    }
    if (token == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_characters(token, strlen(token), "$CDDP_TOKEN"));
    memcpy(out, token, strlen(token) + 1);
    return CDDP_OK;
}

static bool is_loopback(const char *rdzv)
{
    static const char *const begins[] = {"tcp://127.", "tcp://[::1]:", "tcp://localhost:"};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (strncmp(rdzv, begins[i], strlen(begins[i])) == 0) {
            return strchr(rdzv, ',') == NULL;
        }
    }
    return false;
}

cddp_status cddpi_token_suits(const char *token, const char *option, const char *rdzv)
{
    char what[300];

    if (token[0] == '\0') {
        return CDDP_OK;
    }
    if (!is_loopback(rdzv)) {
        snprintf(what, sizeof what, "%s %.250s", option, rdzv);
        return cddpi_token_check(token, what);
    }
    if (strlen(token) < CDDPI_SECRET_LEAST) {
        cddpi_log(CDDPI_LOG_WARN,
                  "the token has fewer than %d characters: it is too short to be hidden in what "
                  "ranks print",
                  CDDPI_SECRET_LEAST);
    }
    return CDDP_OK;
}

enum {
    RANK_FILES = 5, /* opened per rank: two output pipes, exec pipe, pidfd, log */
    START_FILES = 12,
    LATER_FILES = 4 /* for example to look for orphans */
};

static int descriptors_of(int world_size)
{
    return START_FILES + RANK_FILES * world_size;
}

void cddpi_rendezvous_clear(struct cddpi_job_rendezvous *rendezvous)
{
    *rendezvous = (struct cddpi_job_rendezvous){.master_fd = -1};
}

void cddpi_rendezvous_leave_room(const struct cddpi_job_rendezvous *rendezvous, int world_size)
{
    if (rendezvous->server != NULL) {
        cddpi_store_server_reserve(rendezvous->server,
                                   world_size > 0 ? descriptors_of(world_size) : LATER_FILES);
    }
}

cddp_status cddpi_rendezvous_init(int world_size, struct cddpi_job_rendezvous *out)
{
    cddpi_rendezvous_clear(out);
    CDDPI_TRY(cddpi_rendezvous_serve("127.0.0.1", 0, world_size, out));
    snprintf(out->store, sizeof out->store, "tcp://127.0.0.1:%u",
             cddpi_store_server_port(out->server));
    snprintf(out->master_host, sizeof out->master_host, "127.0.0.1");
    return CDDP_OK;
}

cddp_status cddpi_rendezvous_serve(const char *host, uint16_t port, int world_size,
                                   struct cddpi_job_rendezvous *out)
{
    struct cddpi_store_server_options options = {
        .host = host != NULL ? host : "::", .port = port, .reserved = descriptors_of(world_size)};

    if (out->token[0] == '\0') {
        cddpi_store_token(out->token);
    }
    options.token = out->token;
    cddpi_store_token(out->job);
    out->job[16] = '\0'; /* 64 bits are enough to distinguish jobs; only the token is secret */
    return cddpi_store_server_create(&options, &out->server);
}

void cddpi_rendezvous_fini(struct cddpi_job_rendezvous *rendezvous)
{
    cddpi_rendezvous_release(rendezvous);
    cddp_store_close(rendezvous->board);
    rendezvous->board = NULL;
    cddpi_store_server_destroy(rendezvous->server);
    rendezvous->server = NULL;
}

cddp_status cddpi_rendezvous_reserve(struct cddpi_job_rendezvous *rendezvous)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int yes = 1;
    int fd;

    cddpi_rendezvous_release(rendezvous);
    address.sin_addr.s_addr = htonl(rendezvous->link != NULL ? INADDR_ANY : INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, errno, "choosing a free port");

        cddpi_fd_close(&fd);
        return status;
    }
    rendezvous->master_fd = fd;
    rendezvous->master_port = ntohs(address.sin_port);
    return CDDP_OK;
}

void cddpi_rendezvous_release(struct cddpi_job_rendezvous *rendezvous)
{
    cddpi_fd_close(&rendezvous->master_fd);
}

static void set_key(const struct cddpi_job_rendezvous *rendezvous, int generation, const char *name,
                    const char *text)
{
    char key[96];

    snprintf(key, sizeof key, "%s/%d/%s", rendezvous->job, generation, name);
    if (rendezvous->server == NULL) {
        cddpi_node_link_set(rendezvous->link, key, text);
    } else if (cddpi_store_server_set(rendezvous->server, key, text, strlen(text)) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "telling the ranks (%s): %s", name, cddp_last_error());
    }
}

void cddpi_rendezvous_forget(const struct cddpi_job_rendezvous *rendezvous, int generation)
{
    char start[64];

    if (rendezvous->server != NULL && generation > 2) {
        snprintf(start, sizeof start, "%s/%d/", rendezvous->job, generation - 2);
        cddpi_store_server_forget(rendezvous->server, start);
    }
}

void cddpi_rendezvous_tell(const struct cddpi_job_rendezvous *rendezvous, int generation,
                           const char *text)
{
    set_key(rendezvous, generation, "failure", text);
}

void cddpi_rendezvous_tell_end(const struct cddpi_job_rendezvous *rendezvous, int generation,
                               int rank, int exit_status, const char *line)
{
    char name[32];
    char text[256];

    snprintf(name, sizeof name, "ended/%d", rank);
    snprintf(text, sizeof text, "%d%s%s", exit_status, line[0] != '\0' ? "\n" : "", line);
    set_key(rendezvous, generation, name, text);
}
