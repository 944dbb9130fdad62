/* members.c - owns the first exchange of ranks that join: which rank is on which host.
 *
 * Keys of the rendezvous: "member/R" has what rank R tells rank 0; "members" has rank 0's answer or
 * its refusal (rendezvous.h). */
#include "group/join/members.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "store/store.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { POLL_MS = 20, STALE_MS = 1000, GRACE_MS = 2000 };

#define MEMBER struct cddpi_member
#define RUN struct cddpi_host_run
#define HOSTS struct cddpi_member_hosts

CDDPI_MESSAGE_FORM(cddpi_member_form, MEMBER, MEMBER, sizeof(MEMBER) + 64,
                   CDDPI_NUMBER(MEMBER, world_size, 1, INT32_MAX), CDDPI_TEXT(MEMBER, host_id));

static const struct cddpi_field run_fields[] = {
    CDDPI_NUMBER(RUN, host, 0, INT32_MAX),
    CDDPI_NUMBER(RUN, ranks, 1, INT32_MAX),
    CDDPI_NUMBER(RUN, hosts, 1, INT32_MAX),
    {.type = CDDPI_FIELD_END},
};

CDDPI_MESSAGE_FORM(cddpi_member_hosts_form, MEMBER_HOSTS, HOSTS, CDDP_STORE_VALUE_BYTES,
                   CDDPI_NUMBER(HOSTS, world_size, 1, INT32_MAX), CDDPI_U64(HOSTS, nonce),
                   CDDPI_LIST(HOSTS, runs, count, INT32_MAX, run_fields));

cddp_status cddpi_members_fail_sizes(int rank, int size, int size_of_0)
{
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "rank %d was started for a world size of %d and rank 0 for one of %d: all "
                      "ranks of a job need the same (CDDP_WORLD_SIZE, WORLD_SIZE, or the option "
                      "world_size)",
                      rank, size, size_of_0);
}

/* On rank 0: check that the ranks which have joined were started for this job's size. */
static cddp_status check_sizes(void *context, const struct cddpi_member_values *values)
{
    const struct cddpi_members *members = context;
    int size = members->env->world_size;
    struct cddpi_member member;

    for (int rank = 0; rank < size; rank++) {
        const struct cddpi_store_pair *pair = values->of[rank];

        if (pair == NULL) {
            continue;
        }
        cddp_status status = cddpi_message_decode(&cddpi_member_form, (const void *)pair->value,
                                                  pair->bytes, &member);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "joining: what rank %d says", rank);
        }
        if (member.world_size != size) {
            return cddpi_members_fail_sizes(rank, member.world_size, size);
        }
    }
    return CDDP_OK;
}

/* Find the host of @p member among those of lower ranks, or add it. All members have passed
 * check_sizes(), so what they say differs by their hosts only. */
static int number_of(const struct cddpi_store_pair **firsts, int *host_count,
                     const struct cddpi_store_pair *member)
{
    /* usually the host is that of the previous rank: search from the end */
    for (int host = *host_count - 1; host >= 0; host--) {
        if (firsts[host]->bytes == member->bytes &&
            memcmp(firsts[host]->value, member->value, member->bytes) == 0) {
            return host;
        }
    }
    firsts[*host_count] = member;
    return (*host_count)++;
}

