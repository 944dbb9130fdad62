/* ctl.c - owns what cddp-run knows of its run folder, and carries out requests of cddp-ctl.
 * ctl_clients.c owns the connections. */
#include "launcher/ctl/ctl.h"

#include "launcher/ctl/ctl_clients.h"
#include "launcher/ctl/ctl_request.h"
#include "launcher/nodes/nodes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct cddpi_ctl {
    struct cddpi_nodes *nodes;
    bool trains; /* the ranks are cddp-train */
    struct cddpi_ctl_clients clients;
    struct cddpi_ctl_answer answer; /* being written; large */
    int generation;                 /* the last that was seen */
    int64_t steps_shown;            /* of nodes->steps, in the store */
    pid_t checker;                  /* cddp-train, asked whether the configuration ... */
    int checked_ranks;              /* ... allows so many ranks; pid 0: nothing is asked */
    bool has_failed;                /* the user knows that there is no socket */
    bool is_folder_silent;          /* its file system did not answer */
};

/* Listen in @p dir. @p is_locked: rank 0, which has locked the folder, reports it. The user is told
 * once if it cannot be reached there. A file system that did not answer is not asked again, since
 * each time would hold the job up. */
static void open_in(struct cddpi_ctl *ctl, const char *dir, bool is_locked)
{
    cddp_status status = CDDP_OK;

    if (!ctl->is_folder_silent) {
        status = cddpi_ctl_clients_listen(&ctl->clients, dir, is_locked);
    }
    if (status == CDDP_OK) {
        return;
    }
    ctl->is_folder_silent = status == CDDP_ERR_TIMEOUT;
    if (is_locked && !ctl->has_failed) {
        ctl->has_failed = true;
        cddpi_output_say(ctl->nodes->wait->output, "cddp-ctl cannot reach this job: %s",
                         cddp_last_error());
    } else {
        cddpi_log(CDDPI_LOG_INFO, "cddp-ctl cannot reach this job: %s", cddp_last_error());
    }
}

static void take_request(void *context, struct cddpi_ctl_client *client);

struct cddpi_ctl *cddpi_ctl_begin(struct cddpi_nodes *nodes, bool trains)
{
    struct cddpi_ctl *ctl;

    if (nodes->members.self != CDDPI_LEADER && nodes->members.outside_store == NULL) {
        return NULL; /* rank 0, which reports the run's folder, is never here */
    }
    ctl = cddpi_zalloc(sizeof *ctl);
    if (ctl == NULL || !cddpi_ctl_clients_init(&ctl->clients, take_request, ctl)) {
        cddpi_log(CDDPI_LOG_WARN, "cddp-ctl cannot reach this job: no memory or descriptors");
        cddpi_free(ctl);
        return NULL;
    }
    ctl->nodes = nodes;
    ctl->trains = trains;
    ctl->generation = -1;
    ctl->steps_shown = -1;
    return ctl;
}

static void begin_answer(struct cddpi_ctl *ctl, bool is_done)
{
    const struct cddpi_job *job = ctl->nodes->job;
    const struct cddpi_membership *members = &ctl->nodes->members;
    struct cddpi_ctl_answer *answer = &ctl->answer;

    memset(answer, 0, sizeof *answer);
    answer->is_done = is_done;
    answer->pid = getpid();
    answer->trains = ctl->trains;
    answer->saves = ctl->nodes->saves.written;
    answer->unsaved = ctl->nodes->saves.failed;
    snprintf(answer->job, sizeof answer->job, "%s", job->rendezvous.job);
    snprintf(answer->reason, sizeof answer->reason, "%s",
             members->generation == 0 ? "the job began" : members->reason);
    cddpi_ctl_describe(members, cddpi_now_ns(), answer);
    cddpi_ctl_describe_slow(&ctl->nodes->slow, answer);
    cddpi_ctl_describe_cards(&ctl->nodes->cards, answer);
    if (answer->is_alone && answer->count == 1) { /* one machine has no name among nodes */
        (void)gethostname(answer->rows[0].host, sizeof answer->rows[0].host - 1);
    }
}

