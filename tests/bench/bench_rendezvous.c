/* bench_rendezvous.c - the cost of a rendezvous of N ranks that all start at once. Light clients,
 * thousands in a process, do what a joining rank does: prove the token, set "member/R", increment
 * a counter, wait for the key that is set when all have arrived, read what rank 0 has set (after it
 * has waited for all members and read their records), and pass a barrier made of a counter and a
 * key.
 * Usage: bench_rendezvous [ranks [processes]]. Prints one line of JSON. */
#include "base/clock.h"
#include "store/server.h"
#include "store/store_stream.h"
#include "store/store_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 1000,
    PROCESSES = 4,
    SECONDS = 300,
    EVENTS = 512,
    REPLY_BYTES = 4096,
    MEMBER_BYTES = 128, /* of a list, for each */
    PAUSE_MS = 50
};

/* What a rank waits for. */
enum phase {
    CONNECT, /* the hello */
    GREET,   /* the welcome */
    MEMBER,
    GATHER, /* rank 0 alone */
    READ,   /* likewise */
    OFFER,  /* rank 0 alone */
    REPLY,
    BARRIER,
    OPEN, /* the last one alone */
    PASS,
    DONE
};

struct rank {
    int number;
    enum phase phase;
    int64_t again_ns; /* 0, or when it connects again */
    struct cddpi_session session;
    struct cddpi_store_stream stream; /* encrypted once both have greeted */
    bool is_blocked;                  /* not all of `out` could be sent */
    uint8_t *in;
    size_t room; /* of in: REPLY_BYTES; rank 0, which reads the list, has more */
    size_t have;
    size_t sent; /* of out */
    struct cddpi_wire_buffer out;
};

/* Counted by all processes. */
struct totals {
    uint64_t bytes;
    uint64_t messages;
    uint64_t retries;
};

struct process {
    struct totals totals;
    struct rank *ranks;
    int count;
    int world_size;
    int done;
    int epoll_fd;
    struct sockaddr_in server;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint32_t ciphers;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_rendezvous: %s (errno %d)\n", what, errno);
    _exit(1);
}

static void watch(struct process *process, struct rank *rank, int operation)
{
    struct epoll_event event = {.events = rank->is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                .data.ptr = rank};

    if (epoll_ctl(process->epoll_fd, operation, rank->stream.fd, &event) != 0) {
        fail("epoll_ctl");
    }
}

static void begin(struct process *process, struct rank *rank)
{
    int on = 1;

    rank->stream.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (rank->stream.fd < 0) {
        fail("socket");
    }
    (void)setsockopt(rank->stream.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(rank->stream.fd, (struct sockaddr *)&process->server, sizeof process->server) !=
            0 &&
        errno != EINPROGRESS) {
        fail("connect");
    }
    rank->phase = CONNECT;
    rank->is_blocked = false;
    rank->have = rank->sent = rank->out.bytes = 0;
    rank->again_ns = 0;
    watch(process, rank, EPOLL_CTL_ADD);
}

/* Give the port back at once: thousands of them would be missing in the next run. */
static void drop(struct rank *rank)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(rank->stream.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    cddpi_cipher_destroy(rank->stream.cipher);
    rank->stream.cipher = NULL;
    close(rank->stream.fd);
    rank->stream.fd = -1;
}

/* Refused, or pushed out by those behind it: come again after a random moment, as ranks do. */
static void retry(struct process *process, struct rank *rank)
{
    if (rank->phase > GREET) {
        fail("a connection was lost");
    }
    process->totals.retries++;
    drop(rank);
    rank->again_ns = cddpi_deadline_ns((uint32_t)(PAUSE_MS / 2 + rand() % PAUSE_MS));
}

static void flush(struct process *process, struct rank *rank)
{
    bool was_blocked = rank->is_blocked;
    bool is_sent = true;

    while (is_sent && rank->sent < rank->out.bytes) {
        struct iovec parts[2] = {{rank->out.data + rank->sent, rank->out.bytes - rank->sent},
                                 {NULL, 0}};
        ssize_t sent = cddpi_stream_send(&rank->stream, parts);

        is_sent = sent >= 0;
        if (is_sent) {
            process->totals.bytes += (uint64_t)sent;
            rank->sent += (size_t)sent;
        }
    }
    is_sent = is_sent && cddpi_stream_flush(&rank->stream);
    if (!is_sent && errno != EAGAIN) {
        retry(process, rank);
        return;
    }
    rank->is_blocked = !is_sent;
    if (is_sent) {
        rank->sent = rank->out.bytes = 0;
    }
    if (rank->is_blocked != was_blocked) {
        watch(process, rank, EPOLL_CTL_MOD);
    }
}

static struct cddpi_slice slice(const char *text)
{
    return (struct cddpi_slice){(const uint8_t *)text, strlen(text)};
}

static void ask(struct process *process, struct rank *rank, enum phase phase,
                const struct cddpi_store_request *request)
{
    rank->phase = phase;
    process->totals.messages++;
    if (!cddpi_wire_encode(request, (uint32_t)phase, &rank->out)) {
        fail("no memory");
    }
    flush(process, rank);
}

