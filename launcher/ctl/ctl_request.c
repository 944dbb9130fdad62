/* ctl_request.c - owns the rules of what cddp-ctl can ask of a job's members. */
#include "launcher/ctl/ctl_request.h"

#include "base/launcher_report.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A request that is being looked at. */
struct wish {
    const struct cddpi_membership *members;
    const struct cddpi_ctl_request *request;
    bool trains;
    struct cddpi_node_event event;
    char *text;
};

static bool refuse(struct wish *wish, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(struct wish *wish, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(wish->text, CDDPI_CTL_TEXT_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static bool publish(struct wish *wish, enum cddpi_node_event_kind kind, int node, int number)
{
    wish->event.kind = kind;
    wish->event.node = node;
    wish->event.number = number;
    return true;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static bool resize(struct wish *wish, const struct cddpi_job_member *member, int nproc)
{
    return publish(wish, CDDPI_EVENT_SIZE, member->node, nproc);
}

/* The node that tells the others of a signal; from another machine, node 0, but no node if that may
 * be lost: what a lost node says does not count. */
static int teller(const struct wish *wish)
{
    const struct cddpi_membership *members = wish->members;

    return members->self < 0 && members->outside_store == NULL ? CDDPI_LEADER : members->self;
}

static bool save(struct wish *wish)
{
    return wish->trains
               ? publish(wish, CDDPI_EVENT_SIGNAL, teller(wish), CDDPI_SAVE_SIGNAL)
               : refuse(wish, "the ranks of this job are another program than cddp-train, which "
                              "alone can write a checkpoint when it is asked to");
}

/* A second signal would kill the ranks. */
static bool stop(struct wish *wish)
{
    return wish->members->asked_signal != 0 ||
           publish(wish, CDDPI_EVENT_SIGNAL, teller(wish), SIGTERM);
}

static bool add(struct wish *wish)
{
    const struct cddpi_membership *members = wish->members;
    const struct cddpi_job_member *own = cddpi_membership_find(members, CDDPI_LEADER);
    int number = wish->request->number;

    if (members->is_silent) {
        return refuse(wish, "the job runs on a list of hosts (--hosts): cddp-run is started again "
                            "on those that are lost; for more ranks, start the job with a longer "
                            "list");
    }
    if (!members->is_alone) {
        return refuse(wish, "the job runs on several machines: to add ranks, start cddp-run on "
                            "another one, with the same --rdzv, --nnodes and token");
    }
    if (own == NULL || number < 1 || number > members->most_ranks - own->nproc) {
        return refuse(wish, "%d more rank%s: the job has %d and may have %d to %d (--elastic)",
                      number, plural(number), own != NULL ? own->nproc : 0, members->least_ranks,
                      members->most_ranks);
    }
    return resize(wish, own, own->nproc + number);
}

/* How many nodes the next generation can have. */
static int count_staying(const struct cddpi_membership *members)
{
    int count = 0;

    for (int i = 0; i < members->count; i++) {
        count += members->list[i].is_there && !members->list[i].is_leaving;
    }
    return count;
}

static bool leave(struct wish *wish, const struct cddpi_job_member *member)
{
    const struct cddpi_membership *members = wish->members;

    if (member->node == CDDPI_LEADER && members->outside_store == NULL) {
        return refuse(wish, "node 0 serves the job's store, so it cannot leave: `cddp-ctl RUN "
                            "stop` ends the job");
    }
    if (!member->is_there) {
        return refuse(wish, "%s is gone already", cddpi_member_name(members, member->node));
    }
    if (!member->is_leaving && count_staying(members) - 1 < members->least) {
        return refuse(wish, "the job needs %d node%s (--nnodes)", members->least,
                      plural(members->least));
    }
    return member->is_leaving || publish(wish, CDDPI_EVENT_LEAVE, member->node, SIGTERM);
}

static bool remove_rank(struct wish *wish)
{
    const struct cddpi_membership *members = wish->members;
    int rank = wish->request->number;
    const struct cddpi_job_member *member = NULL;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *each = &members->list[i];

        member = rank >= each->first_rank && rank < each->first_rank + each->ranks ? each : member;
    }
    if (member == NULL || !member->is_there) {
        return refuse(wish, "there is no rank %d: the job has %d", rank, members->world_size);
    }
    if (members->is_alone && member->nproc - 1 < members->least_ranks) {
        return refuse(wish, "the job has %d rank%s and may have %d to %d (--elastic)",
                      member->nproc, plural(member->nproc), members->least_ranks,
                      members->most_ranks);
    }
    return member->nproc > 1 ? resize(wish, member, member->nproc - 1) : leave(wish, member);
}

static bool remove_node(struct wish *wish)
{
    const struct cddpi_membership *members = wish->members;
    const struct cddpi_ctl_request *request = wish->request;
    const struct cddpi_job_member *found = NULL;

    if (members->is_alone) {
        return refuse(wish, "the job runs on this machine only: `cddp-ctl RUN stop` ends it");
    }
    if (request->number >= 0) {
        found = cddpi_membership_find(members, request->number);
        return found != NULL ? leave(wish, found)
                             : refuse(wish, "there is no node %d", request->number);
    }
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        if (!member->is_there || strcmp(member->host, request->host) != 0) {
            continue;
        }
        if (found != NULL) {
            return refuse(wish, "nodes %d and %d are both on host %s: say node:%d or node:%d",
                          found->node, member->node, request->host, found->node, member->node);
        }
        found = member;
    }
    return found != NULL ? leave(wish, found)
                         : refuse(wish, "no node of the job is on host %s", request->host);
}

static bool decide(struct wish *wish)
{
    const struct cddpi_membership *members = wish->members;
    enum cddpi_ctl_command command = wish->request->command;

    if (command == CDDPI_CTL_STOP) {
        return stop(wish);
    }
    if (members->asked_signal != 0 || members->end.kind != CDDPI_EVENT_NONE) {
        return refuse(wish, "the job is ending");
    }
    if (command == CDDPI_CTL_CHECKPOINT) {
        return save(wish);
    }
    if (!members->is_elastic) {
        return refuse(wish, "the number of ranks of this job is fixed: cddp-run --elastic MIN:MAX, "
                            "or --nnodes MIN:MAX, starts one in which it can change");
    }
    return command == CDDPI_CTL_ADD           ? add(wish)
           : command == CDDPI_CTL_REMOVE_RANK ? remove_rank(wish)
           : command == CDDPI_CTL_REMOVE_NODE ? remove_node(wish)
                                              : true;
}

bool cddpi_ctl_decide(const struct cddpi_membership *members,
                      const struct cddpi_ctl_request *request, bool trains,
                      struct cddpi_node_event *out, char out_text[CDDPI_CTL_TEXT_BYTES])
{
    struct wish wish = {.members = members,
                        .request = request,
                        .trains = trains,
                        .event = {.kind = CDDPI_EVENT_NONE, .rank = -1},
                        .text = out_text};
    bool is_possible;

    out_text[0] = '\0';
    is_possible = decide(&wish);
    *out = wish.event;
    return is_possible;
}

void cddpi_ctl_name_node(struct cddpi_ctl_request *request, const struct cddpi_node_event *event)
{
    if (request->command == CDDPI_CTL_REMOVE_NODE && event->kind == CDDPI_EVENT_LEAVE) {
        request->number = event->node;
    }
}

bool cddpi_ctl_has_happened(const struct cddpi_membership *members,
                            const struct cddpi_ctl_request *request, int generation,
                            char out_text[CDDPI_CTL_TEXT_BYTES])
{
    const struct cddpi_job_member *member = request->command == CDDPI_CTL_REMOVE_NODE &&
                                                    request->number >= 0
                                                ? cddpi_membership_find(members, request->number)
                                                : NULL;
    /* a spare is gone at once, and between generations the next one says how the job goes on */
    bool is_gone = member != NULL && !member->is_there && members->phase == CDDPI_MEMBERS_RUN;

    if (request->command != CDDPI_CTL_ADD && request->command != CDDPI_CTL_REMOVE_RANK &&
        request->command != CDDPI_CTL_REMOVE_NODE) {
        return false;
    }
    if (members->generation <= generation && !is_gone) {
        return false;
    }
    snprintf(out_text, CDDPI_CTL_TEXT_BYTES, "generation %d: %d rank%s on %d node%s",
             members->generation, members->world_size, plural(members->world_size), members->nodes,
             plural(members->nodes));
    return true;
}

static enum cddpi_ctl_state state_of(const struct cddpi_job_member *member)
{
    return member->is_lost      ? CDDPI_CTL_LOST
           : !member->is_there  ? CDDPI_CTL_GONE
           : member->is_leaving ? CDDPI_CTL_LEAVES
           : member->ranks == 0 ? CDDPI_CTL_SPARE
           : member->is_done    ? CDDPI_CTL_ENDED
                                : CDDPI_CTL_RUNS;
}

/* List the members that are there, or those that are gone. */
static void list_members(const struct cddpi_membership *members, bool are_there,
                         struct cddpi_ctl_answer *out)
{
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];
        struct cddpi_ctl_row *row = &out->rows[out->count];

        if (member->is_there != are_there) {
            continue;
        }
        if (out->count == CDDPI_CTL_ROWS) {
            out->left_out++;
            continue;
        }
        *row = (struct cddpi_ctl_row){.node = member->node,
                                      .ranks = member->ranks,
                                      .first_rank = member->first_rank,
                                      .nproc = member->nproc,
                                      .state = state_of(member)};
        snprintf(row->host, sizeof row->host, "%.*s", (int)sizeof row->host - 1, member->host);
        out->count++;
    }
}

