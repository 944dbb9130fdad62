/* fuzz_store_server.c - what two clients may send to the store's server, in pieces and in turns.
 * The first byte says who proves the token (bits 0 and 1); the rest are pieces: a byte with the
 * client (bit 0), whether it leaves its replies unread (bit 1) and whether the launcher sets a key
 * before (bit 2), a byte with a length, and so many bytes. */
#include "fuzz/fuzz.h"
#include "store/server_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 2, PROVES = 1, DEAF = 2, SETS = 4 };

static struct cddpi_client_host host;
static int peers[CLIENTS]; /* the clients' ends */

/* Serve until nothing is to be done. */
static void run(void)
{
    struct epoll_event events[CLIENTS];
    int count;

    while ((count = epoll_wait(host.epoll_fd, events, CLIENTS, 0)) > 0) {
        for (int i = 0; i < count; i++) {
            cddpi_client_event(&host, events[i].data.ptr, events[i].events);
        }
        cddpi_client_reap(&host);
    }
}

static void send_all(int fd, const uint8_t *data, size_t size)
{
    (void)!send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    run();
}

static void drain(int fd)
{
    uint8_t bytes[4096];

    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        run();
    }
}

static void prove(int fd)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];
    uint8_t answer[CDDPI_WIRE_ANSWER_BYTES] = {0};
    uint8_t *nonce = answer + 16;

    fuzz_check(recv(fd, hello, sizeof hello, MSG_DONTWAIT) == sizeof hello, "no greeting");
    cddpi_put_u64(answer, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(answer + 8, CDDPI_WIRE_VERSION);
    cddpi_auth_make(host.key, "client", hello + 16, nonce, nonce + CDDPI_NONCE_BYTES);
    send_all(fd, answer, sizeof answer);
}

static void set_up(uint8_t who)
{
    host = (struct cddpi_client_host){.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                                      .table = cddpi_table_create()};
    cddpi_auth_key("token", "cddp tcp store", host.key);
    fuzz_check(host.epoll_fd >= 0 && host.table != NULL, "no server");
    for (int i = 0; i < CLIENTS; i++) {
        int ends[2];

        fuzz_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
                   "no sockets");
        peers[i] = ends[1];
        cddpi_client_accept(&host, ends[0], INT64_MAX);
        if ((who >> i & PROVES) != 0) {
            prove(peers[i]);
        }
    }
    fuzz_check(host.authenticated.count == (size_t)(who & 1) + (who >> 1 & 1),
               "a proof was not taken");
}

static void tear_down(void)
{
    while (host.authenticating.first != NULL) {
        cddpi_client_close(&host, host.authenticating.first);
    }
    while (host.authenticated.first != NULL) {
        cddpi_client_close(&host, host.authenticated.first);
    }
    cddpi_client_reap(&host);
    cddpi_table_destroy(host.table);
    for (int i = 0; i < CLIENTS; i++) {
        close(peers[i]);
    }
    close(host.epoll_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    set_up(data[0]);
    for (size_t at = 1; at + 2 <= size;) {
        uint8_t how = data[at];
        size_t bytes = data[at + 1];

        at += 2;
        bytes = bytes < size - at ? bytes : size - at;
        if ((how & SETS) != 0) {
            (void)cddpi_client_set(&host, (struct cddpi_slice){(const uint8_t *)"k", 1},
                                   (struct cddpi_slice){&how, 1});
        }
        send_all(peers[how & 1], data + at, bytes);
        if ((how & DEAF) == 0) {
            drain(peers[how & 1]);
        }
        at += bytes;
    }
    tear_down();
    return 0;
}