static void answer(struct process *process, struct rank *rank)
{
    uint8_t out[CDDPI_WIRE_ANSWER_BYTES] = {0};

    if (cddpi_get_u32(rank->in + 12) != 0) {
        retry(process, rank);
        return;
    }
    cddpi_put_u64(out, CDDPI_WIRE_MAGIC);
    cddpi_put_u32(out + 8, CDDPI_WIRE_VERSION);
    cddpi_session_offer(&rank->session, process->key, rank->in + 16, process->ciphers, out + 16);
    if (!cddpi_buffer_reserve(&rank->out, sizeof out)) {
        fail("no memory");
    }
    cddpi_buffer_append(&rank->out, out, sizeof out);
    rank->phase = GREET;
    flush(process, rank);
}

static void set(struct process *process, struct rank *rank, enum phase phase, const char *key,
                const char *value)
{
    struct cddpi_store_request request = {
        .op = CDDPI_STORE_SET, .key = slice(key), .value = slice(value)};

    ask(process, rank, phase, &request);
}

static void get(struct process *process, struct rank *rank, enum phase phase, const char *key)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_GET, .key = slice(key)};

    ask(process, rank, phase, &request);
}

/* Rank 0 waits for all members by one message. */
static void gather(struct process *process, struct rank *rank)
{
    size_t room = (size_t)process->world_size * 40;
    struct cddpi_store_request request = {.op = CDDPI_STORE_WAIT};
    uint8_t *keys = malloc(room);
    size_t used = 0;

    for (int r = 0; r < process->world_size; r++) {
        char key[32];
        int bytes = snprintf(key, sizeof key, "bench/0/member/%d", r);

        cddpi_put_u16(keys + used, (uint16_t)bytes);
        memcpy(keys + used + 2, key, (size_t)bytes);
        used += 2 + (size_t)bytes;
    }
    request.value = (struct cddpi_slice){keys, used};
    ask(process, rank, GATHER, &request);
    free(keys);
}

/* The reply that @p rank waited for is there: the next step. */
static void advance(struct process *process, struct rank *rank, const char *value)
{
    static const char member[] = "10000|0d1f0b9a-0000-0000-0000-000000000000|node0001|pid:[402653]";
    struct cddpi_store_request add = {
        .op = CDDPI_STORE_ADD, .key = slice("bench/0/count"), .amount = 1};
    struct cddpi_store_request list = {
        .op = CDDPI_STORE_LIST, .want_value = true, .key = slice("bench/0/member/")};
    char key[32];

    switch (rank->phase) {
    case GREET:
        snprintf(key, sizeof key, "bench/0/member/%d", rank->number);
        set(process, rank, MEMBER, key, member);
        break;
    case MEMBER:
        if (rank->number == 0) {
            gather(process, rank);
        } else {
            get(process, rank, REPLY, "bench/0/reply");
        }
        break;
    case GATHER:
        ask(process, rank, READ, &list);
        break;
    case READ:
        set(process, rank, OFFER, "bench/0/reply", "ok");
        break;
    case OFFER:
    case REPLY:
        ask(process, rank, BARRIER, &add);
        break;
    case BARRIER:
        if (atoi(value) == process->world_size) {
            set(process, rank, OPEN, "bench/0/go", "1");
        } else {
            get(process, rank, PASS, "bench/0/go");
        }
        break;
    case OPEN:
    case PASS:
        rank->phase = DONE;
        process->done++;
        break;
    case CONNECT:
    case DONE:
        fail("a reply that nobody asked for");
    }
}

/* How many bytes the message at hand has, as far as that is known. */
static size_t wanted(const struct rank *rank)
{
    if (rank->phase == CONNECT) {
        return CDDPI_WIRE_HELLO_BYTES;
    }
    if (rank->phase == GREET) {
        return CDDPI_WIRE_WELCOME_BYTES;
    }
    return rank->have < CDDPI_WIRE_HEAD_BYTES ? CDDPI_WIRE_HEAD_BYTES
                                              : CDDPI_WIRE_HEAD_BYTES + cddpi_get_u32(rank->in);
}

/* A whole message is there. */
static void take(struct process *process, struct rank *rank)
{
    enum phase phase = rank->phase;
    struct cddpi_wire_head head;

    rank->in[rank->have] = '\0';
    rank->have = 0;
    if (phase == CONNECT) {
        answer(process, rank);
        return;
    }
    if (phase == GREET) {
        if (cddpi_get_u32(rank->in) != 0 ||
            !cddpi_session_confirm(&rank->session, 0, rank->in + 4)) {
            fail("the token was refused");
        }
        rank->stream.cipher = cddpi_cipher_create(&rank->session);
        if (rank->stream.cipher == NULL) {
            fail("no memory");
        }
    } else {
        cddpi_wire_get_head(rank->in, &head);
        if (head.id != (uint32_t)phase || head.code != 0) {
            fail("an operation failed");
        }
    }
    advance(process, rank, (const char *)rank->in + CDDPI_WIRE_HEAD_BYTES);
}

