/* meet.c - cddp_group_create(): the ranks meet in the store, find out whether they share a machine,
 * and rank 0 tells where the shared block is. The store is closed once all have come.
 *
 * Keys: "member/R" holds "boot id|host|process namespace"; "verdict" holds rank 0's answer, "ok
 * PID FD START NONCE" or "no STATUS TEXT"; "refused" holds the text of a rank that could not map
 * the block; "failure" holds what cddp-run says about the rank that failed first: then nobody need
 * be waited for; "ended/R" is there once cddp-run has seen rank R end well. A verdict of processes
 * that are gone (a file that was left over) is not taken. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "group/device.h"
#include "group/host/host.h"
#include "group/join.h"
#include "store/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GRACE_MS = 2000,
    POLL_MS = 20,
    STALE_MS = 1000,
    LOOK_MS = 500,
    OWN_FILES = 64 /* open files that a rank with the store's server needs itself */
};

struct meeting {
    const struct cddpi_join *join;
    cddp_store *store;
    struct cddpi_store_server *server;
    int64_t deadline_ns;
    int fd;
};

static void read_line(const char *path, char *out, size_t bytes)
{
    FILE *file = fopen(path, "re");

    out[0] = '\0';
    if (file != NULL) {
        if (fgets(out, (int)bytes, file) != NULL) {
            out[strcspn(out, "\n")] = '\0';
        }
        fclose(file);
    }
}

/* What is the same for processes that can share memory. */
static void whereabouts(char *out, size_t bytes)
{
    char boot[64];
    char host[128] = "";
    char space[64] = "";
    ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    (void)gethostname(host, sizeof host - 1);
    space[length > 0 ? length : 0] = '\0';
    snprintf(out, bytes, "%s|%s|%s", boot, host, space);
}

static cddp_status open_store(struct meeting *meeting)
{
    const struct cddpi_join *join = meeting->join;
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    char prefix[320];
    cddp_status status;

    if (join->hosts_store && join->rank == 0) {
        struct cddpi_store_server_options server = {.token = join->token, .reserved = OWN_FILES};
        char host[1200];
        const char *colon = strrchr(join->store, ':');
        char *end;
        long port = strtol(colon + 1, &end, 10);

        snprintf(host, sizeof host, "%.*s", (int)(colon - join->store - 6), join->store + 6);
        if (host[0] == '[' && host[strlen(host) - 1] == ']') { /* an IPv6 address */
            memmove(host, host + 1, strlen(host));
            host[strlen(host) - 1] = '\0';
        }
        if (*end != '\0' || port < 1 || port > 65535) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s has no port", join->store);
        }
        server.host = host;
        server.port = (uint16_t)port;
        status = cddpi_store_server_create(&server, &meeting->server);
        if (status != CDDP_OK) {
            return status;
        }
    }
    snprintf(prefix, sizeof prefix, "%s/%u/", join->job, join->generation);
    options.url = join->store;
    options.token = join->token;
    options.prefix = prefix;
    options.timeout_ms = join->timeout_ms;
    return cddp_store_open(&options, &meeting->store);
}

/* For keys whose loss others will notice by themselves. */
static void tell(cddp_store *store, const char *key, const char *text)
{
    if (cddp_store_set(store, key, text, strlen(text)) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "joining: could not set %s: %s", key, cddp_last_error());
    }
}

static void forget(cddp_store *store, const char *key)
{
    if (cddp_store_delete(store, key, NULL) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_DEBUG, "joining: could not delete %s: %s", key, cddp_last_error());
    }
}

static void member_key(int rank, char out[32])
{
    snprintf(out, 32, "member/%d", rank);
}

/* CDDP_ERR_PEER once the launcher has said that a rank failed, or that @p rank ended, which is to
 * write @p key and has not. */
static cddp_status check_launcher(struct meeting *meeting, const char *key, int rank)
{
    char ended[32];
    void *value;

    if (cddp_store_try_get(meeting->store, "failure", &value, NULL) == CDDP_OK) {
        (void)cddpi_fail(CDDP_ERR_PEER, "joining job %s: %.1000s", meeting->join->job,
                         (const char *)value);
        cddp_free(value);
        return CDDP_ERR_PEER;
    }
    snprintf(ended, sizeof ended, "ended/%d", rank);
    if (cddp_store_try_get(meeting->store, ended, &value, NULL) != CDDP_OK) {
        return CDDP_OK;
    }
    cddp_free(value);
    if (cddp_store_try_get(meeting->store, key, &value, NULL) == CDDP_OK) {
        cddp_free(value); /* it had written before it ended */
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_PEER,
                      "joining job %s: rank %d ended, with status 0, before it joined",
                      meeting->join->job, rank);
}

