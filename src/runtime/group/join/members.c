/* members.c - owns the first exchange of ranks that join: which rank is on which host.
 *
 * Keys of the rendezvous: "member/R" has "world size|host id"; "members" has rank 0's answer, "ok
 * SIZE NONCE HOST:RUN*HOSTS ..." (the host of each rank: RUN ranks on each of HOSTS hosts from HOST
 * on; a few words for the usual jobs, however large, since every rank reads them) or its refusal
 * (rendezvous.h). */
#include "group/join/members.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_ID_BYTES = 320, RUN_BYTES = 32, POLL_MS = 20, STALE_MS = 1000, GRACE_MS = 2000 };

/* Write the host id, which is equal for processes that can share memory. */
static void write_host_id(char out[HOST_ID_BYTES])
{
    char place[CDDPI_PROCESS_PLACE_BYTES];
    char host_name[128] = "";
    const char *given = cddpi_env(CDDPI_ENV_HOST_ID);

    if (given != NULL) {
        snprintf(out, HOST_ID_BYTES, "%.200s", given);
        return;
    }
    cddpi_rendezvous_place(place);
    (void)gethostname(host_name, sizeof host_name - 1);
    snprintf(out, HOST_ID_BYTES, "%s|%s", place, host_name);
}

cddp_status cddpi_members_fail_sizes(int rank, int size, int size_of_0)
{
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "rank %d was started for a world size of %d and rank 0 for one of %d: all "
                      "ranks of a job need the same (CDDP_WORLD_SIZE, WORLD_SIZE, or the option "
                      "world_size)",
                      rank, size, size_of_0);
}

/* Find host @p id among those of lower ranks, or add it. */
static int number_of(const char **ids, int *host_count, const char *id)
{
    /* usually the host is that of the previous rank: search from the end */
    for (int host = *host_count - 1; host >= 0; host--) {
        if (strcmp(ids[host], id) == 0) {
            return host;
        }
    }
    ids[*host_count] = id;
    return (*host_count)++;
}

/* On rank 0: check that the ranks which have joined were started for this job's size. */
static cddp_status check_sizes(void *context, const struct cddpi_member_values *values)
{
    const struct cddpi_members *members = context;
    int size = members->env->world_size;

    for (int rank = 0; rank < size; rank++) {
        const char *value = values->of[rank];

        if (value != NULL && (strchr(value, '|') == NULL || atoi(value) != size)) {
            return cddpi_members_fail_sizes(rank, atoi(value), size);
        }
    }
    return CDDP_OK;
}

/* On rank 0: wait for all ranks, and number their hosts. */
static cddp_status take_members(struct cddpi_members *members)
{
    struct cddpi_rendezvous *rendezvous = members->rendezvous;
    int size = members->env->world_size;
    const char **ids = cddpi_zalloc_array((size_t)size, sizeof *ids);
    struct cddpi_member_values values;
    cddp_status status;

    if (ids == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory");
    }
    status = cddpi_rendezvous_await_members(rendezvous,
                                            (struct cddpi_member_check){check_sizes, members},
                                            rendezvous->deadline_ns, &values);
    if (status == CDDP_OK) {
        for (int rank = 0; rank < size; rank++) {
            members->host_of[rank] = number_of(ids, &members->host_count,
                                               strchr(values.of[rank], '|') + 1);
        }
        cddpi_rendezvous_members_fini(&values);
    } else if (status == CDDP_ERR_TIMEOUT) {
        status = cddpi_rendezvous_missing(rendezvous);
    }
    cddpi_free(ids);
    return status;
}

/* How many consecutive ranks from @p first on are on the same host. */
static int run_at(const struct cddpi_members *members, int first)
{
    int rank = first;

    while (rank < members->env->world_size && members->host_of[rank] == members->host_of[first]) {
        rank++;
    }
    return rank - first;
}

/* "ok 7 00c0ffee00c0ffee 0:2*3 3:1*1" */
static cddp_status give_members(struct cddpi_members *members)
{
    int size = members->env->world_size;
    size_t bytes = (size_t)size * RUN_BYTES + 64;
    char *text = cddpi_zalloc(bytes);
    size_t used;
    cddp_status status;

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory");
    }
    randombytes_buf(&members->nonce, sizeof members->nonce);
    used = (size_t)snprintf(text, bytes, "ok %d %016" PRIx64, size, members->nonce);
    for (int rank = 0; rank < size;) {
        int host = members->host_of[rank];
        int run = run_at(members, rank);
        int hosts = 0;

        while (rank < size && members->host_of[rank] == host + hosts &&
               run_at(members, rank) == run) {
            rank += run;
            hosts++;
        }
        used += (size_t)snprintf(text + used, bytes - used, " %d:%d*%d", host, run, hosts);
    }
    status = cddp_store_set(members->rendezvous->store, "members", text, used);
    cddpi_free(text);
    return status;
}

