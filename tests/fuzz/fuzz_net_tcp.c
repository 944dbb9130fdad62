/* fuzz_net_tcp.c - bytes that a rank receives from other hosts or from strangers. The first byte
 * selects what they are: the greeting of a side that connects (0) or listens (1), control messages
 * (2), or messages on two connections (3); bit 3: data is encrypted, too. The rest is a sequence of
 * pieces. A piece is a byte of flags, a byte with its length, and that many bytes. The flags: the
 * connection (bit 0); send the bytes unencrypted where encrypted ones are expected (bit 1); the
 * bytes are the head of a frame without its signature, which is added after 32 bytes (bit 2). */
#include "fuzz/fuzz.h"
#include "group/net/tcp/attempt.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TOKEN "token"
enum { COMES_IN, GOES_OUT, CONTROLS, SENDS, KINDS_MASK = 3, ENCRYPTED = 8, RECVS = 5 };
enum { RAW = 2, SIGNED = 4, HEAD_BYTES = TCP_FRAME_BYTES - TCP_SIGNATURE_BYTES };

static const int host_of[] = {0, 1};
static const int leaders[] = {0, 1};
static struct tcp_offer offers[2];
static struct tcp_pair *pairs[2];
static struct tcp_carrier tcp;
static struct peer {
    struct cddpi_store_stream stream;
    struct tcp_signature signature;
} peers[2]; /* the other ends */
static uint8_t memory[RECVS][1 << 10];
static struct cddpi_transfer recvs[RECVS];

static void wake(void *context)
{
    (void)context;
}

static void set_up(bool encrypts)
{
    (void)setenv("CDDP_LOG", "off", 0); /* a line for each stranger */
    tcp = (struct tcp_carrier){.params = {.rank = 0,
                                          .world_size = 2,
                                          .host_of = host_of,
                                          .leaders = leaders,
                                          .host_count = 2,
                                          .job = "job",
                                          .generation = 1,
                                          .token = TOKEN,
                                          .timeout_ms = 1000,
                                          .wake = wake},
                               .owner = getpid(),
                               .sockets = 2,
                               .encrypts = encrypts,
                               .limit_ms = 1000,
                               .leads = true,
                               .offers = offers,
                               .pairs = pairs,
                               .listener = {.listen_fd = -1}};
    fuzz_check(cddpi_ciphers(&tcp.ciphers) == CDDP_OK, "no ciphers");
    cddpi_tcp_job("job", tcp.job);
    pthread_mutex_init(&tcp.lock, NULL);
    pthread_cond_init(&tcp.opened, NULL);
    tcp.net_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp.data_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp.net_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp.data_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fuzz_check(tcp.net_epoll_fd >= 0 && tcp.data_epoll_fd >= 0, "no epoll");
    fuzz_check(cddpi_tcp_pair(&tcp, 1) != NULL, "no memory");
}

static void tear_down(void)
{
    tcp.is_closing = true;
    cddpi_tcp_forget(&tcp.base);
    cddpi_tcp_attempts_close(&tcp);
    cddpi_tcp_data_close(&tcp);
    cddpi_tcp_pair_destroy(&tcp, pairs[1]);
    pairs[1] = NULL;
    cddpi_tcp_pool_close(&tcp.control_buffers);
    close(tcp.net_epoll_fd);
    close(tcp.data_epoll_fd);
    close(tcp.net_wake_fd);
    close(tcp.data_wake_fd);
    for (int i = 0; i < 2; i++) {
        cddpi_cipher_destroy(peers[i].stream.cipher);
        close(peers[i].stream.fd);
    }
    pthread_cond_destroy(&tcp.opened);
    pthread_mutex_destroy(&tcp.lock);
}

/* Our end of connection @p i. */
static int connect_end(int i)
{
    int ends[2];

    fuzz_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
               "no sockets");
    peers[i] = (struct peer){.stream = {.fd = ends[1]}};
    return ends[0];
}

static void make_attempt(int i, bool goes_out)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};

    cddpi_tcp_attempt_accept(&tcp, connect_end(i), &address);
    if (goes_out) {
        struct tcp_attempt *attempt = tcp.attempts;

        if (pairs[1]->search == NULL) {
            pairs[1]->search = cddpi_zalloc(sizeof *pairs[1]->search);
        }
        fuzz_check(pairs[1]->search != NULL, "no memory");
        pairs[1]->search->active++;
        tcp.strangers--;
        attempt->came_in = false;
        attempt->state = TCP_AWAITS_HELLO;
        attempt->pair = pairs[1];
        attempt->slot = 1 + (unsigned)i;
    }
}