/* Wait for @p key, which @p rank writes; CDDP_ERR_TIMEOUT when the deadline has passed,
 * CDDP_ERR_PEER as soon as the launcher says that this is in vain. @param out  Release with
 * cddp_free(). */
static cddp_status await_key(struct meeting *meeting, const char *key, int rank,
                             int64_t deadline_ns, char **out)
{
    for (;;) {
        int left = cddpi_left_ms(deadline_ns);
        int slice = left > LOOK_MS ? LOOK_MS : left > 0 ? left : 1;
        void *value;
        cddp_status status = cddp_store_get(meeting->store, key, (uint32_t)slice, &value, NULL);

        if (status == CDDP_OK) {
            *out = value;
            return CDDP_OK;
        }
        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        status = check_launcher(meeting, key, rank);
        if (status != CDDP_OK) {
            return status;
        }
        if (left <= slice) {
            return CDDP_ERR_TIMEOUT;
        }
    }
}

/* "rank 1, 3 did not come": those without a member key. */
static cddp_status name_missing(struct meeting *meeting)
{
    char missing[256] = "";
    size_t used = 0;

    for (int r = 0; r < meeting->join->world_size && used < sizeof missing - 32; r++) {
        char key[32];
        void *value;
        size_t bytes;

        member_key(r, key);
        if (cddp_store_try_get(meeting->store, key, &value, &bytes) == CDDP_OK) {
            cddp_free(value);
        } else {
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d",
                                     used > 0 ? ", " : "", r);
        }
    }
    return cddpi_fail(CDDP_ERR_TIMEOUT, "joining job %s: %s %s did not come to %s within %u ms",
                      meeting->join->job, strchr(missing, ',') != NULL ? "ranks" : "rank",
                      used > 0 ? missing : "0 to answer", meeting->join->store,
                      meeting->join->timeout_ms);
}

/* Rank 0: wait for all, and compare where they are. */
static cddp_status gather_members(struct meeting *meeting)
{
    const struct cddpi_join *join = meeting->join;
    char mine[320];

    whereabouts(mine, sizeof mine);
    for (int r = 1; r < join->world_size; r++) {
        char key[32];
        char *value;
        bool same;
        cddp_status status;

        member_key(r, key);
        status = await_key(meeting, key, r, meeting->deadline_ns, &value);
        if (status == CDDP_ERR_TIMEOUT) {
            return name_missing(meeting);
        }
        if (status != CDDP_OK) {
            return status;
        }
        same = strcmp(value, mine) == 0;
        if (!same) {
            status = cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                "ranks 0 and %d are on different machines or in different "
                                "containers (%s; %.300s): the host backend shares memory within "
                                "one machine only",
                                r, mine, value);
        }
        cddp_free(value);
        if (!same) {
            return status;
        }
    }
    return CDDP_OK;
}

/* Rank 0: make the block and tell the others, or tell them why not. */
static cddp_status give_verdict(struct meeting *meeting, struct cddpi_backend **out)
{
    const struct cddpi_join *join = meeting->join;
    struct cddpi_seat seat = {0, join->world_size, join->timeout_ms};
    uint64_t start = 0;
    uint64_t nonce;
    char text[1200];
    char state;
    cddp_status status;

    forget(meeting->store, "verdict");
    forget(meeting->store, "refused");
    status = gather_members(meeting);
    if (status == CDDP_OK) {
        status = cddpi_host_block_create(join->world_size, &nonce, &meeting->fd);
    }
    if (status == CDDP_OK) {
        status = cddpi_host_attach(&seat, meeting->fd, nonce, out);
    }
    if (status == CDDP_OK) {
        (void)cddpi_host_process(getpid(), &state, &start);
        snprintf(text, sizeof text, "ok %d %d %" PRIu64 " %" PRIu64, getpid(), meeting->fd, start,
                 nonce);
        return cddp_store_set(meeting->store, "verdict", text, strlen(text));
    }
    snprintf(text, sizeof text, "no %d %.1100s", (int)status, cddp_last_error());
    tell(meeting->store, "verdict", text);
    return cddpi_fail(status, "%s", strchr(text + 3, ' ') + 1);
}

