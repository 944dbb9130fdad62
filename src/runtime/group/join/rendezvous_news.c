/* rendezvous_news.c - reports which ranks are missing, while ranks join and when they give up, and
 * which variables set the number of ranks. */
#include "group/join/rendezvous_news.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* List the ranks without a member key, "1, 3"; "": all have one. */
static void list_missing(const struct cddpi_rendezvous *rendezvous,
                         const struct cddpi_member_values *values, char *out, size_t bytes)
{
    size_t used = 0;
    int named = 0;
    int count = rendezvous->env->world_size - values->count;

    out[0] = '\0';
    for (int r = 0; r < rendezvous->env->world_size && used < bytes - 48; r++) {
        if (values->of[r] == NULL) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%d", named > 0 ? ", " : "", r);
            named++;
        }
    }
    if (named < count) {
        snprintf(out + used, bytes - used, " and %d more", count - named);
    }
}

/* "; RANK=0, WORLD_SIZE=2 say that there are so many" */
static void add_says(const struct cddpi_launch_env *env, char *out, size_t bytes)
{
    out[0] = '\0';
    if (env->says[0] != '\0') {
        snprintf(out, bytes, "; that there are %d is what %s says: %s", env->world_size,
                 env->origin, env->says);
    }
}

/* Log which ranks are still missing, and which variables set the number of ranks. */
static void tell_missing(struct cddpi_rendezvous *rendezvous,
                         const struct cddpi_member_values *values)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    char missing[256];
    char says[400];

    list_missing(rendezvous, values, missing, sizeof missing);
    if (missing[0] != '\0') {
        add_says(env, says, sizeof says);
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

void cddpi_rendezvous_tell(struct cddpi_rendezvous *rendezvous,
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

    if (!is_time_for_news(rendezvous)) {
        return;
    }
    if (cddp_store_try_get(rendezvous->store, "member/0", &first, NULL) == CDDP_OK) {
        cddp_free(first);
        return;
    }
    if (cddp_store_compare_set(rendezvous->store, "speaker", NULL, 0, rendezvous->who,
                               strlen(rendezvous->who), &speaks, &speaker, NULL) == CDDP_OK &&
        !speaks) {
        speaks = strcmp(speaker, rendezvous->who) == 0;
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
    char missing[256];
    char says[400];
    cddp_status status = cddpi_rendezvous_members(rendezvous, &values);

    if (status != CDDP_OK) {
        return status;
    }
    list_missing(rendezvous, &values, missing, sizeof missing);
    add_says(env, says, sizeof says);
    cddpi_rendezvous_members_fini(&values);
    return cddpi_fail(CDDP_ERR_TIMEOUT, "joining job %s: %s %s did not come to %s within %u ms%s",
                      env->job, strchr(missing, ',') != NULL ? "ranks" : "rank",
                      missing[0] != '\0' ? missing : "0 to answer", env->store, env->timeout_ms,
                      says);
}
