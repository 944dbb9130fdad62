/* rendezvous_rank.c - owns "who/R": which process joins as rank R. With two such processes, some of
 * the other ranks would train with one and some with the other. */
#include "group/join/rendezvous.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/process.h"
#include "group/launch/local_token.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEY_BYTES = 32, LOOK_MS = 2000 };

/* A process, written as "PID START HOST PLACE". Processes with equal PLACE see each other in
 * /proc. */
struct who {
    int pid;
    uint64_t start;
    char host[80];
    char place[CDDPI_WHO_BYTES];
};

void cddpi_rendezvous_place(char out[CDDPI_PROCESS_PLACE_BYTES])
{
    char machine[CDDPI_MACHINE_BYTES];
    char space[64] = "";

    cddpi_machine(machine);
    (void)!readlink("/proc/self/ns/pid", space, sizeof space - 1);
    snprintf(out, CDDPI_PROCESS_PLACE_BYTES, "%s|%s", machine, space);
}

static void write_who(char out[CDDPI_WHO_BYTES])
{
    char host[80] = "";
    char place[CDDPI_PROCESS_PLACE_BYTES];

    cddpi_rendezvous_place(place);
    (void)gethostname(host, sizeof host - 1);
    snprintf(out, CDDPI_WHO_BYTES, "%d %" PRIu64 " %s %s", cddpi_process_id(),
             cddpi_process_start_time(), host[0] != '\0' ? host : "?", place);
}

static bool read_who(const char *text, struct who *out)
{
    return sscanf(text, "%d %" SCNu64 " %79s %639[^\n]", &out->pid, &out->start, out->host,
                  out->place) == 4;
}

/* Fail because two processes joined as one rank, and notify all ranks that wait. */
static cddp_status fail_twice(struct cddpi_rendezvous *rendezvous, const char *first,
                              const char *second)
{
    const struct cddpi_launch_env *env = rendezvous->env;
    struct who a;
    struct who b;
    char text[900];

    if (!read_who(first, &a) || !read_who(second, &b)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "joining job %s: what is in the store about rank %d "
                          "cannot be understood",
                          env->job, env->rank);
    }
    snprintf(
        text, sizeof text,
        "rank %d came twice to %.300s: process %d on host %s and process %d on host %s. Was the "
        "job started twice, do two jobs meet at one place, or is one rank given to two "
        "processes?",
        env->rank, env->store, a.pid, a.host, b.pid, b.host);
    cddpi_rendezvous_set(rendezvous, "failure", text);
    return cddpi_fail(CDDP_ERR_MISMATCH, "joining job %s: %s", env->job, text);
}

/* Replace @p other in the store, which may have ended; if it has not, it will find a note about
 * this. */
static cddp_status replace(struct cddpi_rendezvous *rendezvous, const char *key, bool is_known_gone)
{
    char contested[KEY_BYTES];

    CDDPI_TRY(cddp_store_set(rendezvous->store, key, rendezvous->who, strlen(rendezvous->who)));
    if (!is_known_gone) {
        snprintf(contested, sizeof contested, "failure/%d", rendezvous->env->rank);
        cddpi_rendezvous_set(rendezvous, contested, rendezvous->who);
    }
    return CDDP_OK;
}

cddp_status cddpi_rendezvous_be_rank(struct cddpi_rendezvous *rendezvous)
{
    struct who own;
    struct who other;
    char key[KEY_BYTES];
    bool is_first = false;
    void *value = NULL;
    cddp_status status;

    write_who(rendezvous->who);
    snprintf(key, sizeof key, "who/%d", rendezvous->env->rank);
    status = cddp_store_compare_set(rendezvous->store, key, NULL, 0, rendezvous->who,
                                    strlen(rendezvous->who), &is_first, &value, NULL);
    if (status == CDDP_OK && !is_first && strcmp(value, rendezvous->who) != 0) {
        bool is_here = read_who(rendezvous->who, &own) && read_who(value, &other) &&
                       strcmp(own.place, other.place) == 0;

        /* the entry may be left by a process that was killed while it waited */
        if (is_here && cddpi_process_is_alive(other.pid, other.start)) {
            status = fail_twice(rendezvous, value, rendezvous->who);
        } else {
            status = replace(rendezvous, key, is_here);
        }
    }
    cddp_free(value);
    return status;
}

cddp_status cddpi_rendezvous_contest(struct cddpi_rendezvous *rendezvous, const char *key,
                                     const char *value)
{
    char own[KEY_BYTES];

    snprintf(own, sizeof own, "failure/%d", rendezvous->env->rank);
    return strcmp(key, own) == 0 && rendezvous->who[0] != '\0' &&
                   strcmp(value, rendezvous->who) != 0
               ? fail_twice(rendezvous, rendezvous->who, value)
               : CDDP_OK;
}

void cddpi_rendezvous_forget_rank(struct cddpi_rendezvous *rendezvous)
{
    char key[KEY_BYTES];

    if (rendezvous->who[0] != '\0') {
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
    void *value = NULL;

    if (open_rivals(rendezvous, env) == CDDP_OK &&
        cddp_store_get(rendezvous->store, "who/0", LOOK_MS, &value, NULL) == CDDP_OK) {
        write_who(rendezvous->who);
        failed = fail_twice(rendezvous, value, rendezvous->who);
        cddp_free(value);
        return failed;
    }
    (void)cddpi_fail_again(failed, &failure);
    return cddpi_fail_suffix(failed,
                             ": another job has that port, or another process that came as "
                             "rank 0 (%s)",
                             rendezvous->env->says);
}
