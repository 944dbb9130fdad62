/* store_tcp.c - clients that talk to a TCP store byte by byte, and servers in their own
 * processes. */
#include "support/store_tcp.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

struct cddpi_store_stream friend(const struct place *place)
{
    struct cddpi_store_stream stream = {.fd = -1};

    assert_int_equal(cddpi_tcp_connect(place->url + strlen("tcp://"), TOKEN,
                                       cddpi_deadline_ns(SUPPORT_TIMEOUT_MS), &stream),
                     CDDP_OK);
    return stream;
}

void friend_leaves(struct cddpi_store_stream *stream)
{
    cddpi_cipher_destroy(stream->cipher);
    close(stream->fd);
}

void works(const struct place *place)
{
    int64_t sum;

    assert_int_equal(cddp_store_add(place->store, "n", 1, &sum), CDDP_OK);
}

void say(int fd, const void *bytes, size_t count)
{
    (void)!send(fd, bytes, count, MSG_NOSIGNAL); /* the server may have closed already */
}

static bool wait_until(int fd, short events)
{
    struct pollfd entry = {.fd = fd, .events = events};

    return poll(&entry, 1, SUPPORT_TIMEOUT_MS) == 1;
}

void say_secretly(struct cddpi_store_stream *stream, const void *bytes, size_t count)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)bytes, count}, {NULL, 0}};
    bool is_open = true;

    while (is_open && parts[0].iov_len > 0) { /* the server may have closed already */
        ssize_t said = cddpi_stream_send(stream, parts);

        if (said > 0) {
            parts[0].iov_base = (uint8_t *)parts[0].iov_base + said;
            parts[0].iov_len -= (size_t)said;
        } else {
            is_open = errno == EAGAIN && wait_until(stream->fd, POLLOUT);
        }
    }
    while (is_open && !cddpi_stream_flush(stream)) {
        is_open = errno == EAGAIN && wait_until(stream->fd, POLLOUT);
    }
}

void hear(struct cddpi_store_stream *stream, void *bytes, size_t count)
{
    struct iovec parts[2] = {{bytes, count}, {NULL, 0}};

    while (parts[0].iov_len > 0) {
        ssize_t got = cddpi_stream_recv(stream, parts);

        if (got > 0) {
            parts[0].iov_base = (uint8_t *)parts[0].iov_base + got;
            parts[0].iov_len -= (size_t)got;
        } else {
            assert_true(got < 0 && errno == EAGAIN && wait_until(stream->fd, POLLIN));
        }
    }
}

pid_t fork_server(int descriptors, uint16_t *out_port)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        struct rlimit limit = {(rlim_t)descriptors, (rlim_t)descriptors};
        struct cddpi_store_server *server;
        uint16_t port;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* in case the test fails */
        setenv("CDDP_LOG", "off", 1);
        if ((descriptors > 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) ||
            start_server(0, TOKEN, &server) != CDDP_OK) {
            _exit(1);
        }
        port = cddpi_store_server_port(server);
        (void)!write(ends[1], &port, sizeof port);
        for (;;) {
            pause();
        }
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], out_port, sizeof *out_port), sizeof *out_port);
    close(ends[0]);
    return pid;
}
