/* relay.c - passes bytes on between a client and a server, and records them. */
#include "support/relay.h"

#include "support/test.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_BYTES = 8 << 20 };

struct relay {
    pthread_t thread;
    pthread_mutex_t lock;
    uint16_t to, port;
    int listener;
    int ends[2]; /* by direction: the client's descriptor, the server's; -1: none */
    int stop[2]; /* a pipe */
    size_t change_at[2];
    bool changes[2];
    size_t of_connection[2]; /* bytes that have passed over this connection, by direction */
    size_t passed[2];
    uint8_t *seen[2];
};

static int open_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void hang_up(struct relay *relay)
{
    for (int i = 0; i < 2; i++) {
        if (relay->ends[i] >= 0) {
            close(relay->ends[i]);
            relay->ends[i] = -1;
        }
        relay->of_connection[i] = 0;
    }
}

static void begin(struct relay *relay)
{
    int client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = client >= 0 ? open_to(relay->to) : -1;

    hang_up(relay);
    if (server < 0) {
        if (client >= 0) {
            close(client);
        }
        return;
    }
    relay->ends[RELAY_UP] = client;
    relay->ends[RELAY_DOWN] = server;
}

static void remember(struct relay *relay, enum relay_way way, const uint8_t *data, size_t bytes)
{
    size_t room = MOST_BYTES - relay->passed[way];

    bytes = bytes < room ? bytes : room;
    memcpy(relay->seen[way] + relay->passed[way], data, bytes);
    relay->passed[way] += bytes;
}

static void pass(struct relay *relay, enum relay_way way)
{
    uint8_t data[65536];
    ssize_t got = recv(relay->ends[way], data, sizeof data, 0);
    size_t before = relay->of_connection[way];

    if (got <= 0) {
        hang_up(relay);
        return;
    }
    remember(relay, way, data, (size_t)got);
    if (relay->changes[way] && relay->change_at[way] >= before &&
        relay->change_at[way] < before + (size_t)got) {
        data[relay->change_at[way] - before] ^= 0x10;
    }
    relay->of_connection[way] += (size_t)got;
    if (send(relay->ends[1 - way], data, (size_t)got, MSG_NOSIGNAL) != got) {
        hang_up(relay);
    }
}

static void *run(void *argument)
{
    struct relay *relay = argument;

    for (;;) {
        struct pollfd entries[4] = {{.fd = relay->ends[0], .events = POLLIN},
                                    {.fd = relay->ends[1], .events = POLLIN},
                                    {.fd = relay->listener, .events = POLLIN},
                                    {.fd = relay->stop[0], .events = POLLIN}};

        if (poll(entries, 4, -1) < 0) {
            continue;
        }
        if (entries[3].revents != 0) {
            return NULL;
        }
        pthread_mutex_lock(&relay->lock);
        for (int way = 0; way < 2; way++) {
            if (entries[way].revents != 0 && relay->ends[way] == entries[way].fd) {
                pass(relay, (enum relay_way)way);
            }
        }
        if (entries[2].revents != 0) {
            begin(relay);
        }
        pthread_mutex_unlock(&relay->lock);
    }
}

struct relay *relay_create(uint16_t port)
{
    struct relay *relay = calloc(1, sizeof *relay);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;

    assert_non_null(relay);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    relay->to = port;
    relay->ends[0] = relay->ends[1] = -1;
    for (int way = 0; way < 2; way++) {
        relay->seen[way] = malloc(MOST_BYTES);
        assert_non_null(relay->seen[way]);
    }
    pthread_mutex_init(&relay->lock, NULL);
    assert_int_equal(pipe(relay->stop), 0);
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(relay->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(relay->listener, 8), 0);
    assert_int_equal(getsockname(relay->listener, (struct sockaddr *)&address, &bytes), 0);
    relay->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
    return relay;
}

void relay_free(struct relay *relay)
{
    assert_int_equal(write(relay->stop[1], "", 1), 1);
    pthread_join(relay->thread, NULL);
    hang_up(relay);
    close(relay->listener);
    for (int i = 0; i < 2; i++) {
        close(relay->stop[i]);
        free(relay->seen[i]);
    }
    pthread_mutex_destroy(&relay->lock);
    free(relay);
}

uint16_t relay_port(const struct relay *relay)
{
    return relay->port;
}

void relay_change(struct relay *relay, enum relay_way way, size_t at)
{
    pthread_mutex_lock(&relay->lock);
    relay->changes[way] = true;
    relay->change_at[way] = at;
    pthread_mutex_unlock(&relay->lock);
}

void relay_inject(struct relay *relay, enum relay_way way, const void *data, size_t bytes)
{
    pthread_mutex_lock(&relay->lock);
    if (relay->ends[1 - way] >= 0) {
        (void)!send(relay->ends[1 - way], data, bytes, MSG_NOSIGNAL);
    }
    pthread_mutex_unlock(&relay->lock);
}

size_t relay_passed(struct relay *relay, enum relay_way way)
{
    size_t passed;

    pthread_mutex_lock(&relay->lock);
    passed = relay->passed[way];
    pthread_mutex_unlock(&relay->lock);
    return passed;
}

bool relay_saw(struct relay *relay, const void *data, size_t bytes)
{
    bool saw = false;

    pthread_mutex_lock(&relay->lock);
    for (int way = 0; way < 2; way++) {
        saw = saw || memmem(relay->seen[way], relay->passed[way], data, bytes) != NULL;
    }
    pthread_mutex_unlock(&relay->lock);
    return saw;
}

size_t relay_copy(struct relay *relay, enum relay_way way, size_t at, void *out, size_t bytes)
{
    size_t left;

    pthread_mutex_lock(&relay->lock);
    left = at < relay->passed[way] ? relay->passed[way] - at : 0;
    bytes = bytes < left ? bytes : left;
    memcpy(out, relay->seen[way] + at, bytes);
    pthread_mutex_unlock(&relay->lock);
    return bytes;
}
