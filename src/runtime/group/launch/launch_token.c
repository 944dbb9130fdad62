/* launch_token.c - owns the file with the token of a job whose launcher does not give one (Slurm).
 *
 * A process keeps the token that it has read: rank 0 removes the file once all have joined, and
 * later groups have the same token. */
#include "group/launch/launch_token.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interface.h"
#include "group/launch/launch_variable.h"
#include "store/auth.h"
#include "store/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_BYTES = 600, /* maximum length of the file's path */
    TOKEN_BYTES = 33, /* 32 digits and a NUL; the file has a line feed instead of the NUL */
    /* after this, a file without a token counts as a left-over of a killed rank */
    WRITTEN_MS = 10000
};

static struct {
    pthread_mutex_t lock;
    char name[160];
    char token[TOKEN_BYTES];
    char file[FILE_BYTES];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Create the file @p path, which must not exist yet. Returns 0 or an errno. */
static int make_file(const char *path, char out[TOKEN_BYTES])
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    char line[TOKEN_BYTES];
    int error = 0;

    if (fd < 0) {
        return errno;
    }
    errno = 0;
    cddpi_store_token(out);
    memcpy(line, out, TOKEN_BYTES);
    line[TOKEN_BYTES - 1] = '\n';
    if (write(fd, line, TOKEN_BYTES) != TOKEN_BYTES || fsync(fd) != 0) {
        error = errno != 0 ? errno : EIO;
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(path);
    }
    return error;
}

/* Read the file that another rank has written or is writing; *out_complete says which. */
static cddp_status read_file(const char *path, char out[TOKEN_BYTES], bool *out_complete)
{
    struct stat stat_of;
    char line[TOKEN_BYTES];
    ssize_t got;
    int fd = -1;
    cddp_status status = cddpi_file_open_own(path, O_RDONLY, 0, false, &fd);

    if (status != CDDP_OK) {
        /* for example a pipe or a device of another user who can write there */
        return cddpi_fail_prefix(status,
                                 "join: %s, in which the job's token should be, is not used: "
                                 "remove it",
                                 path);
    }
    if (fstat(fd, &stat_of) != 0 || (stat_of.st_mode & 0077) != 0) {
        close(fd);
        return cddpi_fail(CDDP_ERR_IO,
                          "join: %s is not a file that this user alone can read (mode 0600), so it "
                          "is not used: remove it",
                          path);
    }
    got = read(fd, line, sizeof line);
    close(fd);
    *out_complete = got == TOKEN_BYTES;
    if (*out_complete) {
        memcpy(out, line, TOKEN_BYTES);
        out[TOKEN_BYTES - 1] = '\0';
    }
    return CDDP_OK;
}

static cddp_status await_file(const char *path, uint32_t timeout_ms, char out[TOKEN_BYTES])
{
    uint32_t limit_ms = timeout_ms < WRITTEN_MS ? timeout_ms : WRITTEN_MS;
    int64_t deadline_ns = cddpi_deadline_ns(limit_ms);

    for (;;) {
        bool complete = false;
        cddp_status status = read_file(path, out, &complete);

        if (status != CDDP_OK || complete) {
            return status;
        }
        if (cddpi_left_ms(deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_IO,
                              "join: %s has had no token in it for %u ms: a rank that was killed "
                              "may have left it; remove it",
                              path, limit_ms);
        }
        usleep(20000);
    }
}

/* Get the file's path in $HOME/.cddp, or in @p folder. False: there is no such folder; @p why has
 * the reason. */
static bool path_in(const char *home, const char *folder, const char *name, char out[FILE_BYTES],
                    char *why, size_t why_bytes)
{
    size_t bytes = FILE_BYTES;
    int length;

    if (home == NULL && folder == NULL) {
        snprintf(why, why_bytes, "it is not set");
        return false;
    }
    if (home != NULL) {
        if ((size_t)snprintf(out, bytes, "%s/.cddp", home) < bytes && mkdir(out, 0700) != 0 &&
            errno != EEXIST) {
            snprintf(why, why_bytes, "%s: %s", out, strerror(errno));
            return false;
        }
        length = snprintf(out, bytes, "%s/.cddp/%s.token", home, name);
    } else {
        length = snprintf(out, bytes, "%s/.cddp-%s.token", folder, name);
    }
    if ((size_t)length >= bytes) {
        snprintf(why, why_bytes, "its path is too long");
        return false;
    }
    return true;
}

