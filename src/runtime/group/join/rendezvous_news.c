/* rendezvous_news.c - owns what ranks that wait learn about the others: which ranks are missing,
 * and which variables set the number of ranks; and refusals, by which a rank says why it cannot
 * join. */
#include "group/join/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { MISSING_BYTES = 256, SAYS_BYTES = 400 };

#define REFUSAL struct cddpi_refusal

CDDPI_MESSAGE_FORM(cddpi_refusal_form, REFUSAL, REFUSAL, sizeof(REFUSAL) + 64,
                   CDDPI_NUMBER(REFUSAL, status, INT32_MIN, -1),
                   CDDPI_NUMBER(REFUSAL, rank, -1, INT32_MAX), CDDPI_TEXT(REFUSAL, text));

/* List the ranks without a member key, as "1, 3" ("": all have one), and what sets the number of
 * ranks, as "; that there are 2 is what options says: RANK=0, WORLD_SIZE=2". */
static void list_missing(const struct cddpi_rendezvous *rendezvous,
                         const struct cddpi_member_values *values, char out[MISSING_BYTES],
                         char out_says[SAYS_BYTES])
{
    const struct cddpi_launch_env *env = rendezvous->env;
    size_t used = 0;
    int named = 0;
    int count = env->world_size - values->count;

    out[0] = out_says[0] = '\0';
    for (int r = 0; r < env->world_size && used < MISSING_BYTES - 48; r++) {
        if (values->of[r] == NULL) {
            used += (size_t)snprintf(out + used, MISSING_BYTES - used, "%s%d",
                                     named > 0 ? ", " : "", r);
            named++;
        }
    }
    if (named < count) {
        snprintf(out + used, MISSING_BYTES - used, " and %d more", count - named);
    }
    if (env->says[0] != '\0') {
        snprintf(out_says, SAYS_BYTES, "; that there are %d is what %s says: %s", env->world_size,
                 env->origin, env->says);
    }
}

/* Log which ranks are still missing, and which variables set the number of ranks. */
static void tell_missing(struct cddpi_rendezvous *rendezvous,
                         const struct cddpi_member_values *values)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    char missing[MISSING_BYTES];
    char says[SAYS_BYTES];

    list_missing(rendezvous, values, missing, says);
    if (missing[0] != '\0') {
        cddpi_log(CDDPI_LOG_WARN, "joining job %s: of %d ranks these have not come to %s yet: %s%s",
                  env->job, env->world_size, env->store, missing, says);
    }
}

static bool is_time_for_news(struct cddpi_rendezvous *rendezvous)
{
    if (cddpi_left_ms(rendezvous->news_ns) > 0) {
        return false;
    }
    rendezvous->news_ns = cddpi_deadline_ns(rendezvous->news_ms);
    rendezvous->news_ms *= 2;
    return true;
}

void cddpi_rendezvous_tell_missing(struct cddpi_rendezvous *rendezvous,
                                   const struct cddpi_member_values *values)
{
    if (is_time_for_news(rendezvous)) {
        tell_missing(rendezvous, values);
    }
}

void cddpi_rendezvous_tell_for_0(struct cddpi_rendezvous *rendezvous)
{
    struct cddpi_member_values values = {.count = 0};
    bool speaks = false;
    void *speaker = NULL;
    void *first = NULL;
    size_t bytes = 0;

    if (!is_time_for_news(rendezvous)) {
        return;
    }
    if (cddp_store_try_get(rendezvous->store, "member/0", &first, NULL) == CDDP_OK) {
        cddp_free(first);
        return;
    }
    if (cddpi_message_set_first(rendezvous->store, "speaker", &cddpi_who_form, &rendezvous->who,
                                &speaks, &speaker, &bytes) == CDDP_OK &&
        !speaks) {
        struct cddpi_who who;

        speaks = cddpi_message_decode(&cddpi_who_form, speaker, bytes, &who) == CDDP_OK &&
                 memcmp(&who, &rendezvous->who, sizeof who) == 0;
    }
    cddp_free(speaker);
    if (speaks && cddpi_rendezvous_members(rendezvous, &values) == CDDP_OK) {
        tell_missing(rendezvous, &values);
        cddpi_rendezvous_members_fini(&values);
    }
}

/* "ranks 1, 3 did not come" */
cddp_status cddpi_rendezvous_missing(struct cddpi_rendezvous *rendezvous)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    struct cddpi_member_values values = {.count = 0};
    char missing[MISSING_BYTES];
    char says[SAYS_BYTES];

    CDDPI_TRY(cddpi_rendezvous_members(rendezvous, &values));
    list_missing(rendezvous, &values, missing, says);
    cddpi_rendezvous_members_fini(&values);
    return cddpi_fail(CDDP_ERR_TIMEOUT, "joining job %s: %s %s did not come to %s within %u ms%s",
                      env->job, strchr(missing, ',') != NULL ? "ranks" : "rank",
                      missing[0] != '\0' ? missing : "0 to answer", env->store,
                      env->join_timeout_ms, says);
}

cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    struct cddpi_refusal refusal = {status, failure.rank, ""};

    snprintf(refusal.text, sizeof refusal.text, "%s", failure.text + failure.unnamed);
    if (cddpi_message_set(rendezvous->store, key, &cddpi_refusal_form, &refusal) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "joining: could not set %s: %s", key, cddp_last_error());
    }
    return cddpi_fail_again(status, &failure);
}

/* Fail as the refusal @p value says, or because it cannot be understood. */
static cddp_status fail_refused(const void *value, size_t bytes)
{
    struct cddpi_refusal refusal;
    cddp_status status = cddpi_message_decode(&cddpi_refusal_form, value, bytes, &refusal);

    return status == CDDP_OK
               ? cddpi_fail_rank((cddp_status)refusal.status, refusal.rank, "%s", refusal.text)
               : cddpi_fail_prefix(status, "joining: a rank's refusal");
}

cddp_status cddpi_refusal_await(struct cddpi_rendezvous *rendezvous, const char *key, int rank,
                                int64_t deadline_ns, void **out, size_t *out_bytes)
{
    cddp_status status = cddpi_rendezvous_await(rendezvous, key, rank, deadline_ns, out, out_bytes);

    if (status == CDDP_ERR_TIMEOUT) {
        return cddpi_rendezvous_missing(rendezvous);
    }
    if (status == CDDP_OK && cddpi_message_is(&cddpi_refusal_form, *out, *out_bytes)) {
        status = fail_refused(*out, *out_bytes);
        cddp_free(*out);
    }
    return status;
}

cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key)
{
    struct cddpi_failure failure;
    void *value;
    size_t bytes;

    if (cddp_store_try_get(rendezvous->store, key, &value, &bytes) != CDDP_OK) {
        return CDDP_OK;
    }
    (void)fail_refused(value, bytes);
    cddp_free(value);
    failure = *cddpi_last_failure();
    (void)cddpi_fail_again(CDDP_ERR_PEER, &failure);
    cddpi_error_blame(failure.rank);
    return CDDP_ERR_PEER;
}
