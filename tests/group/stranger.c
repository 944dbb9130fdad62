/* stranger.c - started by test_strangers.py: ranks that meet in every way, and a stranger without a
 * token who tries to connect to a port.
 *
 *     stranger rank env                join as the environment says
 *     stranger rank URL RANK SIZE      join as the options say
 *     stranger rank spawn SIZE         start ranks by cddp_spawn()
 *     stranger knock HOST PORT JOB...  print "in: ..." and exit with 1 if it is accepted; with
 *                                      $KNOWN it knows the token, which shows that it can knock
 *
 * A rank prints "coming"; the last one waits until $GO/go exists. Then all ranks join, make a store
 * of the group's, print "joined" and stay until $GO/end exists. $HOSTS: each rank is on its own
 * host. */
#include "group/net/tcp/hello.h"
#include "store/session.h"
#include "store/store_wire.h"

#include <cddp/cddp.h>
#include <cddp/spawn.h>

#include <netdb.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char *const guesses[] = {"", "cddp", "secret"};
enum { GUESSES = 3, RANKS = 2, GENERATIONS = 2, SLOTS = 3, PATIENCE_S = 2, STAY_S = 300 };

/* --- a rank --- */

static void await(const char *name)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/%s", getenv("GO"), name);
    for (int tries = 0; access(path, F_OK) != 0 && tries < STAY_S * 100; tries++) {
        usleep(10000);
    }
}

static int join(const cddp_group_options *options, int rank, int size)
{
    cddp_group *group = NULL;
    cddp_store *store = NULL;
    char host[32];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("HOSTS") != NULL) {
        snprintf(host, sizeof host, "test host %d", rank);
        setenv("CDDP_HOST_ID", host, 1);
    }
    printf("coming %d\n", rank);
    if (rank == size - 1) {
        await("go");
    }
    if (cddp_group_create(options, &group) != CDDP_OK ||
        cddp_group_store_create(group, &store) != CDDP_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
        return 1;
    }
    printf("joined %d\n", rank);
    await("end");
    if (cddp_barrier(group, NULL) != CDDP_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
        return 1;
    }
    printf("ended %d\n", rank);
    cddp_group_destroy(group);
    return 0;
}

/* The rank, as the launchers of the test say it. */
static int rank_of_environment(void)
{
    static const char *const names[] = {"CDDP_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (getenv(names[i]) != NULL) {
            return atoi(getenv(names[i]));
        }
    }
    return 0;
}

static cddp_status spawned(void *state, int rank)
{
    (void)state;
    return join(NULL, rank, RANKS) == 0 ? CDDP_OK : CDDP_ERR_PEER;
}

static int be_rank(char **words)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(words[0], "env") == 0) {
        return join(NULL, rank_of_environment(), RANKS);
    }
    if (strcmp(words[0], "spawn") == 0) {
        return cddp_spawn(atoi(words[1]), spawned, NULL, NULL) != CDDP_OK;
    }
    options.rendezvous = words[0];
    options.rank = atoi(words[1]);
    options.world_size = atoi(words[2]);
    return join(&options, options.rank, options.world_size);
}

/* --- a stranger --- */

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *infos = NULL;
    struct timeval patience = {PATIENCE_S, 0};
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &infos) != 0) {
        return -1;
    }
    fd = socket(infos->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
                    connect(fd, infos->ai_addr, infos->ai_addrlen) != 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(infos);
    return fd;
}

enum kind { NOTHING_OF_OURS, A_STORE, A_CARRIER };

/* By the first bytes that it says. */
static enum kind kind_of(const char *host, const char *port)
{
    uint8_t begin[8];
    int fd = connect_to(host, port);
    bool is_greeted = fd >= 0 && recv(fd, begin, sizeof begin, MSG_WAITALL) == sizeof begin;

    if (fd >= 0) {
        close(fd);
    }
    if (!is_greeted) {
        return NOTHING_OF_OURS;
    }
    return cddpi_get_u64(begin) == CDDPI_WIRE_MAGIC ? A_STORE
           : cddpi_get_u64(begin) == TCP_MAGIC      ? A_CARRIER
                                                    : NOTHING_OF_OURS;
}

static bool store_lets_in(const char *host, const char *port, const char *token)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    char url[300];

    snprintf(url, sizeof url, strchr(host, ':') != NULL ? "tcp://[%s]:%s" : "tcp://%s:%s", host,
             port);
    options.url = url;
    options.token = token;
    options.timeout_ms = 500;
    if (cddp_store_open(&options, &store) != CDDP_OK) {
        return false;
    }
    cddp_store_close(store);
    return true;
}

static bool carrier_lets_in(const char *host, const char *port, const char *token,
                            const struct tcp_purpose *purpose)
{
    struct tcp_answer answer = {.purpose = *purpose};
    uint8_t hello[TCP_HELLO_BYTES];
    uint8_t message[TCP_ANSWER_BYTES];
    uint8_t welcome[TCP_WELCOME_BYTES];
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    struct tcp_welcome got = {.reply = TCP_WRONG_TOKEN};
    struct cddpi_session session;
    uint32_t ciphers;
    int fd = connect_to(host, port);
    bool is_in = false;

    if (fd >= 0 && cddpi_ciphers(&ciphers) == CDDP_OK &&
        recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello) {
        cddpi_tcp_key(token, purpose, key);
        cddpi_session_offer(&session, key, hello + 12, ciphers, answer.offer);
        cddpi_tcp_answer_put(&answer, message);
        (void)!send(fd, message, sizeof message, MSG_NOSIGNAL);
        is_in = recv(fd, welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome &&
                cddpi_tcp_welcome_get(welcome, &got) &&
                (got.reply == TCP_WELCOME || got.reply == TCP_HAVE_ONE);
        cddpi_session_wipe(&session);
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_in;
}

/* Each purpose that may be one of this job's: a bit pattern of guesses. */
static bool guess(const char *host, const char *port, const char *token, const char *job)
{
    for (uint32_t n = 0; n < 2 * GENERATIONS * SLOTS; n++) {
        struct tcp_purpose purpose = {.from = n % 2,
                                      .to = 1 - n % 2,
                                      .generation = n / 2 % GENERATIONS,
                                      .slot = n / 2 / GENERATIONS,
                                      .sockets = 2};

        cddpi_tcp_job(job, purpose.job);
        if (carrier_lets_in(host, port, token, &purpose)) {
            return true;
        }
    }
    return false;
}

static int knock(char **words, int count)
{
    const char *host = words[0];
    const char *port = words[1];
    enum kind kind = kind_of(host, port);

    setenv("CDDP_LOG", "off", 1);
    for (int t = 0; t < GUESSES; t++) {
        const char *token = getenv("KNOWN") != NULL ? getenv("KNOWN") : guesses[t];

        if (kind == A_STORE && store_lets_in(host, port, token)) {
            printf("in: the store at %s port %s, with token \"%s\"\n", host, port, token);
            return 1;
        }
        for (int j = 2; kind == A_CARRIER && j < count; j++) {
            if (guess(host, port, token, words[j])) {
                printf("in: the carrier at %s port %s, with token \"%s\", job \"%s\"\n", host, port,
                       token, words[j]);
                return 1;
            }
        }
    }
    printf("%s\n", kind == A_STORE ? "a store" : kind == A_CARRIER ? "a carrier" : "neither");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "rank") == 0) {
        return be_rank(argv + 2);
    }
    if (argc >= 4 && strcmp(argv[1], "knock") == 0) {
        return knock(argv + 2, argc - 2);
    }
    return 2;
}