/* Create or read the file; CDDP_ERR_UNAVAILABLE if it cannot be created there. */
static cddp_status token_at(const char *path, uint32_t timeout_ms, char out[TOKEN_BYTES], char *why,
                            size_t why_bytes)
{
    int error = make_file(path, out);

    if (error == 0) {
        return CDDP_OK;
    }
    if (error == EEXIST) {
        return await_file(path, timeout_ms, out);
    }
    snprintf(why, why_bytes, "%s: %s", path, strerror(error));
    return CDDP_ERR_UNAVAILABLE;
}

static cddp_status find_token(const char *name, const char *folder, uint32_t timeout_ms,
                              char out[TOKEN_BYTES], char out_path[FILE_BYTES])
{
    const char *homes[2] = {cddpi_launch_variable("HOME"), NULL};
    char why[2][700] = {"", ""};

    for (int i = 0; i < 2; i++) {
        cddp_status status = CDDP_ERR_UNAVAILABLE;

        if (path_in(homes[i], i == 0 ? NULL : folder, name, out_path, why[i], sizeof why[i])) {
            status = token_at(out_path, timeout_ms, out, why[i], sizeof why[i]);
        }
        if (status != CDDP_ERR_UNAVAILABLE) {
            return status;
        }
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "join: ranks on several nodes need a secret, and no file for one could be "
                      "made in $HOME/.cddp (%s) or the submit directory (%s): run export "
                      "CDDP_TOKEN=$(openssl rand -hex 16) before srun",
                      why[0], why[1]);
}

cddp_status cddpi_launch_token(struct cddpi_launch_env *env, const char *name, const char *folder)
{
    cddp_status status = CDDP_OK;

    if (env->token[0] != '\0') {
        return CDDP_OK;
    }
    pthread_mutex_lock(&known.lock);
    if (strcmp(known.name, name) != 0) {
        known.name[0] = '\0';
        status = find_token(name, folder, env->join_timeout_ms, known.token, known.file);
    }
    if (status == CDDP_OK) {
        snprintf(known.name, sizeof known.name, "%s", name);
        memcpy(env->token, known.token, sizeof known.token);
        memcpy(env->token_file, known.file, sizeof known.file);
    }
    pthread_mutex_unlock(&known.lock);
    return status;
}

/* Whether every address of the name @p host (without brackets) is loopback. */
static bool is_loopback(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *infos = NULL;
    bool loops = getaddrinfo(host, NULL, &hints, &infos) == 0;

    for (const struct addrinfo *info = infos; loops && info != NULL; info = info->ai_next) {
        loops = cddpi_address_is_loopback(info->ai_addr);
    }
    if (infos != NULL) {
        freeaddrinfo(infos);
    }
    return loops;
}

bool cddpi_launch_is_here(const struct cddpi_launch_env *env)
{
    struct in_addr v4;
    char host[300];
    const char *colon = strncmp(env->store, "tcp://", 6) == 0 ? strrchr(env->store, ':') : NULL;

    if (colon == NULL || colon < env->store + 6) {
        return false;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - env->store - 6), env->store + 6);
    if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
        (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127)) {
        return true;
    }
    /* a machine's own name may resolve to its loopback (127.0.1.1 in Debian's /etc/hosts) */
    return (env->local_world_size == 0 || env->local_world_size == env->world_size) &&
           host[0] != '[' && is_loopback(host);
}

cddp_status cddpi_launch_need_token(const struct cddpi_launch_env *env)
{
    cddp_status status;

    if (strncmp(env->store, "tcp://", 6) != 0) {
        return CDDP_OK;
    }
    status = cddpi_token_check(env->token, env->store);
    if (status == CDDP_OK ||
        cddpi_launch_is_here(env)) { /* this call may resolve a name, so do it only if needed */
        cddpi_error_clear();
        return CDDP_OK;
    }
    if (env->token[0] != '\0') {
        return cddpi_fail_prefix(status, "join");
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "join: ranks on other hosts come to %s, too, so the job needs a secret: set "
                      "CDDP_TOKEN to the same text for all ranks, such as what openssl rand -hex "
                      "16 prints (in Kubernetes from a Secret)",
                      env->store);
}