/* On rank 0: wait for all ranks, and number their hosts. */
static cddp_status take_members(struct cddpi_members *members)
{
    struct cddpi_rendezvous *rendezvous = members->rendezvous;
    int size = members->env->world_size;
    const struct cddpi_store_pair **firsts = cddpi_zalloc_array((size_t)size, sizeof *firsts);
    struct cddpi_member_values values;
    cddp_status status;

    CDDPI_TRY_MEMORY(firsts != NULL, "joining: no memory");
    status = cddpi_rendezvous_await_members(rendezvous,
                                            (struct cddpi_member_check){check_sizes, members},
                                            rendezvous->deadline_ns, &values);
    if (status == CDDP_OK) {
        for (int rank = 0; rank < size; rank++) {
            members->host_of[rank] = number_of(firsts, &members->host_count, values.of[rank]);
        }
        cddpi_rendezvous_members_fini(&values);
    } else if (status == CDDP_ERR_TIMEOUT) {
        status = cddpi_rendezvous_missing(rendezvous);
    }
    cddpi_free(firsts);
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

static cddp_status give_members(struct cddpi_members *members)
{
    struct cddpi_member_hosts answer = {.world_size = members->env->world_size};
    cddp_status status;

    answer.runs = cddpi_zalloc_array((size_t)answer.world_size, sizeof *answer.runs);
    CDDPI_TRY_MEMORY(answer.runs != NULL, "joining: no memory");
    randombytes_buf(&members->nonce, sizeof members->nonce);
    answer.nonce = members->nonce;
    for (int rank = 0; rank < answer.world_size;) {
        struct cddpi_host_run *run = &answer.runs[answer.count++];

        *run = (struct cddpi_host_run){members->host_of[rank], run_at(members, rank), 0};
        while (rank < answer.world_size && members->host_of[rank] == run->host + run->hosts &&
               run_at(members, rank) == run->ranks) {
            rank += run->ranks;
            run->hosts++;
        }
    }
    status = cddpi_message_set(members->rendezvous->store, "members", &cddpi_member_hosts_form,
                               &answer);
    cddpi_free(answer.runs);
    return status;
}

/* Expand the runs of @p answer into host_of. */
static cddp_status place_runs(struct cddpi_members *members,
                              const struct cddpi_member_hosts *answer)
{
    int size = members->env->world_size;
    int rank = 0;
    int known = 0; /* number of hosts that already have a rank */

    if (answer->world_size != size) {
        return cddpi_members_fail_sizes(members->env->rank, size, answer->world_size);
    }
    members->nonce = answer->nonce;
    for (int i = 0; i < answer->count; i++) {
        const struct cddpi_host_run *run = &answer->runs[i];

        if (run->host > known || run->host > size - run->hosts ||
            run->ranks > (size - rank) / run->hosts) {
            break;
        }
        known = run->host + run->hosts > known ? run->host + run->hosts : known;
        for (int r = 0; r < run->ranks * run->hosts; r++) {
            members->host_of[rank++] = run->host + r / run->ranks;
        }
    }
    return rank == size ? CDDP_OK
                        : cddpi_fail(CDDP_ERR_FORMAT, "joining: rank 0's answer is damaged");
}

cddp_status cddpi_members_read(struct cddpi_members *members, const void *answer, size_t bytes)
{
    struct cddpi_member_hosts hosts;
    cddp_status status = cddpi_message_decode(&cddpi_member_hosts_form, answer, bytes, &hosts);

    status = status == CDDP_OK ? place_runs(members, &hosts)
                               : cddpi_fail_prefix(status, "joining: rank 0's answer");
    cddpi_message_fini(&cddpi_member_hosts_form, &hosts);
    return status;
}

/* Wait for the answer. An answer for another number of ranks may be a left-over of an earlier group
 * with the same name; rank 0 will then replace it soon. */
static cddp_status await_members(struct cddpi_members *members)
{
    int64_t deadline = members->rendezvous->deadline_ns + (int64_t)GRACE_MS * 1000000;
    int64_t stale_until = 0;

    for (;;) {
        void *value;
        size_t bytes;
        cddp_status status;

        CDDPI_TRY(cddpi_refusal_await(members->rendezvous, "members", 0, deadline, &value, &bytes));
        status = cddpi_members_read(members, value, bytes);
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

static void find_self(const struct cddpi_launch_env *env, struct cddpi_member *out)
{
    const char *given = cddpi_env(CDDPI_ENV_HOST_ID);
    size_t used;

    *out = (struct cddpi_member){.world_size = env->world_size};
    if (given != NULL) {
        snprintf(out->host_id, sizeof out->host_id, "%.200s", given);
        return;
    }
    cddpi_process_place(out->host_id);
    used = strlen(out->host_id);
    out->host_id[used] = '|';
    (void)gethostname(out->host_id + used + 1, 127);
}

static cddp_status exchange_hosts(struct cddpi_members *members)
{
    const struct cddpi_launch_env *env = members->env;
    struct cddpi_member own;
    char key[CDDPI_MEMBER_KEY_BYTES];
    cddp_status status;

    CDDPI_TRY(cddpi_rendezvous_be_rank(members->rendezvous));
    find_self(env, &own);
    cddpi_rendezvous_member(env->rank, key);
    CDDPI_TRY(cddpi_message_set(members->rendezvous->store, key, &cddpi_member_form, &own));
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
    CDDPI_TRY_MEMORY(members->locals != NULL, "joining: no memory for %d ranks", world_size);
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
    CDDPI_TRY_MEMORY(members.host_of != NULL, "joining: no memory for %d ranks", env->world_size);
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