/* Write ctl->answer to the key @p name, for cddp-ctl on other machines. */
static void show(struct cddpi_ctl *ctl, const char *name)
{
    const struct cddpi_job_rendezvous *rendezvous = &ctl->nodes->job->rendezvous;
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    char key[CDDPI_CTL_KEY_BYTES];

    snprintf(key, sizeof key, CDDPI_CTL_KEY, rendezvous->job, name);
    if (cddpi_message_encode(&cddpi_ctl_answer_form, &ctl->answer, &message) != CDDP_OK ||
        cddpi_store_server_set(rendezvous->server, key, message.data, message.bytes) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "%s: %s", key, cddp_last_error());
    }
    cddpi_buffer_fini(&message);
}

/* Whether other machines can read what is in the store of this cddp-run. */
static bool is_reached(const struct cddpi_ctl *ctl)
{
    return ctl->nodes->link != NULL && ctl->nodes->job->rendezvous.server != NULL;
}

static void show_status(struct cddpi_ctl *ctl)
{
    if (!is_reached(ctl) || ctl->steps_shown == ctl->nodes->steps) {
        return;
    }
    ctl->steps_shown = ctl->nodes->steps;
    begin_answer(ctl, true);
    ctl->answer.seconds = -1; /* it is read later */
    for (int i = 0; i < ctl->answer.straggler_count; i++) {
        ctl->answer.stragglers[i].seconds = -1;
    }
    show(ctl, CDDPI_CTL_STATUS_NAME);
}

/* Publish what was asked for. */
static void publish(struct cddpi_ctl *ctl, const struct cddpi_node_event *event)
{
    if (event->kind != CDDPI_EVENT_NONE) {
        CDDPI_MEMBERS_FEED(ctl->nodes, .kind = CDDPI_MEMBERS_ASKED, .heard = event);
    }
}

/* How many ranks the next generation has after @p event. */
static int count_ranks(const struct cddpi_membership *members, const struct cddpi_node_event *event)
{
    int left = members->most;
    int ranks = 0;

    for (int i = 0; i < members->count && left > 0; i++) {
        const struct cddpi_job_member *member = &members->list[i];
        bool is_named = member->node == event->node;

        if (member->is_there && !member->is_leaving &&
            !(is_named && event->kind == CDDPI_EVENT_LEAVE)) {
            left--;
            ranks += is_named ? event->number : member->nproc;
        }
    }
    return ranks;
}

static void reply(struct cddpi_ctl *ctl, struct cddpi_ctl_client *client, bool is_done,
                  const char *text)
{
    begin_answer(ctl, is_done);
    snprintf(ctl->answer.text, sizeof ctl->answer.text, "%s", text);
    cddpi_ctl_client_answer(&ctl->clients, client, &ctl->answer);
}

static bool decide(struct cddpi_ctl *ctl, const struct cddpi_ctl_client *client,
                   struct cddpi_node_event *out, char out_text[CDDPI_CTL_TEXT_BYTES])
{
    return cddpi_ctl_decide(&ctl->nodes->members, &client->request, ctl->trains, out, out_text);
}

/* Ask cddp-train whether the configuration allows @p ranks ranks. Ranks train on meanwhile, so
 * nothing here waits for the answer. */
static void begin_check(struct cddpi_ctl *ctl, struct cddpi_ctl_client *client, int ranks)
{
    pid_t pid;

    if (ctl->checker > 0) {
        reply(ctl, client, false, "cddp-train is checking another request: ask again");
        return;
    }
    pid = cddpi_command_begin_validate(&ctl->nodes->job->command, ranks);
    if (pid < 0) {
        cddpi_output_say(ctl->nodes->wait->output, "%s", cddp_last_error());
        reply(ctl, client, false, "cddp-train could not be asked: cddp-run has printed why");
        return;
    }
    ctl->checker = pid;
    ctl->checked_ranks = ranks;
    client->is_checked = true;
}

/* Word why there cannot be so many ranks as were checked. cddp-train may also have been killed, by
 * a lack of memory or of time. */
