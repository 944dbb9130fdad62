/* local_token.c - owns the token of ranks that were not given one. On loopback, rank 0 creates it
 * together with its server, and writes it to a file that only this user can read; the other ranks
 * read it there. In a file store, which only this user can read, the token is a key.
 *
 * The file's name contains the port and the network namespace, so it is the same for all processes
 * that can connect to this port. It is written and removed only while its server has the port, so
 * no job removes another job's file. */
#include "group/launch/local_token.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interface.h"
#include "group/launch/launch_token.h"
#include "group/launch/launch_variable.h"
#include "store/server.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOKEN_BYTES = 33, /* 32 digits and a line feed; the caller has a NUL instead */
    NAME_BYTES = 128,
    PAUSE_MS = 20,
    TRY_MS = 1000,    /* after this, read the file again */
    PROBE_MS = 200,   /* loopback answers at once or not at all */
    GRACE_MS = 10000, /* after this, an open port without a token, or with another one, belongs to
                         another program */
    TRIES = 3,
    AGAIN = 20 /* how often the folder may disappear while a file is created in it */
};

/* --- folders below $TMPDIR or /tmp in which ranks of one user meet. Their names can be guessed, so
 * each is checked before it is used. --- */

static cddp_status folder_path(const char *name, char *out, size_t bytes)
{
    const char *base = cddpi_launch_variable("TMPDIR");

    if ((size_t)snprintf(out, bytes, "%s/cddp-%ld-%s", base != NULL ? base : "/tmp",
                         (long)geteuid(), name) >= bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: TMPDIR is too long");
    }
    return CDDP_OK;
}

/* Whether @p path is such a folder: not a link, owned by this user, mode 0700. False with
 * *out_missing: it does not exist. */
static bool is_own_folder(const char *path, bool *out_missing)
{
    struct stat stat_of;

    *out_missing = false;
    if (lstat(path, &stat_of) != 0) {
        *out_missing = errno == ENOENT;
        return false;
    }
    return S_ISDIR(stat_of.st_mode) && stat_of.st_uid == geteuid() && (stat_of.st_mode & 0077) == 0;
}

cddp_status cddpi_own_folder_make(const char *name, char *out, size_t bytes)
{
    bool is_missing;

    CDDPI_TRY(folder_path(name, out, bytes));
    if (mkdir(out, 0700) != 0 && errno != EEXIST) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "join: make folder %s (%s)", out,
                                cddpi_launch_variable("TMPDIR") != NULL
                                    ? "below TMPDIR, which has to be there"
                                    : "TMPDIR can name another place than /tmp");
    }
    if (!is_own_folder(out, &is_missing)) {
        return cddpi_fail(CDDP_ERR_IO, "join: %s is not a folder of this user alone (mode 0700)",
                          out);
    }
    return CDDP_OK;
}

/* --- the token --- */

bool cddpi_local_token_is_needed(const struct cddpi_launch_env *env)
{
    return env->token[0] == '\0' && env->hosts_store && env->server == NULL &&
           cddpi_launch_is_here(env);
}

/* Write the folder's name, for the port in this network namespace. */
static void name_of(const struct cddpi_launch_env *env, char out[NAME_BYTES])
{
    const char *colon = strrchr(env->store, ':');
    char host[64];
    char space[64] = "";
    ssize_t length = readlink("/proc/self/ns/net", space, sizeof space - 1);
    const char *number = length > 0 ? strchr(space, '[') : NULL;

    snprintf(host, sizeof host, "%.*s", (int)(colon - env->store - 6), env->store + 6);
    if (strncmp(host, "127.", 4) != 0 || strcmp(host, "127.0.0.1") == 0) {
        host[0] = '\0'; /* ranks may use different names for the same address */
    }
    snprintf(out, NAME_BYTES, "port-%.16s-%llu%s%.32s", colon + 1,
             number != NULL ? strtoull(number + 1, NULL, 10) : 0ULL, host[0] != '\0' ? "-" : "",
             host);
}

