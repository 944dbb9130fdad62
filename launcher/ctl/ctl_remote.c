/* ctl_remote.c - owns cddp-ctl's connection to the store of a job. */
#include "launcher/ctl/ctl_remote.h"

#include "launcher/ctl/ctl_request.h"
#include "launcher/nodes/job_rendezvous.h"
#include "launcher/nodes/node_place.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"

#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 100,           /* between two looks at the status */
    ANSWER_MS = 10000,       /* how long the store may take to show it */
    MOST_EVENTS = 100000000, /* where the search for the end of the log gives up */
    JOB_BYTES = 40
};

struct cddpi_ctl_remote {
    cddp_store *store;
    char job[JOB_BYTES];
    const char *outside; /* the store's URL, if no node serves it; borrowed */
    struct cddpi_job_member list[CDDPI_CTL_ROWS];
};

static cddp_status read_job(struct cddpi_ctl_remote *remote, const char *url)
{
    void *id = NULL;
    void *outside = NULL;
    cddp_status status = cddp_store_try_get(remote->store, CDDPI_PLACE_JOB_KEY, &id, NULL);

    if (cddp_store_try_get(remote->store, CDDPI_PLACE_OUTSIDE_KEY, &outside, NULL) == CDDP_OK) {
        remote->outside = url;
    }
    cddp_free(outside);
    if (status == CDDP_ERR_NOT_FOUND || (status == CDDP_OK && strlen(id) >= JOB_BYTES)) {
        status = cddpi_fail(CDDP_ERR_NOT_FOUND, "%s is not the store of a job of several machines",
                            url);
    }
    if (status == CDDP_OK) {
        snprintf(remote->job, sizeof remote->job, "%s", (const char *)id);
    }
    cddp_free(id);
    return status;
}

cddp_status cddpi_ctl_remote_open(const char *url, const char *token_file, uint32_t timeout_ms,
                                  struct cddpi_ctl_remote **out)
{
    struct cddpi_ctl_remote *remote;
    char token[CDDPI_TOKEN_BYTES + 1];
    cddp_status status;

    CDDPI_TRY(cddpi_token_read(token_file, token));
    if (token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: give the job's token with --token-file FILE, or set CDDP_TOKEN",
                          url);
    }
    remote = cddpi_zalloc(sizeof *remote);
    CDDPI_TRY_MEMORY(remote != NULL, "no memory to reach %s", url);
    status = cddpi_place_open_store(url, token, timeout_ms, &remote->store);
    if (status == CDDP_OK) {
        status = read_job(remote, url);
    }
    if (status != CDDP_OK) {
        cddpi_ctl_remote_close(remote);
        return status;
    }
    *out = remote;
    return CDDP_OK;
}

void cddpi_ctl_remote_close(struct cddpi_ctl_remote *remote)
{
    if (remote != NULL) {
        cddp_store_close(remote->store);
        cddpi_free(remote);
    }
}

/* Read the answer under @p name once it is there. CDDP_ERR_TIMEOUT: it is not there, or the store
 * does not answer. @p wait_ms 0: do not wait for it; CDDP_ERR_NOT_FOUND: it is not there. */
static cddp_status read_answer(struct cddpi_ctl_remote *remote, const char *name, uint32_t wait_ms,
                               struct cddpi_ctl_answer *out)
{
    char key[CDDPI_CTL_KEY_BYTES];
    void *data = NULL;
    size_t bytes = 0;
    cddp_status status;

    snprintf(key, sizeof key, CDDPI_CTL_KEY, remote->job, name);
    CDDPI_TRY(wait_ms > 0 ? cddp_store_get(remote->store, key, wait_ms, &data, &bytes)
                          : cddp_store_try_get(remote->store, key, &data, &bytes));
    status = cddpi_message_decode(&cddpi_ctl_answer_form, data, bytes, out);
    cddp_free(data);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "%s in the store", key);
}

/* Append @p event to the job's log: under the first number that is not used yet. */
static cddp_status publish(struct cddpi_ctl_remote *remote, const struct cddpi_node_event *event,
                           int64_t deadline_ns)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    bool is_taken = false;
    cddp_status status = cddpi_message_encode(&cddpi_node_event_form, event, &message);

    for (int64_t number = 0; status == CDDP_OK && !is_taken && number < MOST_EVENTS; number++) {
        char key[JOB_BYTES + 32];

        snprintf(key, sizeof key, "%s/event/%lld", remote->job, (long long)number);
        status = cddp_store_compare_set(remote->store, key, NULL, 0, message.data, message.bytes,
                                        &is_taken, NULL, NULL);
        if (status == CDDP_OK && !is_taken && cddpi_left_ms(deadline_ns) == 0) {
            status = cddpi_fail(CDDP_ERR_TIMEOUT, "the job's log is longer than could be read in "
                                                  "time (--timeout)");
        }
    }
    cddpi_buffer_fini(&message);
    return status;
}