static cddp_status follow(struct meeting *meeting, const char *text, struct cddpi_backend **out)
{
    const struct cddpi_join *join = meeting->join;
    struct cddpi_seat seat = {join->rank, join->world_size, join->timeout_ms};
    uint64_t start;
    uint64_t nonce;
    cddp_status status;
    int pid;
    int fd;

    if (sscanf(text, "ok %d %d %" SCNu64 " %" SCNu64, &pid, &fd, &start, &nonce) != 4) {
        return cddpi_fail(CDDP_ERR_FORMAT, "joining: rank 0's answer is no answer");
    }
    status = cddpi_host_open_fd(pid, start, fd, &meeting->fd);
    if (status == CDDP_OK) {
        status = cddpi_host_attach(&seat, meeting->fd, nonce, out);
    }
    if (status != CDDP_OK && meeting->fd >= 0) {
        close(meeting->fd);
        meeting->fd = -1;
    }
    return status;
}

static cddp_status refuse(struct meeting *meeting, cddp_status status)
{
    char text[1200];

    snprintf(text, sizeof text, "rank %d: %.1100s", meeting->join->rank, cddp_last_error());
    tell(meeting->store, "refused", text);
    return cddpi_fail(status, "%s", text);
}

/* An answer that cannot be followed may be an old one, left by an earlier group of the same name:
 * then rank 0 is about to replace it. */
static cddp_status await_verdict(struct meeting *meeting, struct cddpi_backend **out)
{
    int64_t deadline = meeting->deadline_ns + (int64_t)GRACE_MS * 1000000;
    int64_t stale_until = 0;

    for (;;) {
        int left = cddpi_left_ms(deadline);
        char *value;
        int failed;
        int at = 0;
        cddp_status status = await_key(meeting, "verdict", 0, deadline, &value);

        if (status == CDDP_ERR_TIMEOUT) {
            return name_missing(meeting);
        }
        if (status != CDDP_OK) {
            return status;
        }
        if (sscanf(value, "no %d %n", &failed, &at) == 1 && at > 0 && failed < 0 &&
            failed >= CDDP_ERR_CLOSED) {
            status = cddpi_fail((cddp_status)failed, "%s", value + at);
            cddp_free(value);
            return status;
        }
        status = follow(meeting, value, out);
        cddp_free(value);
        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        if (left == 0) {
            return status == CDDP_ERR_PEER ? name_missing(meeting) : refuse(meeting, status);
        }
        /* a dead process's answer is certainly old; anything else gets a second to change */
        if (status != CDDP_ERR_PEER && stale_until == 0) {
            stale_until = cddpi_deadline_ns(STALE_MS);
        } else if (status != CDDP_ERR_PEER && cddpi_left_ms(stale_until) == 0) {
            return refuse(meeting, status);
        }
        usleep(POLL_MS * 1000);
    }
}

static cddp_status refused(void *argument)
{
    struct meeting *meeting = argument;
    void *value;
    size_t bytes;

    if (meeting->join->rank != 0 ||
        cddp_store_try_get(meeting->store, "refused", &value, &bytes) != CDDP_OK) {
        return CDDP_OK;
    }
    (void)cddpi_fail(CDDP_ERR_PEER, "%.1100s", (const char *)value);
    cddp_free(value);
    return CDDP_ERR_PEER;
}

/* Nothing that was needed only for the meeting stays. */
static void adjourn(struct meeting *meeting, bool met)
{
    char key[32];

    if (meeting->store != NULL && met && !meeting->join->hosts_store &&
        !meeting->join->removes_file) {
        member_key(meeting->join->rank, key);
        forget(meeting->store, key);
        if (meeting->join->rank == 0) {
            forget(meeting->store, "verdict");
        }
    }
    cddp_store_close(meeting->store);
    cddpi_store_server_destroy(meeting->server);
    if (meeting->join->removes_file && meeting->join->rank == 0) {
        (void)unlink(meeting->join->store + strlen("file://"));
        if (meeting->join->folder[0] != '\0') {
            (void)rmdir(meeting->join->folder);
        }
    }
    if (meeting->fd >= 0) {
        close(meeting->fd);
    }
}

