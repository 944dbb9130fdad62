/* test.c - shared by all test programs: cmocka, and ranks as real processes. */
#include "support/test.h"

#include <fcntl.h>

/* No test reads or writes what this user's programs have measured. */
__attribute__((constructor)) static void leave_the_cache_alone(void)
{
    setenv("CDDP_CACHE", "off", 0);
}

void support_sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* Wait until all ranks have been forked. Otherwise the first ones would keep a server's thread in
 * this process busy, and the next ones might inherit a lock that it holds: gcc's address sanitizer
 * does not care for forks. */
static void pass_gate(const int gate[2])
{
    char none;

    close(gate[1]);
    while (read(gate[0], &none, 1) < 0 && errno == EINTR) {
    }
    close(gate[0]);
}

int run_ranks_status(int world_size, rank_fn body, void *argument, int *statuses)
{
    pid_t pids[256] = {0};
    int failed = 0;
    int left = world_size;
    long waited_ms = 0;
    int gate[2] = {-1, -1};

    fflush(NULL);
    (void)!pipe2(gate, O_CLOEXEC); /* without descriptors, nobody waits */
    for (int rank = 0; rank < world_size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            int result;

            pass_gate(gate);
            result = body(rank, world_size, argument);
            fflush(NULL);
            _exit(result);
        }
    }
    close(gate[0]);
    close(gate[1]);
    while (left > 0) {
        for (int rank = 0; rank < world_size; rank++) {
            int status;

            if (pids[rank] > 0 && waitpid(pids[rank], &status, WNOHANG) == pids[rank]) {
                pids[rank] = 0;
                left--;
                failed += status != 0;
                if (statuses != NULL) {
                    statuses[rank] = status;
                }
            }
        }
        if (left > 0) {
            support_sleep_ms(2);
            waited_ms += 2;
        }
        if (waited_ms == SUPPORT_LIMIT_S * 1000L) {
            fprintf(stderr, "%d s have passed: killing the ranks\n", SUPPORT_LIMIT_S);
            for (int rank = 0; rank < world_size; rank++) {
                if (pids[rank] > 0) {
                    kill(pids[rank], SIGKILL);
                }
            }
        }
    }
    return failed;
}

int run_ranks(int world_size, rank_fn body, void *argument)
{
    return run_ranks_status(world_size, body, argument, NULL);
}

uint16_t support_free_port(void)
{
    static int next;

    for (int tries = 0; tries < 10000; tries++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint16_t port = (uint16_t)(12000 + (getpid() * 16 + next++) % 20000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int error;

        address.sin_port = htons(port);
        error = bind(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (error == 0) {
            return port;
        }
    }
    fprintf(stderr, "no port of 127.0.0.1 is free\n");
    abort();
}

int support_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

void support_setenv_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Copies of the names of folders that are not removed yet, and the process that created them. */
static struct {
    pid_t owner;
    char *paths[64];
} support_folders;

static void support_remove(const char *path)
{
    char command[8192];

    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) {
        fprintf(stderr, "could not remove %s\n", path);
    }
}

/* Remove the remaining folders: a failed assertion skips the test's own support_rmdir(). */
static void support_remove_rest(void)
{
    for (int i = 0; i < 64 && support_folders.owner == getpid(); i++) {
        if (support_folders.paths[i] != NULL) {
            support_remove(support_folders.paths[i]);
        }
    }
}

char *support_mkdtemp(void)
{
    const char *build = getenv("CDDP_TEST_BUILD");
    const char *base = getenv("TMPDIR");
    char *path = malloc(4096);

    if (support_folders.owner != getpid()) {
        support_folders.owner = getpid();
        memset(support_folders.paths, 0, sizeof support_folders.paths);
        atexit(support_remove_rest);
    }
    if (build != NULL) {
        snprintf(path, 4096, "%s/tests/tmp", build);
        (void)mkdir(path, 0755);
        snprintf(path, 4096, "%s/tests/tmp/XXXXXX", build);
    } else {
        snprintf(path, 4096, "%s/cddp-test-XXXXXX", base != NULL ? base : "/tmp");
    }
    if (mkdtemp(path) == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        abort();
    }
    for (int i = 0; i < 64; i++) {
        if (support_folders.paths[i] == NULL) {
            support_folders.paths[i] = strdup(path);
            break;
        }
    }
    return path;
}

void support_rmdir(char *path)
{
    for (int i = 0; i < 64; i++) {
        if (support_folders.paths[i] != NULL && strcmp(support_folders.paths[i], path) == 0) {
            free(support_folders.paths[i]);
            support_folders.paths[i] = NULL;
        }
    }
    support_remove(path);
    free(path);
}

void support_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

void support_change_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+e");
    int byte;

    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}