cddp_status cddpi_members_read(struct cddpi_members *members, const char *text)
{
    const struct cddpi_launch_env *env = members->env;
    int rank = 0;
    int known = 0; /* number of hosts that already have a rank */
    int size;
    int at = 0;

    if (sscanf(text, "ok %d %" SCNx64 "%n", &size, &members->nonce, &at) != 2 || at == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "joining: rank 0's answer cannot be understood");
    }
    if (size != env->world_size) {
        return cddpi_members_fail_sizes(env->rank, env->world_size, size);
    }
    while (rank < size) {
        int host;
        int run;
        int hosts;
        int length = 0;

        if (sscanf(text + at, " %d:%d*%d%n", &host, &run, &hosts, &length) != 3 || host < 0 ||
            run < 1 || hosts < 1 || host > known || host > size - hosts ||
            run > (size - rank) / hosts) {
            return cddpi_fail(CDDP_ERR_FORMAT, "joining: rank 0's answer cannot be understood");
        }
        at += length;
        known = host + hosts > known ? host + hosts : known;
        for (int i = 0; i < run * hosts; i++) {
            members->host_of[rank++] = host + i / run;
        }
    }
    return CDDP_OK;
}

/* Wait for the answer. An answer for another number of ranks may be a left-over of an earlier group
 * with the same name; rank 0 will then replace it soon. */
static cddp_status await_members(struct cddpi_members *members)
{
    int64_t deadline = members->rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    int64_t stale_until = 0;

    for (;;) {
        char *value;
        cddp_status status;

        CDDPI_TRY(cddpi_refusal_await(members->rendezvous, "members", 0, deadline, &value));
        status = cddpi_members_read(members, value);
        cddp_free(value);
        if (status == CDDP_OK || cddpi_left_ms(deadline) == 0) {
            return status;
        }
        if (stale_until == 0) {
            stale_until = cddpi_deadline_ns(STALE_MS);
        } else if (cddpi_left_ms(stale_until) == 0) {
            return status;
        }
        usleep(POLL_MS * 1000);
    }
}

static cddp_status exchange_hosts(struct cddpi_members *members)
{
    const struct cddpi_launch_env *env = members->env;
    char host_id[HOST_ID_BYTES];
    char mine[HOST_ID_BYTES + 16];
    char key[CDDPI_MEMBER_KEY_BYTES];
    cddp_status status;

    CDDPI_TRY(cddpi_rendezvous_be_rank(members->rendezvous));
    write_host_id(host_id);
    snprintf(mine, sizeof mine, "%d|%s", env->world_size, host_id);
    cddpi_rendezvous_member(env->rank, key);
    CDDPI_TRY(cddp_store_set(members->rendezvous->store, key, mine, strlen(mine)));
    if (env->rank != 0) {
        return await_members(members);
    }
    cddpi_rendezvous_delete(members->rendezvous, "members");
    status = take_members(members);
    return status == CDDP_OK ? give_members(members)
                             : cddpi_refusal_set(members->rendezvous, "members", status);
}

/* Set what is known about this rank's host from host_of. */
static cddp_status place_self(struct cddpi_members *members)
{
    int rank = members->env->rank;
    int world_size = members->env->world_size;

    members->locals = cddpi_zalloc_array((size_t)world_size, sizeof *members->locals);
    if (members->locals == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory for %d ranks", world_size);
    }
    members->host = members->host_of[rank];
    members->host_count = 0;
    members->local_size = 0;
    for (int r = 0; r < world_size; r++) {
        if (members->host_of[r] >= members->host_count) {
            members->host_count = members->host_of[r] + 1;
        }
        if (members->host_of[r] == members->host) {
            if (r == rank) {
                members->local_rank = members->local_size;
            }
            members->locals[members->local_size++] = r;
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_members_gather(const struct cddpi_launch_env *env,
                                 struct cddpi_rendezvous *rendezvous, struct cddpi_members *out)
{
    struct cddpi_members members = {.env = env, .rendezvous = rendezvous};
    cddp_status status;

    members.host_of = cddpi_zalloc_array((size_t)env->world_size, sizeof *members.host_of);
    if (members.host_of == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "joining: no memory for %d ranks", env->world_size);
    }
    if (rendezvous != NULL) {
        CDDPI_TRY_GOTO(fail, status, exchange_hosts(&members));
    }
    CDDPI_TRY_GOTO(fail, status, place_self(&members));
    *out = members;
    return CDDP_OK;

fail:
    cddpi_members_fini(&members);
    return status;
}

void cddpi_members_joined(const struct cddpi_members *members)
{
    const struct cddpi_launch_env *env = members->env;

    if (members->rendezvous != NULL && env->rank == 0 && !env->hosts_store && !env->removes_file) {
        cddpi_rendezvous_delete(members->rendezvous, "members");
    }
}

void cddpi_members_fini(struct cddpi_members *members)
{
    cddpi_free(members->host_of);
    cddpi_free(members->locals);
}