static void word_refusal(const struct cddpi_ctl *ctl, int exit_status,
                         char text[CDDPI_CTL_TEXT_BYTES])
{
    if (exit_status == CDDPI_REFUSED_CONFIG) {
        snprintf(text, CDDPI_CTL_TEXT_BYTES,
                 "the configuration does not allow %d ranks: cddp-run has printed why",
                 ctl->checked_ranks);
    } else {
        snprintf(text, CDDPI_CTL_TEXT_BYTES,
                 "cddp-train could not check the configuration for %d ranks (status %d): ask again",
                 ctl->checked_ranks, exit_status);
    }
}

/* cddp-train has answered @p client with @p exit_status. Meanwhile the members may have changed. */
static void take_check(struct cddpi_ctl *ctl, struct cddpi_ctl_client *client, int exit_status)
{
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_NONE};
    char text[CDDPI_CTL_TEXT_BYTES] = "";
    bool is_done = decide(ctl, client, &event, text);

    if (is_done && exit_status != 0) {
        is_done = false;
        word_refusal(ctl, exit_status, text);
    } else if (is_done && count_ranks(&ctl->nodes->members, &event) != ctl->checked_ranks) {
        is_done = false;
        snprintf(text, sizeof text, "members have changed meanwhile: ask again");
    }
    if (!is_done) {
        reply(ctl, client, false, text);
        return;
    }
    ctl->nodes->checked_ranks = ctl->checked_ranks; /* not again before they start */
    client->generation = ctl->nodes->members.generation;
    publish(ctl, &event);
}

/* The checker has ended. @p exit_status -1: it was killed with what the ranks have left. */
static void end_check(struct cddpi_ctl *ctl, int exit_status)
{
    ctl->checker = 0;
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        struct cddpi_ctl_client *client = &ctl->clients.list[i];

        if (client->fd < 0 || !client->is_checked) {
            continue;
        }
        client->is_checked = false;
        if (exit_status < 0) {
            reply(ctl, client, false, "the ranks have ended meanwhile: ask again");
        } else {
            take_check(ctl, client, exit_status);
        }
    }
}

void cddpi_ctl_take_child(struct cddpi_ctl *ctl, pid_t pid, int wait_status)
{
    int exit_status = cddpi_exit_status(wait_status);

    if (ctl == NULL || ctl->checker != pid) {
        return;
    }
    if (cddpi_command_end_validate(&ctl->nodes->job->command, exit_status) != CDDP_OK) {
        cddpi_output_say(ctl->nodes->wait->output, "%s", cddp_last_error());
    }
    end_check(ctl, exit_status);
}

/* Also while no ranks run: then nobody else waits for children. */
static void look_at_checker(struct cddpi_ctl *ctl)
{
    int status;
    pid_t pid = ctl->checker > 0 ? waitpid(ctl->checker, &status, WNOHANG) : 0;

    if (pid > 0) {
        cddpi_ctl_take_child(ctl, pid, status);
    } else if (pid < 0) {
        end_check(ctl, -1);
    }
}

static void take_request(void *context, struct cddpi_ctl_client *client)
{
    struct cddpi_ctl *ctl = context;
    const struct cddpi_membership *members = &ctl->nodes->members;
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_NONE};
    char text[CDDPI_CTL_TEXT_BYTES] = "";
    bool is_status = client->request.command == CDDPI_CTL_STATUS;
    int ranks;

    if (is_status || !decide(ctl, client, &event, text)) {
        reply(ctl, client, is_status, text);
        return;
    }
    cddpi_ctl_name_node(&client->request, &event);
    client->generation = members->generation;
    if (!cddpi_ctl_client_await(&ctl->clients, client)) {
        reply(ctl, client, false, "too many clients wait already");
        return;
    }
    /* if ranks become fewer, the leader finds a number that the configuration allows */
    ranks = event.kind == CDDPI_EVENT_SIZE && ctl->trains ? count_ranks(members, &event) : 0;
    if (ranks > members->world_size) {
        begin_check(ctl, client, ranks);
    } else {
        publish(ctl, &event);
    }
}

/* Answer all clients that wait for @p command. */
static void answer_waiting(struct cddpi_ctl *ctl, enum cddpi_ctl_command command, bool is_done,
                           const char *text)
{
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        struct cddpi_ctl_client *client = &ctl->clients.list[i];

        if (client->fd >= 0 && client->waits && client->request.command == command) {
            reply(ctl, client, is_done, text);
        }
    }
}