/* The members that @p answer tells of. */
static bool list_members(struct cddpi_ctl_remote *remote, const struct cddpi_ctl_answer *answer,
                         struct cddpi_membership *out)
{
    bool is_done = cddpi_ctl_members_of(answer, out, remote->list);

    out->outside_store = remote->outside;
    return is_done;
}

/* Whether what @p request asked for when the status was @p before has happened. */
static bool has_happened(struct cddpi_ctl_remote *remote, const struct cddpi_ctl_request *request,
                         const struct cddpi_ctl_answer *now, const int before[3],
                         char text[CDDPI_CTL_TEXT_BYTES], bool *out_is_done)
{
    struct cddpi_membership members;

    *out_is_done = true;
    if (request->command == CDDPI_CTL_CHECKPOINT) {
        *out_is_done = now->saves > before[1];
        snprintf(text, CDDPI_CTL_TEXT_BYTES, "%s",
                 *out_is_done ? "a checkpoint is written" : "the checkpoint could not be written");
        return now->saves > before[1] || now->unsaved > before[2];
    }
    return list_members(remote, now, &members) &&
           cddpi_ctl_has_happened(&members, request, before[0], text);
}

/* Wait until what was asked for has happened, or the job ends. Only its end answers `stop`: who
 * waits for that in one piece gets the answer before the store ends, too. */
static cddp_status await(struct cddpi_ctl_remote *remote, const struct cddpi_ctl_request *request,
                         int64_t deadline_ns, struct cddpi_ctl_answer *out)
{
    const int before[] = {out->generation, out->saves, out->unsaved};
    char text[CDDPI_CTL_TEXT_BYTES] = "";
    bool is_done = false;

    do {
        int left_ms = request->command == CDDPI_CTL_STOP ? cddpi_left_ms(deadline_ns) : 0;
        cddp_status status = read_answer(remote, CDDPI_CTL_END_NAME,
                                         left_ms > LOOK_MS ? (uint32_t)left_ms : LOOK_MS, out);

        if (status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        status = read_answer(remote, CDDPI_CTL_STATUS_NAME, ANSWER_MS, out);
        if (status != CDDP_OK && status != CDDP_ERR_TIMEOUT) {
            return status;
        }
        if (status == CDDP_OK && has_happened(remote, request, out, before, text, &is_done)) {
            out->is_done = is_done;
            snprintf(out->text, sizeof out->text, "%s", text);
            return CDDP_OK;
        }
    } while (cddpi_left_ms(deadline_ns) > 0);
    return cddpi_fail(CDDP_ERR_TIMEOUT,
                      "it has not happened in time (--timeout), and may still happen");
}

cddp_status cddpi_ctl_remote_ask(struct cddpi_ctl_remote *remote,
                                 const struct cddpi_ctl_request *request, uint32_t timeout_ms,
                                 struct cddpi_ctl_answer *out)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    struct cddpi_ctl_request wish = *request;
    struct cddpi_node_event event;
    struct cddpi_membership members;
    cddp_status status;

    status = read_answer(remote, CDDPI_CTL_STATUS_NAME, timeout_ms, out);
    if (status == CDDP_ERR_TIMEOUT) {
        status = read_answer(remote, CDDPI_CTL_STATUS_NAME, 0, out);
    }
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "job %s has not begun: its nodes have not met yet",
                          remote->job);
    }
    CDDPI_TRY(status);
    if (request->command == CDDPI_CTL_STATUS) {
        return CDDP_OK;
    }
    out->is_done = list_members(remote, out, &members) &&
                   cddpi_ctl_decide(&members, request, out->trains, &event, out->text);
    if (!out->is_done) {
        return CDDP_OK;
    }
    event.generation = out->generation > 0 ? out->generation : 0;
    if (event.kind != CDDPI_EVENT_NONE) {
        CDDPI_TRY(publish(remote, &event, deadline_ns));
    }
    cddpi_ctl_name_node(&wish, &event);
    return await(remote, &wish, deadline_ns, out);
}
