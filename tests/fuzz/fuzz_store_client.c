/* fuzz_store_client.c - what a store's server, or an impostor, may send to a rank. If the first
 * byte is odd, the rest replaces the greeting. Otherwise it follows a correct greeting, as replies
 * to one operation of each kind or, if bit 1 is set, in place of encrypted replies. */
#include "fuzz/fuzz.h"
#include "store/store.h"
#include "store/store_stream.h"
#include "store/store_wire.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "token"
enum { TIMEOUT_MS = 60000 };

static struct {
    pthread_mutex_t lock;
    const uint8_t *data;
    size_t size;
    bool greets, is_raw;
} input = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint16_t port;

/* What a caller gets from now on. */
static void offer(const uint8_t *data, size_t size, uint8_t how)
{
    pthread_mutex_lock(&input.lock);
    input.data = data;
    input.size = size;
    input.greets = (how & 1) == 0;
    input.is_raw = (how & 2) != 0;
    pthread_mutex_unlock(&input.lock);
}

/* NULL: the caller has gone. */
static struct cddpi_cipher *greet(int fd)
{
    uint8_t hello[CDDPI_WIRE_HELLO_BYTES] = {0};
    uint8_t answer[CDDPI_WIRE_ANSWER_BYTES];
    uint8_t welcome[CDDPI_WIRE_WELCOME_BYTES] = {0};
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    struct cddpi_session session;

    cddpi_store_key(TOKEN, key);
    cddpi_put_u64(hello, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(hello + 8, CDDPI_WIRE_VERSION);
    (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
    if (recv(fd, answer, sizeof answer, MSG_WAITALL) != sizeof answer) {
        return NULL;
    }
    fuzz_check(cddpi_session_check(&session, key, hello + 16, answer + 16) &&
                   cddpi_session_accept(&session, 0, session.ciphers, welcome + 4),
               "a client made no proper offer");
    (void)!send(fd, welcome, sizeof welcome, MSG_NOSIGNAL);
    return cddpi_cipher_create(&session);
}

/* Say what there is to say to one caller. */
static void speak(int fd)
{
    struct cddpi_store_stream stream = {.fd = fd};
    struct iovec parts[2] = {{(void *)(uintptr_t)input.data, input.size}, {NULL, 0}};

    if (input.greets) {
        stream.cipher = greet(fd);
    }
    if (input.size > 0 && (!input.greets || input.is_raw || stream.cipher == NULL)) {
        (void)!send(fd, input.data, input.size, MSG_NOSIGNAL);
    } else if (input.size > 0) {
        (void)!cddpi_stream_send(&stream, parts);
    }
    cddpi_cipher_destroy(stream.cipher);
}

/* Serve one caller after the other, each with the input of the moment. */
static void *serve(void *argument)
{
    int listener = *(int *)argument;

    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        uint8_t bytes[4096];

        fuzz_check(fd >= 0, "no caller");
        pthread_mutex_lock(&input.lock);
        speak(fd);
        pthread_mutex_unlock(&input.lock);
        (void)shutdown(fd, SHUT_WR);
        while (recv(fd, bytes, sizeof bytes, 0) > 0) {
            continue; /* until the client has gone: closing with bytes unread would reset */
        }
        close(fd);
    }
    return NULL;
}

static void start_server(void)
{
    static int listener;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    pthread_t thread;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_check(listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0 &&
                   listen(listener, 64) == 0 &&
                   getsockname(listener, (struct sockaddr *)&address, &bytes) == 0,
               "no listener");
    port = ntohs(address.sin_port);
    fuzz_check(pthread_create(&thread, NULL, serve, &listener) == 0, "no thread");
    (void)pthread_detach(thread);
}

/* One operation of each kind; what comes as a result is used. */
static void use(cddp_store *store)
{
    static const char *const keys[] = {"a", "b"};
    void *value = NULL;
    char **names = NULL;
    struct cddpi_store_pair *pairs = NULL;
    size_t size = 0;
    size_t count = 0;
    int64_t sum;
    bool flag;

    (void)!cddp_store_set(store, "k", "v", 1);
    if (cddp_store_get(store, "k", 0, &value, &size) == CDDP_OK) {
        fuzz_touch(value, size + 1);
        cddp_free(value);
    }
    (void)!cddp_store_add(store, "n", 1, &sum);
    value = NULL;
    if (cddp_store_compare_set(store, "k", "v", 1, "w", 1, &flag, &value, &size) == CDDP_OK) {
        fuzz_touch(value, size + 1);
        cddp_free(value);
    }
    (void)!cddp_store_wait(store, keys, 2, 0);
    (void)!cddp_store_delete(store, "k", &flag);
    if (cddp_store_list(store, "", &names, &count) == CDDP_OK) {
        for (size_t i = 0; i < count; i++) {
            fuzz_touch(names[i], strlen(names[i]) + 1);
        }
        cddp_free(names);
    }
    if (cddpi_store_list_values(store, "", &pairs, &count) == CDDP_OK) {
        for (size_t i = 0; i < count; i++) {
            fuzz_touch(pairs[i].key, strlen(pairs[i].key) + 1);
            fuzz_touch(pairs[i].value, pairs[i].bytes + 1);
        }
        cddp_free(pairs);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    char url[64];

    if (size < 1) {
        return 0;
    }
    if (port == 0) {
        (void)setenv("CDDP_LOG", "off", 0); /* a line for each refusal */
        start_server();
    }
    offer(data + 1, size - 1, data[0]);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
    options.url = url;
    options.token = TOKEN;
    options.prefix = "job/";
    /* a bad greeting is tried again until the deadline */
    options.timeout_ms = data[0] % 2 == 0 ? TIMEOUT_MS : 1;
    if (cddp_store_open(&options, &store) == CDDP_OK) {
        use(store);
    }
    cddp_store_close(store);
    offer(NULL, 0, 1); /* what is late to be served: the caller has gone */
    return 0;
}