static void make_connection(int i, unsigned slot)
{
    static const uint8_t key[CDDPI_AUTH_KEY_BYTES];
    static const uint8_t nonce[CDDPI_NONCE_BYTES];
    struct cddpi_store_stream stream = {.fd = connect_end(i)};
    struct cddpi_session client, server;
    uint8_t offer[CDDPI_OFFER_BYTES];
    uint8_t accept[CDDPI_ACCEPT_BYTES];

    cddpi_session_offer(&client, key, nonce, tcp.ciphers, offer);
    fuzz_check(cddpi_session_check(&server, key, nonce, offer) &&
                   cddpi_session_accept(&server, 0, tcp.ciphers, accept) &&
                   cddpi_session_confirm(&client, 0, accept),
               "no session");
    if (tcp_is_encrypted(&tcp, slot)) {
        stream.cipher = cddpi_cipher_create(&server);
        peers[i].stream.cipher = cddpi_cipher_create(&client);
        fuzz_check(stream.cipher != NULL && peers[i].stream.cipher != NULL, "no memory");
    }
    cddpi_tcp_signature_init(&peers[i].signature, &client, true);
    cddpi_tcp_pair_fill(&tcp, pairs[1], slot, &stream, &server);
}

static void send_piece(struct peer *peer, uint8_t how, const uint8_t *data, size_t bytes)
{
    uint8_t message[256 + TCP_SIGNATURE_BYTES];
    struct cddpi_store_stream plain = {.fd = peer->stream.fd};
    struct iovec parts[2] = {{message, bytes}, {NULL, 0}};

    if (bytes == 0) {
        return;
    }
    memcpy(message, data, bytes);
    if ((how & SIGNED) != 0 && bytes >= HEAD_BYTES) {
        cddpi_tcp_head_sign(data, &peer->signature, message + HEAD_BYTES);
        memcpy(message + TCP_FRAME_BYTES, data + HEAD_BYTES, bytes - HEAD_BYTES);
        parts[0].iov_len += TCP_SIGNATURE_BYTES;
    }
    (void)!cddpi_stream_send((how & RAW) != 0 ? &plain : &peer->stream, parts);
}

static void start_recvs(void)
{
    static const size_t bytes[RECVS] = {10, 0, 1000, 1000, 33};
    static const uint32_t tags[RECVS] = {1, 2, 3, 3, 4};

    for (int i = 0; i < RECVS; i++) {
        recvs[i] = (struct cddpi_transfer){.peer = 1,
                                           .channel = CDDPI_NET_COLLECTIVES,
                                           .tag = tags[i],
                                           .data = memory[i],
                                           .bytes = bytes[i]};
        (void)cddpi_tcp_start(&tcp.base, &recvs[i]);
    }
}

static void handle(const struct epoll_event *event)
{
    if (*(enum tcp_watched *)event->data.ptr == TCP_WATCHED_ATTEMPT) {
        cddpi_tcp_attempt_event(&tcp, event->data.ptr);
    } else {
        cddpi_tcp_control_event(&tcp, ((struct tcp_control *)event->data.ptr)->pair, event->events);
    }
}

/* Do what is to be done. */
static void serve(void)
{
    struct epoll_event events[4];
    int count = epoll_wait(tcp.net_epoll_fd, events, 4, 0);
    int64_t next_ns = INT64_MAX;
    bool any = true;

    for (int i = 0; i < count; i++) {
        handle(&events[i]);
    }
    cddpi_tcp_attempts_expire(&tcp, 0, &next_ns);
    for (int i = 0; i < 100 && any; i++) {
        if (cddpi_tcp_progress(&tcp.base, &any) != CDDP_OK) {
            break;
        }
    }
}

static void set_up_kind(uint8_t kind)
{
    for (int i = 0; i < 2; i++) {
        switch (kind) {
        case COMES_IN:
        case GOES_OUT:
            make_attempt(i, kind == GOES_OUT);
            break;
        case CONTROLS:
            make_connection(i, i == 0 ? TCP_CONTROL_SLOT : 1);
            break;
        default:
            make_connection(i, 1 + (unsigned)i);
            break;
        }
    }
    if (kind >= CONTROLS) {
        start_recvs();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_failure failure;
    char text[512] = "";

    if (size < 1) {
        return 0;
    }
    set_up((data[0] & ENCRYPTED) != 0);
    set_up_kind(data[0] & KINDS_MASK);
    for (size_t at = 1; at + 2 <= size;) {
        uint8_t how = data[at];
        size_t bytes = data[at + 1];

        at += 2;
        bytes = bytes < size - at ? bytes : size - at;
        send_piece(&peers[how & 1], how, data + at, bytes);
        serve();
        at += bytes;
    }
    fuzz_check(tcp.strangers >= 0 && tcp.strangers <= 2, "strangers are miscounted");
    cddpi_tcp_describe(&tcp.base, 1, text, sizeof text);
    if (cddpi_tcp_aborted(&tcp.base, &failure)) {
        fuzz_check(failure.status < 0 && strlen(failure.text) < sizeof failure.text &&
                       failure.unnamed <= strlen(failure.text),
                   "a failure that makes no sense was taken");
    }
    for (int i = 0; i < RECVS; i++) {
        fuzz_touch(memory[i], sizeof memory[i]);
    }
    tear_down();
    return 0;
}
