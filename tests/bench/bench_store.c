/* bench_store.c - how long it takes until N clients have joined one TCP store: connect, prove the
 * token, add to a counter, and wait for a key that is set when all have arrived. Usage: bench_store
 * [clients [processes]]. Prints one line of JSON. */
#include "base/clock.h"
#include "store/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 2000, PROCESSES = 8, SECONDS = 120 };

/* One process and all its clients: join with each, then wait with each. */
static int join(const char *url, const char *token, int clients, int total)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store **stores = calloc((size_t)clients, sizeof(cddp_store *));
    const char *go = "go";
    int64_t joined;

    options.url = url;
    options.token = token;
    options.prefix = "bench/0/";
    options.timeout_ms = SECONDS * 1000;
    for (int i = 0; i < clients; i++) {
        if (cddp_store_open(&options, &stores[i]) != CDDP_OK ||
            cddp_store_add(stores[i], "joined", 1, &joined) != CDDP_OK) {
            fprintf(stderr, "client %d: %s\n", i, cddp_last_error());
            return 1;
        }
        if (joined == total && cddp_store_set(stores[i], "go", "1", 1) != CDDP_OK) {
            fprintf(stderr, "client %d: %s\n", i, cddp_last_error());
            return 1;
        }
    }
    for (int i = 0; i < clients; i++) {
        if (cddp_store_wait(stores[i], &go, 1, 0) != CDDP_OK) {
            fprintf(stderr, "client %d: %s\n", i, cddp_last_error());
            return 1;
        }
    }
    for (int i = 0; i < clients; i++) {
        cddp_store_close(stores[i]);
    }
    free(stores);
    return 0;
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Fork the processes, clients spread evenly, and wait for them. */
static int join_all(const char *url, const char *token, int clients, int processes)
{
    int failed = 0;

    for (int i = 0; i < processes; i++) {
        int share = clients / processes + (i < clients % processes);
        pid_t pid = fork();

        if (pid == 0) {
            raise_file_limit();
            _exit(join(url, token, share, clients));
        }
        failed += pid < 0;
    }
    for (int i = 0; i < processes; i++) {
        int status;

        failed += wait(&status) < 0 || status != 0;
    }
    return failed;
}

int main(int argc, char **argv)
{
    int clients = argc > 1 ? atoi(argv[1]) : CLIENTS;
    int processes = argc > 2 ? atoi(argv[2]) : PROCESSES;
    struct cddpi_store_server_options options = {0};
    struct cddpi_store_server *server = NULL;
    char token[33];
    char url[64];
    int64_t start_ns;
    int failed;

    if (clients < 1 || processes < 1 || processes > clients) {
        fprintf(stderr, "usage: bench_store [clients [processes]]\n");
        return 2;
    }
    cddpi_store_token(token);
    options.token = token;
    start_ns = cddpi_now_ns();
    if (cddpi_store_server_create(&options, &server) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", cddpi_store_server_port(server));
    failed = join_all(url, token, clients, processes);
    cddpi_store_server_destroy(server);
    if (failed == 0) {
        printf("{\"bench\":\"store_join\",\"clients\":%d,\"processes\":%d,\"seconds\":%.3f}\n",
               clients, processes, (double)(cddpi_now_ns() - start_ns) * 1e-9);
    }
    return failed != 0;
}