static cddp_status write_once(const char *folder, const char *token, const char *path)
{
    char aside[sizeof((struct cddpi_launch_env *)0)->token_file + 32];
    char line[TOKEN_BYTES + 1];
    int error = 0;
    int fd;

    snprintf(aside, sizeof aside, "%s/token.%ld", folder, (long)getpid());
    snprintf(line, sizeof line, "%.32s\n", token);
    (void)unlink(aside); /* left by a killed process with the same number */
    fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "join: make %s", aside);
    }
    if (write(fd, line, TOKEN_BYTES) != TOKEN_BYTES) {
        error = errno != 0 ? errno : EIO;
    }
    close(fd);
    if (error == 0 && rename(aside, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(aside);
        return cddpi_fail_errno(CDDP_ERR_IO, error, "join: write the job's token to %s", path);
    }
    return CDDP_OK;
}

static cddp_status fail_without_place(cddp_status status)
{
    return cddpi_fail_suffix(status, ". Ranks that share this port need a secret: set CDDP_TOKEN "
                                     "for all of them (openssl rand -hex 16 prints one)");
}

cddp_status cddpi_local_token_write(struct cddpi_launch_env *env)
{
    char name[NAME_BYTES];
    cddp_status status = CDDP_ERR_IO;

    name_of(env, name);
    for (int i = 0; i < AGAIN; i++) { /* rank 0 of another job may remove the empty folder */
        status = cddpi_own_folder_make(name, env->folder, sizeof env->folder);
        if (status != CDDP_OK) {
            env->folder[0] = '\0';
            break;
        }
        snprintf(env->token_file, sizeof env->token_file, "%s/token", env->folder);
        status = write_once(env->folder, env->token, env->token_file);
        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        env->token_file[0] = '\0';
        if (cddpi_last_errno() != ENOENT) {
            break;
        }
    }
    return fail_without_place(status);
}

void cddpi_local_token_remove(const struct cddpi_launch_env *env)
{
    if (env->token_file[0] != '\0' && env->rank == 0) {
        (void)unlink(env->token_file);
    }
    if (env->folder[0] != '\0' && env->rank == 0 && !env->removes_file) {
        (void)rmdir(env->folder);
    }
}

/* *out_found: there is a complete token. */
static cddp_status read_token(struct cddpi_launch_env *env, const char *folder, const char *path,
                              bool *out_found)
{
    char line[TOKEN_BYTES];
    bool is_missing;
    ssize_t got;
    int fd = -1;
    int tries = 0;
    cddp_status status;

    *out_found = false;
    if (!is_own_folder(folder, &is_missing)) {
        return is_missing
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_IO,
                                "join: %s is not a folder of this user alone (mode 0700)", folder);
    }
    do { /* the file may appear or disappear at any moment, so failures are retried */
        if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) {
            return CDDP_OK;
        }
        status = cddpi_file_open_own(path, O_RDONLY, 0, false, &fd);
    } while (status != CDDP_OK && ++tries < TRIES);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "join: %s", path);
    }
    got = read(fd, line, sizeof line);
    close(fd);
    if (got == TOKEN_BYTES) {
        line[TOKEN_BYTES - 1] = '\0';
        memcpy(env->token, line, TOKEN_BYTES);
        *out_found = true;
    }
    return CDDP_OK;
}

/* Whether a process listens at @p store, "tcp://host:port". */
static bool is_open(const char *store)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos = NULL;
    const char *colon = strrchr(store, ':');
    char host[300];
    size_t skip = store[6] == '[' ? 1 : 0;
    bool open = false;

    snprintf(host, sizeof host, "%.*s", (int)(colon - store - 6 - 2 * (long)skip),
             store + 6 + skip);
    if (getaddrinfo(host, colon + 1, &hints, &infos) != 0) {
        return false;
    }
    for (const struct addrinfo *info = infos; info != NULL && !open; info = info->ai_next) {
        open = cddpi_address_probe(info->ai_addr, info->ai_addrlen, PROBE_MS) == 0;
    }
    freeaddrinfo(infos);
    return open;
}

/* Make one attempt. CDDP_ERR_TIMEOUT: it may be too early. CDDP_ERR_AUTH: a process listens, but
 * there is no token here, or its token is another one. */