static void receive(struct process *process, struct rank *rank)
{
    while (rank->stream.fd >= 0) {
        size_t more = wanted(rank) - rank->have;
        struct iovec parts[2] = {{rank->in + rank->have, more}, {NULL, 0}};
        ssize_t got;

        if (rank->have + more >= rank->room) {
            fail("a reply is too long");
        }
        got = cddpi_stream_recv(&rank->stream, parts);
        if (got < 0 && errno == EAGAIN) {
            return;
        }
        if (got <= 0) {
            retry(process, rank);
            return;
        }
        process->totals.bytes += (uint64_t)got;
        rank->have += (size_t)got;
        if (rank->have == wanted(rank)) {
            take(process, rank);
        }
    }
}

/* Those that were turned away come again. */
static void begin_again(struct process *process)
{
    for (int i = 0; i < process->count; i++) {
        struct rank *rank = &process->ranks[i];

        if (rank->stream.fd < 0 && rank->again_ns != 0 && cddpi_left_ms(rank->again_ns) == 0) {
            begin(process, rank);
        }
    }
}

static void join(struct process *process, int first)
{
    struct epoll_event events[EVENTS];
    int64_t deadline_ns = cddpi_deadline_ns(SECONDS * 1000);

    process->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    process->ranks = calloc((size_t)process->count, sizeof *process->ranks);
    for (int i = 0; i < process->count; i++) {
        struct rank *rank = &process->ranks[i];

        rank->number = first + i;
        rank->room = REPLY_BYTES +
                     (first + i == 0 ? (size_t)process->world_size * MEMBER_BYTES : 0);
        rank->in = malloc(rank->room);
        if (rank->in == NULL) {
            fail("no memory");
        }
        begin(process, rank);
    }
    while (process->done < process->count) {
        int count = epoll_wait(process->epoll_fd, events, EVENTS, 5);

        for (int i = 0; i < count; i++) {
            struct rank *rank = events[i].data.ptr;

            if ((events[i].events & EPOLLOUT) != 0 && rank->stream.fd >= 0) {
                flush(process, rank);
            }
            receive(process, rank);
        }
        begin_again(process);
        if (cddpi_left_ms(deadline_ns) == 0) {
            fprintf(stderr, "bench_rendezvous: %d of %d ranks joined\n", process->done,
                    process->count);
            _exit(1);
        }
    }
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Fork the processes, ranks spread evenly, and wait for them. */
static int join_all(int ranks, int processes, uint16_t port, const char *token,
                    struct totals *totals)
{
    int first = 0;
    int failed = 0;

    for (int i = 0; i < processes; i++) {
        struct process process = {.count = ranks / processes + (i < ranks % processes),
                                  .world_size = ranks,
                                  .server = {.sin_family = AF_INET,
                                             .sin_port = htons(port),
                                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
        pid_t pid = fork();

        if (pid == 0) {
            raise_file_limit();
            srand((unsigned)i);
            cddpi_store_key(token, process.key);
            if (cddpi_ciphers(&process.ciphers) != CDDP_OK) {
                fail(cddp_last_error());
            }
            join(&process, first);
            totals[i] = process.totals;
            _exit(0);
        }
        first += process.count;
        failed += pid < 0;
    }
    for (int i = 0; i < processes; i++) {
        int status;

        failed += wait(&status) < 0 || status != 0;
    }
    return failed;
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : RANKS;
    int processes = argc > 2 ? atoi(argv[2]) : PROCESSES;
    struct cddpi_store_server_options options = {0};
    struct cddpi_store_server *server = NULL;
    struct totals *totals;
    struct totals all = {0};
    char token[33];
    int64_t start_ns;
    double seconds;
    double cpu_s;
    int failed;

    if (ranks < 2 || processes < 1 || processes > ranks) {
        fprintf(stderr, "usage: bench_rendezvous [ranks [processes]]\n");
        return 2;
    }
    totals = mmap(NULL, (size_t)processes * sizeof *totals, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cddpi_store_token(token);
    options.token = token;
    if (totals == MAP_FAILED || cddpi_store_server_create(&options, &server) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    start_ns = cddpi_now_ns();
    cpu_s = cpu_seconds();
    failed = join_all(ranks, processes, cddpi_store_server_port(server), token, totals);
    seconds = (double)(cddpi_now_ns() - start_ns) * 1e-9;
    cpu_s = cpu_seconds() - cpu_s;
    cddpi_store_server_destroy(server);
    for (int i = 0; i < processes; i++) {
        all.bytes += totals[i].bytes;
        all.messages += totals[i].messages;
        all.retries += totals[i].retries;
    }
    if (failed == 0) {
        printf("{\"bench\":\"rendezvous\",\"ranks\":%d,\"processes\":%d,\"seconds\":%.3f,"
               "\"server_cpu_s\":%.3f,\"messages\":%llu,\"bytes\":%llu,\"retries\":%llu}\n",
               ranks, processes, seconds, cpu_s, (unsigned long long)all.messages,
               (unsigned long long)all.bytes, (unsigned long long)all.retries);
    }
    return failed != 0;
}
