/* job_rendezvous.c - owns the job's store server and the port that torch.distributed will bind. */
#include "launcher/nodes/job_rendezvous.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    cddp_status status;

    cddpi_rendezvous_clear(out);
    status = cddpi_rendezvous_serve("127.0.0.1", 0, world_size, out);
    if (status == CDDP_OK) {
        snprintf(out->store, sizeof out->store, "tcp://127.0.0.1:%u",
                 cddpi_store_server_port(out->server));
        snprintf(out->master_host, sizeof out->master_host, "127.0.0.1");
    }
    return status;
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

        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    rendezvous->master_fd = fd;
    rendezvous->master_port = ntohs(address.sin_port);
    return CDDP_OK;
}

void cddpi_rendezvous_release(struct cddpi_job_rendezvous *rendezvous)
{
    if (rendezvous->master_fd >= 0) {
        close(rendezvous->master_fd);
    }
    rendezvous->master_fd = -1;
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

void cddpi_rendezvous_tell(const struct cddpi_job_rendezvous *rendezvous, int generation,
                           const char *text)
{
    set_key(rendezvous, generation, "failure", text);
}

void cddpi_rendezvous_tell_end(const struct cddpi_job_rendezvous *rendezvous, int generation,
                               int rank)
{
    char name[32];

    snprintf(name, sizeof name, "ended/%d", rank);
    set_key(rendezvous, generation, name, "0");
}