static cddp_status try_to_open(struct cddpi_launch_env *env, const cddp_store_options *options,
                               const char *folder, const char *path, int64_t deadline_ns,
                               cddp_store **out)
{
    cddp_store_options own = *options;
    int left_ms = cddpi_left_ms(deadline_ns);
    bool found;
    cddp_status status = read_token(env, folder, path, &found);

    if (status != CDDP_OK) {
        return fail_without_place(status);
    }
    if (!found) {
        if (!is_open(env->store)) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "join: nobody listens at %s yet", env->store);
        }
        return cddpi_fail(CDDP_ERR_AUTH,
                          "join: somebody listens at %s, but rank 0 of this user has left no token "
                          "in %s",
                          env->store, path);
    }
    own.token = env->token;
    own.timeout_ms = left_ms > TRY_MS ? TRY_MS : left_ms > 0 ? (uint32_t)left_ms : 1;
    return cddp_store_open(&own, out);
}

cddp_status cddpi_local_token_open(struct cddpi_launch_env *env, const cddp_store_options *options,
                                   int64_t deadline_ns, cddp_store **out)
{
    char name[NAME_BYTES];
    char folder[sizeof env->folder];
    char path[sizeof env->folder + 16];
    int64_t give_up_ns = 0;
    cddp_status status;

    name_of(env, name);
    status = folder_path(name, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/token", folder);
    while (status == CDDP_OK) {
        status = try_to_open(env, options, folder, path, deadline_ns, out);
        if (status == CDDP_OK) {
            cddpi_store_set_timeout(*out, options->timeout_ms);
            return CDDP_OK;
        }
        env->token[0] = '\0';
        give_up_ns = status != CDDP_ERR_AUTH ? 0
                     : give_up_ns != 0       ? give_up_ns
                                             : cddpi_deadline_ns(GRACE_MS);
        if (cddpi_left_ms(deadline_ns) == 0 ||
            (give_up_ns != 0 && cddpi_left_ms(give_up_ns) == 0) ||
            (status != CDDP_ERR_AUTH && status != CDDP_ERR_TIMEOUT)) {
            break;
        }
        usleep(PAUSE_MS * 1000);
        status = CDDP_OK;
    }
    return status != CDDP_ERR_AUTH
               ? status
               : cddpi_fail_suffix(status, ". Ranks of other users, of containers with another "
                                           "/tmp, or with another TMPDIR cannot read it: set "
                                           "CDDP_TOKEN to the same secret for all ranks (openssl "
                                           "rand -hex 16 prints one)");
}

/* Whether only this user can read the file store, as far as its file system knows. */
static cddp_status check_mode(const char *path)
{
    struct stat stat_of;

    if (stat(path, &stat_of) == 0 && (stat_of.st_mode & 0077) != 0) {
        return cddpi_fail(CDDP_ERR_IO,
                          "join: others may read %s (its file system says mode %04o), so it cannot "
                          "hold the job's secret: set CDDP_TOKEN to the same secret for all ranks "
                          "(openssl rand -hex 16 prints one)",
                          path, (unsigned)stat_of.st_mode & 07777);
    }
    return CDDP_OK;
}

cddp_status cddpi_file_token_share(struct cddpi_launch_env *env, cddp_store *store)
{
    char own[TOKEN_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    bool is_mine;
    cddp_status status = CDDP_OK;

    if (env->token[0] != '\0' || strncmp(env->store, "file://", 7) != 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_mode(env->store + 7));
    cddpi_store_token(own);
    CDDPI_TRY(cddp_store_compare_set(store, "token", NULL, 0, own, TOKEN_BYTES - 1, &is_mine,
                                     &value, &bytes));
    if (is_mine) {
        memcpy(env->token, own, TOKEN_BYTES);
    } else if (bytes == TOKEN_BYTES - 1) {
        memcpy(env->token, value, bytes);
        env->token[bytes] = '\0';
    } else {
        status = cddpi_fail(CDDP_ERR_FORMAT, "join: the token in %s is not whole", env->store);
    }
    cddp_free(value);
    return status;
}
