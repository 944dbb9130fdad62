/* tcp_link.c - what TCP gives between two hosts: the round trip of 4 KiB messages, and a stream in
 * both directions at once; the client prints one JSON line.
 *
 *     tcp_link serve PORT
 *     tcp_link HOST PORT [bytes of the stream [round trips]]
 *
 * "rtt_us": both sides spin on the socket; "rtt_asleep_us": they sleep in recv(); "cpu_ns_per_byte": what the client's
 * processor takes to send or receive a byte of the stream. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 4096, CHUNK = 1 << 20, ROUNDS_MAX = 20000 };

static char message[MESSAGE], out[CHUNK], in[CHUNK];

struct job {
    uint64_t bytes, rounds;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double processor_us(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void send_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);

        if (n <= 0) {
            die("send");
        }
        done += (size_t)n;
    }
}

static void recv_all(int fd, void *data, size_t bytes, int flags)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, (char *)data + done, bytes - done, flags);

        if (n < 0 && errno == EAGAIN) {
            continue;
        }
        if (n <= 0) {
            die("recv");
        }
        done += (size_t)n;
    }
}

struct flow {
    int fd;
    uint64_t bytes;
};

static void *send_stream(void *argument)
{
    const struct flow *flow = argument;

    for (uint64_t left = flow->bytes; left > 0;) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;

        send_all(flow->fd, out, n);
        left -= n;
    }
    return NULL;
}

/* Both directions; ends when all has come. */
static void stream(int fd, uint64_t bytes)
{
    struct flow flow = {fd, bytes};
    pthread_t sender;

    pthread_create(&sender, NULL, send_stream, &flow);
    for (uint64_t left = bytes; left > 0;) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;

        recv_all(fd, in, n, 0);
        left -= n;
    }
    pthread_join(sender, NULL);
}

static void reply(int fd, uint64_t rounds, int flags)
{
    for (uint64_t i = 0; i < rounds; i++) {
        recv_all(fd, message, MESSAGE, flags);
        send_all(fd, message, MESSAGE);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double ask(int fd, uint64_t rounds, int flags)
{
    static double samples[ROUNDS_MAX];

    for (uint64_t i = 0; i < rounds; i++) {
        double start = now_us();

        send_all(fd, message, MESSAGE);
        recv_all(fd, message, MESSAGE, flags);
        samples[i] = now_us() - start;
    }
    qsort(samples, (size_t)rounds, sizeof *samples, by_value);
    return samples[rounds / 2];
}

static void no_delay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int serve(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
    struct job job;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
        (fd = accept(listener, NULL, NULL)) < 0) {
        die("listen");
    }
    no_delay(fd);
    recv_all(fd, &job, sizeof job, 0);
    reply(fd, job.rounds, MSG_DONTWAIT);
    reply(fd, job.rounds, 0);
    stream(fd, job.bytes / 8); /* the window opens */
    stream(fd, job.bytes);
    return 0;
}

static int measure(const char *host, int port, struct job job)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    double spinning, asleep, start, processor;
    int fd = -1;

    inet_pton(AF_INET, host, &to.sin_addr);
    for (int tries = 0; tries < 100; tries++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
            break;
        }
        close(fd);
        fd = -1;
        usleep(50000);
    }
    if (fd < 0) {
        die("connect");
    }
    no_delay(fd);
    send_all(fd, &job, sizeof job);
    spinning = ask(fd, job.rounds, MSG_DONTWAIT);
    asleep = ask(fd, job.rounds, 0);
    stream(fd, job.bytes / 8);
    start = now_us();
    processor = processor_us();
    stream(fd, job.bytes);
    start = now_us() - start;
    processor = processor_us() - processor;
    printf("{\"bench\": \"tcp_link\", \"rtt_us\": %.2f, \"rtt_asleep_us\": %.2f, \"bytes\": %llu, "
           "\"gbit_per_s\": %.5f, \"cpu_ns_per_byte\": %.4f}\n",
           spinning, asleep, (unsigned long long)job.bytes, (double)job.bytes * 8 / start / 1e3,
           processor * 1e3 / (2.0 * (double)job.bytes));
    return 0;
}

int main(int argc, char **argv)
{
    struct job job = {64 << 20, 2000};

    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        return serve(atoi(argv[2]));
    }
    if (argc < 3) {
        fprintf(stderr, "usage: tcp_link serve PORT | HOST PORT [bytes [round trips]]\n");
        return 2;
    }
    job.bytes = argc > 3 ? strtoull(argv[3], NULL, 0) : job.bytes;
    job.rounds = argc > 4 ? strtoull(argv[4], NULL, 0) : job.rounds;
    if (job.rounds < 1 || job.rounds > ROUNDS_MAX) {
        fprintf(stderr, "tcp_link: 1 to %d round trips\n", ROUNDS_MAX);
        return 2;
    }
    return measure(argv[1], atoi(argv[2]), job);
}