void cddpi_ctl_end(struct cddpi_ctl *ctl, int exit_status)
{
    if (ctl == NULL) {
        return;
    }
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        struct cddpi_ctl_client *client = &ctl->clients.list[i];

        if (client->fd >= 0 && client->waits) {
            begin_answer(ctl, client->request.command == CDDPI_CTL_STOP);
            ctl->answer.is_over = true;
            ctl->answer.exit_status = exit_status & 255;
            snprintf(ctl->answer.text, sizeof ctl->answer.text, "the job has ended");
            cddpi_ctl_client_answer(&ctl->clients, client, &ctl->answer);
        }
    }
    if (is_reached(ctl)) {
        begin_answer(ctl, true);
        ctl->answer.is_over = true;
        ctl->answer.exit_status = exit_status & 255;
        show(ctl, CDDPI_CTL_END_NAME);
    }
    cddpi_ctl_clients_fini(&ctl->clients);
    cddpi_free(ctl);
}

int cddpi_ctl_fd(const struct cddpi_ctl *ctl)
{
    return ctl != NULL ? ctl->clients.epoll : -1;
}

void cddpi_ctl_serve(struct cddpi_ctl *ctl)
{
    if (ctl != NULL) {
        cddpi_ctl_clients_serve(&ctl->clients);
    }
}

/* A program does not report the run's folder, as cddp-train does: take it from the options. */
static void open_for_program(struct cddpi_ctl *ctl)
{
    const char *dir = ctl->nodes->job->options.run_dir;

    if (!ctl->trains && dir != NULL && ctl->clients.socket.fd < 0 &&
        cddpi_membership_index(&ctl->nodes->members) == 0) {
        open_in(ctl, dir, false);
    }
}

void cddpi_ctl_look(struct cddpi_ctl *ctl)
{
    char text[CDDPI_CTL_TEXT_BYTES];

    if (ctl == NULL) {
        return;
    }
    look_at_checker(ctl);
    if (ctl->generation != ctl->nodes->members.generation) {
        ctl->generation = ctl->nodes->members.generation;
        open_for_program(ctl);
    }
    show_status(ctl);
    for (int i = 0; i < CDDPI_CTL_CLIENTS; i++) {
        struct cddpi_ctl_client *client = &ctl->clients.list[i];

        if (client->fd >= 0 && client->waits && !client->is_checked &&
            cddpi_ctl_has_happened(&ctl->nodes->members, &client->request, client->generation,
                                   text)) {
            reply(ctl, client, true, text);
        }
    }
}

void cddpi_ctl_take_folder(struct cddpi_ctl *ctl, const char *dir)
{
    struct cddpi_node_event save = {
        .kind = CDDPI_EVENT_SIGNAL, .rank = -1, .number = CDDPI_SAVE_SIGNAL};

    if (ctl == NULL) {
        return;
    }
    save.node = ctl->nodes->members.self;
    open_in(ctl, dir, true);
    if (ctl->nodes->saves.is_wanted) { /* rank 0 did not handle the signal yet when it was sent */
        publish(ctl, &save);
    }
}

void cddpi_ctl_take_saved(struct cddpi_ctl *ctl, bool has_saved)
{
    struct cddpi_node_event saved = {
        .kind = CDDPI_EVENT_SAVED, .rank = -1, .number = has_saved ? 1 : 0};

    if (ctl == NULL) {
        return;
    }
    if (ctl->nodes->saves.is_wanted) { /* perhaps by another machine */
        ctl->nodes->saves.is_wanted = false;
        saved.node = ctl->nodes->members.self;
        publish(ctl, &saved);
    }
    answer_waiting(ctl, CDDPI_CTL_CHECKPOINT, has_saved,
                   has_saved ? ""
                             : "the checkpoint could not be written: the job has printed why, and "
                               "goes on");
}

void cddpi_ctl_take_ranks_end(struct cddpi_ctl *ctl)
{
    if (ctl != NULL) {
        look_at_checker(ctl);
    }
}
