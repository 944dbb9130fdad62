/* fuzz_store_server.c - what two clients may send to the store's server, in pieces and alternately.
 * The first byte says which clients prove the token (bits 0 and 1). The rest is a sequence of
 * pieces. A piece is a byte of flags, a byte with its length, and that many bytes. The flags: the
 * client (bit 0); the client does not read its replies (bit 1); the launcher sets a key before (bit
 * 2); a client that has proved the token sends the bytes unencrypted (bit 3). */
#include "fuzz/fuzz.h"
#include "store/server_client.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 2, PROVES = 1, DEAF = 2, SETS = 4, RAW = 8 };

static struct cddpi_client_host host;
static struct cddpi_store_stream peers[CLIENTS]; /* the clients' ends */

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

static void send_all(struct cddpi_store_stream *peer, const uint8_t *data, size_t size, bool is_raw)
{
    struct cddpi_store_stream plain = {.fd = peer->fd};
    struct iovec parts[2] = {{(void *)(uintptr_t)data, size}, {NULL, 0}};

    if (size > 0) {
        (void)!cddpi_stream_send(is_raw ? &plain : peer, parts);
    }
    run();
}

static void drain(int fd)
{
    uint8_t bytes[4096];

    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        run();
    }
}

static void prove(struct cddpi_store_stream *peer)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES];
    uint8_t answer[CDDPI_WIRE_ANSWER_BYTES] = {0};
    uint8_t welcome[CDDPI_WIRE_WELCOME_BYTES];
    struct cddpi_session session;

    fuzz_check(recv(peer->fd, hello, sizeof hello, MSG_DONTWAIT) == sizeof hello, "no greeting");
    cddpi_put_u64(answer, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(answer + 8, CDDPI_WIRE_VERSION);
    cddpi_session_offer(&session, host.key, hello + 16, host.ciphers, answer + 16);
    send_all(peer, answer, sizeof answer, true);
    fuzz_check(recv(peer->fd, welcome, sizeof welcome, MSG_DONTWAIT) == sizeof welcome &&
                   cddpi_session_confirm(&session, 0, welcome + 4),
               "no welcome");
    peer->cipher = cddpi_cipher_create(&session);
    fuzz_check(peer->cipher != NULL, "no memory");
}

static void set_up(uint8_t who)
{
    host = (struct cddpi_client_host){.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                                      .table = cddpi_table_create()};
    (void)setenv("CDDP_LOG", "off", 0); /* a line for each stranger */
    fuzz_check(cddpi_ciphers(&host.ciphers) == CDDP_OK, "no ciphers");
    cddpi_store_key("token", host.key);
    fuzz_check(host.epoll_fd >= 0 && host.table != NULL, "no server");
    for (int i = 0; i < CLIENTS; i++) {
        int ends[2];

        fuzz_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
                   "no sockets");
        peers[i] = (struct cddpi_store_stream){.fd = ends[1]};
        cddpi_client_accept(&host, ends[0], INT64_MAX);
        if ((who >> i & PROVES) != 0) {
            prove(&peers[i]);
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
        cddpi_cipher_destroy(peers[i].cipher);
        close(peers[i].fd);
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
        send_all(&peers[how & 1], data + at, bytes, (how & RAW) != 0);
        if ((how & DEAF) == 0) {
            drain(peers[how & 1].fd);
        }
        at += bytes;
    }
    tear_down();
    return 0;
}