/* Whether ranks run. The process that serves the job's store has none, and knows it of the others.
 */
static bool is_running(const struct cddpi_membership *members)
{
    bool do_ranks_run = false;

    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        do_ranks_run = do_ranks_run || (member->ranks > 0 && !member->is_done && !member->is_lost);
    }
    return members->self >= 0 ? members->phase == CDDPI_MEMBERS_RUN : do_ranks_run;
}

void cddpi_ctl_describe(const struct cddpi_membership *members, int64_t now_ns,
                        struct cddpi_ctl_answer *out)
{
    out->generation = members->generation;
    out->seconds = members->generation >= 0 && now_ns > members->start_ns
                       ? (now_ns - members->start_ns) / 1000000000
                       : 0;
    out->world_size = members->world_size;
    out->nodes = members->nodes;
    out->restarts = members->made;
    out->max_restarts = members->max_restarts;
    out->is_elastic = members->is_elastic;
    out->is_alone = members->is_alone;
    out->is_running = is_running(members);
    out->is_ending = members->asked_signal != 0 || members->end.kind != CDDPI_EVENT_NONE;
    out->least = members->is_alone ? members->least_ranks : members->least;
    out->most = members->is_alone ? members->most_ranks : members->most;
    if (members->asked_signal != 0) {
        snprintf(out->ending, sizeof out->ending, "SIG%s: the job saves and ends",
                 sigabbrev_np(members->asked_signal) != NULL ? sigabbrev_np(members->asked_signal)
                                                             : "?");
    } else if (members->change.kind != CDDPI_EVENT_NONE) {
        snprintf(out->ending, sizeof out->ending,
                 "%.900s: ranks save, and go on with other members", members->change.text);
    } else if (members->leader == CDDPI_LEADER_GATHERS ||
               (members->self < 0 && !out->is_running && count_staying(members) < members->least)) {
        snprintf(out->ending, sizeof out->ending, "waiting for nodes: the job needs %d",
                 members->least);
    }
    list_members(members, true, out);
    list_members(members, false, out);
}

