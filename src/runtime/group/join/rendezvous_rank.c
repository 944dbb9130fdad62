/* rendezvous_rank.c - owns "who/R": which process joins as rank R. With two such processes, some of
 * the other ranks would train with one and some with the other. */
#include "group/join/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "group/launch/local_token.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEY_BYTES = 32, LOOK_MS = 2000 };

#define WHO struct cddpi_who

CDDPI_MESSAGE_FORM(cddpi_who_form, WHO, WHO, sizeof(WHO) + 64, CDDPI_NUMBER(WHO, pid, 1, INT32_MAX),
                   CDDPI_U64(WHO, start), CDDPI_TEXT(WHO, host), CDDPI_TEXT(WHO, place));

static void find_self(struct cddpi_who *out)
{
    memset(out, 0, sizeof *out);
    out->pid = cddpi_process_id();
    out->start = cddpi_process_start_time();
    (void)gethostname(out->host, sizeof out->host - 1);
    cddpi_process_place(out->place);
}

static cddp_status read_who(const struct cddpi_rendezvous *rendezvous, const void *value,
                            size_t bytes, struct cddpi_who *out)
{
    cddp_status status = cddpi_message_decode(&cddpi_who_form, value, bytes, out);

    return status == CDDP_OK
               ? CDDP_OK
               : cddpi_fail_prefix(status, "joining job %s: the store's entry for rank %d",
                                   rendezvous->env->job, rendezvous->env->rank);
}

/* Fail because two processes joined as one rank, and notify all ranks that wait. */
static cddp_status fail_twice(struct cddpi_rendezvous *rendezvous, const struct cddpi_who *a,
                              const struct cddpi_who *b)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    char text[900];

    snprintf(
        text, sizeof text,
        "rank %d came twice to %.300s: process %d on host %s and process %d on host %s. Was the "
        "job started twice, do two jobs meet at one place, or is one rank given to two "
        "processes?",
        env->rank, env->store, a->pid, a->host, b->pid, b->host);
    cddpi_rendezvous_set(rendezvous, "failure", text);
    return cddpi_fail(CDDP_ERR_MISMATCH, "joining job %s: %s", env->job, text);
}

/* Replace in the store another process, which may have ended; if it has not, it will find a note
 * about this. */
static cddp_status replace(struct cddpi_rendezvous *rendezvous, const char *key, bool is_known_gone)
{
    char contested[KEY_BYTES];

    CDDPI_TRY(cddpi_message_set(rendezvous->store, key, &cddpi_who_form, &rendezvous->who));
    snprintf(contested, sizeof contested, "failure/%d", rendezvous->env->rank);
    return is_known_gone
               ? CDDP_OK
               : cddpi_message_set(rendezvous->store, contested, &cddpi_who_form, &rendezvous->who);
}

cddp_status cddpi_rendezvous_be_rank(struct cddpi_rendezvous *rendezvous)
{
    struct cddpi_who other;
    char key[KEY_BYTES];
    bool is_first = false;
    bool is_known;
    bool is_here;
    void *value = NULL;
    size_t bytes = 0;

    find_self(&rendezvous->who);
    snprintf(key, sizeof key, "who/%d", rendezvous->env->rank);
    CDDPI_TRY(cddpi_message_set_first(rendezvous->store, key, &cddpi_who_form, &rendezvous->who,
                                      &is_first, &value, &bytes));
    is_known = !is_first && cddpi_message_decode(&cddpi_who_form, value, bytes, &other) == CDDP_OK;
    cddp_free(value);
    if (is_first || (is_known && memcmp(&other, &rendezvous->who, sizeof other) == 0)) {
        return CDDP_OK;
    }
    is_here = is_known && strcmp(rendezvous->who.place, other.place) == 0;
    /* the entry may be left by a process that was killed while it waited */
    return is_here && cddpi_process_is_alive(other.pid, other.start)
               ? fail_twice(rendezvous, &other, &rendezvous->who)
               : replace(rendezvous, key, is_here);
}

cddp_status cddpi_rendezvous_contest(struct cddpi_rendezvous *rendezvous,
                                     const struct cddpi_store_pair *pair)
{
    struct cddpi_who other;
    char own[KEY_BYTES];

    snprintf(own, sizeof own, "failure/%d", rendezvous->env->rank);
    if (strcmp(pair->key, own) != 0 || rendezvous->who.pid == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(read_who(rendezvous, pair->value, pair->bytes, &other));
    return memcmp(&other, &rendezvous->who, sizeof other) == 0
               ? CDDP_OK
               : fail_twice(rendezvous, &rendezvous->who, &other);
}

void cddpi_rendezvous_forget_rank(struct cddpi_rendezvous *rendezvous)
{
    char key[KEY_BYTES];

    if (rendezvous->who.pid != 0) {
        snprintf(key, sizeof key, "who/%d", rendezvous->env->rank);
        cddpi_rendezvous_delete(rendezvous, key);
    }
}

/* Connect to the store of the process that has the port, as one of its ranks would. */
static cddp_status open_rivals(struct cddpi_rendezvous *rendezvous, struct cddpi_launch_env *env)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    char prefix[CDDPI_PREFIX_BYTES];

    cddpi_rendezvous_prefix(env, prefix);
    options.url = env->store;
    options.token = env->token;
    options.prefix = prefix;
    options.timeout_ms = LOOK_MS;
    return env->token[0] == '\0' ? cddpi_local_token_open(env, &options, cddpi_deadline_ns(LOOK_MS),
                                                          &rendezvous->store)
                                 : cddp_store_open(&options, &rendezvous->store);
}

cddp_status cddpi_rendezvous_name_rival(struct cddpi_rendezvous *rendezvous,
                                        struct cddpi_launch_env *env, cddp_status failed)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    struct cddpi_who other;
    void *value = NULL;
    size_t bytes = 0;

    if (open_rivals(rendezvous, env) == CDDP_OK &&
        cddp_store_get(rendezvous->store, "who/0", LOOK_MS, &value, &bytes) == CDDP_OK) {
        failed = read_who(rendezvous, value, bytes, &other);
        cddp_free(value);
        CDDPI_TRY(failed);
        find_self(&rendezvous->who);
        return fail_twice(rendezvous, &other, &rendezvous->who);
    }
    (void)cddpi_fail_again(failed, &failure);
    return cddpi_fail_suffix(failed,
                             ": another job has that port, or another process that came as "
                             "rank 0 (%s)",
                             rendezvous->env->says);
}
