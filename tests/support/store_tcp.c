/* store_tcp.c - clients that speak to a TCP store byte by byte, and servers in processes of their
 * own. */
#include "support/store_tcp.h"

int friend(const struct place *place)
{
    struct cddpi_stream stream = {.fd = -1};

    assert_int_equal(cddpi_tcp_connect(place->url + strlen("tcp://"), TOKEN,
                                       cddpi_deadline_ns(SUPPORT_TIMEOUT_MS), &stream),
                     CDDP_OK);
    return stream.fd;
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

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
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