void cddpi_ctl_describe_slow(const struct cddpi_slow_ranks *slow, struct cddpi_ctl_answer *out)
{
    for (int i = 0; i < slow->count && out->straggler_count < CDDPI_CTL_STRAGGLERS; i++) {
        const struct cddpi_followed_rank *each = &slow->list[i];

        if (each->is_straggler) {
            out->stragglers[out->straggler_count++] = (struct cddpi_ctl_straggler){
                .rank = each->last.rank,
                .percent = (int)(each->last.factor * 100 + 0.5),
                .seconds = each->slow_ms / 1000,
                .waits_for_data = each->last.waits_for_data};
        }
    }
}

void cddpi_ctl_describe_cards(const struct cddpi_node_cards *cards, struct cddpi_ctl_answer *out)
{
    for (int i = 0; i < cards->count && out->card_count < CDDPI_CTL_CARDS; i++) {
        const struct cddpi_node_card *each = &cards->list[i];
        struct cddpi_ctl_card *card = &out->cards[out->card_count++];

        card->node = each->node > 0 ? each->node : 0;
        card->rank = each->rank > 0 ? each->rank : 0;
        snprintf(card->text, sizeof card->text, "%s", each->text);
    }
}

bool cddpi_ctl_members_of(const struct cddpi_ctl_answer *answer, struct cddpi_membership *out,
                          struct cddpi_job_member list[CDDPI_CTL_ROWS])
{
    *out = (struct cddpi_membership){.list = list,
                                     .room = CDDPI_CTL_ROWS,
                                     .self = -1,
                                     .least = answer->least,
                                     .most = answer->most,
                                     .is_elastic = answer->is_elastic,
                                     .is_alone = answer->is_alone,
                                     .generation = answer->generation,
                                     .world_size = answer->world_size,
                                     .nodes = answer->nodes,
                                     .asked_signal = answer->is_ending ? SIGTERM : 0};
    out->phase = answer->is_running ? CDDPI_MEMBERS_RUN : CDDPI_MEMBERS_AWAIT;
    for (int i = 0; i < answer->count; i++) {
        const struct cddpi_ctl_row *row = &answer->rows[i];
        struct cddpi_job_member *member = cddpi_membership_add(out, row->node, row->host,
                                                               row->nproc);

        if (member == NULL) {
            return false;
        }
        member->ranks = row->ranks;
        member->first_rank = row->first_rank;
        member->is_leaving = row->state == CDDPI_CTL_LEAVES;
        member->is_lost = row->state == CDDPI_CTL_LOST;
        member->is_there = row->state != CDDPI_CTL_LOST && row->state != CDDPI_CTL_GONE;
    }
    return true;
}