static cddp_status meet(struct meeting *meeting, struct cddpi_backend **out)
{
    struct cddpi_backend *host = NULL;
    char mine[320];
    char key[32];
    cddp_status status = open_store(meeting);
    int64_t deadline = meeting->deadline_ns + (int64_t)GRACE_MS * 1000000;

    if (status == CDDP_OK) {
        whereabouts(mine, sizeof mine);
        member_key(meeting->join->rank, key);
        status = cddp_store_set(meeting->store, key, mine, strlen(mine));
    }
    if (status == CDDP_OK) {
        status = meeting->join->rank == 0 ? give_verdict(meeting, &host)
                                          : await_verdict(meeting, &host);
    }
    if (status == CDDP_OK) {
        status = cddpi_host_meet(host, deadline, refused, meeting);
    }
    if (status != CDDP_OK && host != NULL) {
        cddpi_host_ops.close(host);
        return status;
    }
    if (status == CDDP_OK) {
        *out = host;
    }
    return status;
}

static cddp_status alone(uint32_t timeout_ms, struct cddpi_backend **out)
{
    struct cddpi_seat seat = {0, 1, timeout_ms};
    uint64_t nonce;
    int fd;
    cddp_status status = cddpi_host_block_create(1, &nonce, &fd);

    if (status == CDDP_OK) {
        status = cddpi_host_attach(&seat, fd, nonce, out);
        close(fd);
    }
    return status;
}

static cddp_status open_host(const struct cddpi_join *join, struct cddpi_backend **out)
{
    struct meeting meeting = {join, NULL, NULL, cddpi_deadline_ns(join->timeout_ms), -1};
    char text[1024];
    cddp_status status;

    if (join->world_size == 1) {
        return alone(join->timeout_ms, out);
    }
    status = meet(&meeting, out);
    snprintf(text, sizeof text, "%s", cddp_last_error());
    adjourn(&meeting, status == CDDP_OK);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail(status, "%s", text);
}

static bool is_plane(const char *name)
{
    return strcmp(name, "nccl") == 0 || strcmp(name, "ipc") == 0 || strcmp(name, "staged") == 0;
}

/* The group in the processor's memory, which each has. */
static cddp_status create(const struct cddpi_join *join, const char *name, cddp_group **out)
{
    const struct cddpi_backend_ops *ops = &cddpi_host_ops;
    struct cddpi_backend *backend = NULL;
    struct cddpi_seat seat = {join->rank, join->world_size, join->timeout_ms};
    int cores = 1;
    int own_cores = 1;
    cddp_status status;

    if (strcmp(name, "solo") == 0) {
        if (join->world_size != 1) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "rank %d: backend solo is for one rank, not %d",
                              join->rank, join->world_size);
        }
        ops = &cddpi_solo_ops;
        status = cddpi_solo_open(&backend);
    } else {
        status = open_host(join, &backend);
        if (status == CDDP_OK) {
            cddpi_host_cores(backend, &cores, &own_cores);
        }
    }
    if (status == CDDP_OK) {
        status = cddpi_group_build(&seat, ops, backend, cores, own_cores, out);
    }
    if (status == CDDP_OK) {
        (*out)->local_rank = join->local_rank;
        (*out)->local_world_size = join->local_world_size;
        (*out)->generation = join->generation;
    }
    return status;
}

cddp_status cddp_group_create(const cddp_group_options *options, cddp_group **out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_join join;
    cddp_group *group = NULL;
    const char *device;
    const char *name;
    bool on_device;
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: out is NULL");
    }
    status = cddpi_group_options_read(options, &read);
    if (status == CDDP_OK) {
        status = cddpi_join_read(options, &join);
    }
    if (status != CDDP_OK) {
        return status;
    }
    name = read.backend != NULL ? read.backend : cddpi_env(CDDPI_ENV_BACKEND);
    device = read.device != NULL ? read.device : cddpi_env(CDDPI_ENV_DEVICE);
    on_device = strcmp(device, "cpu") != 0;
    if (name != NULL && strcmp(name, "solo") != 0 && strcmp(name, "host") != 0 && !is_plane(name)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "backend %s is none of host, solo, nccl, ipc, staged", name);
    }
    if (read.stream != NULL && !on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "options.stream is for CUDA devices, not for cpu");
    }
    if (name != NULL && is_plane(name) && !on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "backend %s reduces a GPU's memory: it needs options.device or "
                          "CDDP_DEVICE to be cuda, not cpu",
                          name);
    }
    status = create(&join, name != NULL ? name : join.world_size == 1 ? "solo" : "host", &group);
    if (status == CDDP_OK && on_device) {
        status = cddpi_device_join(group, device, name, read.deterministic, read.stream);
    }
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    *out = group;
    return CDDP_OK;
}
