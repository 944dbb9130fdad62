/* replace_card.c - owns what happens, and what is said, when a card is left out. */
#include "launcher/supervise/replace_card.h"

#include "launcher/nodes/nodes.h"
#include "launcher/supervise/supervision.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/terminal.h"
#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For one answer of the driver, which is asked at most twice. Nothing else is served meanwhile, and
 * the time counts in CDDPI_HEAD_FAILED_MS. */
enum { ASK_MS = 10000 };

static int number_at(const unsigned char *at)
{
    return at[0] | at[1] << 8;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

void cddpi_supervision_take_card(struct cddpi_supervision *run)
{
    cddpi_ill_cards_take(&run->job->cards, number_at(run->report + 1), number_at(run->report + 3),
                         (const char *)run->report + CDDPI_REPORT_CARD_BYTES,
                         run->report_bytes - CDDPI_REPORT_CARD_BYTES);
}

/* Whether ranks may start again. */
static bool may_go_on(const struct cddpi_nodes *nodes,
                      const struct cddpi_generation_outcome *outcome)
{
    const struct cddpi_membership *members = &nodes->members;

    return outcome->exit_status != 0 && members->asked_signal == 0 &&
           (members->is_elastic || members->max_restarts < 0 ||
            members->made < members->max_restarts);
}

/* Whether cards can be left out: a process can see one part of a card (MIG) only, and it is its
 * program that chooses it. */
static bool are_whole_cards(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible == NULL || strstr(visible, "MIG") == NULL;
}

/* Tell the user of @p card, and what follows. */
__attribute__((format(printf, 3, 4))) static void
say(const struct cddpi_nodes *nodes, const struct cddpi_ill_card *card, const char *format, ...)
{
    char follows[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(follows, sizeof follows, format, arguments);
    va_end(arguments);
    cddpi_output_say(nodes->wait->output, "cuda:%d (%s) is not used any more: %s%s", card->index,
                     card->name, card->fault, follows);
}

/* cddp-ctl tells of the card. */
static void publish(struct cddpi_nodes *nodes, const struct cddpi_ill_card *card)
{
    struct cddpi_node_event event = {
        .kind = CDDPI_EVENT_CARD, .node = nodes->members.self, .rank = card->rank};

    snprintf(event.text, sizeof event.text, "cuda:%d (%s): %s", card->index, card->name,
             card->fault);
    CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_ASKED, .heard = &event);
}

/* The least number of ranks with which this machine can go on. */
static int least_ranks(const struct cddpi_membership *members)
{
    const struct cddpi_job_member *own = cddpi_membership_find(members, members->self);

    return !members->is_elastic ? own->nproc : members->is_alone ? members->least_ranks : 1;
}

/* Tell that the job ends, since @p left cards are too few for @p ranks ranks. */
static void tell_end(const struct cddpi_nodes *nodes, const struct cddpi_ill_card *card, int left,
                     int ranks)
{
    if (nodes->job->cards.is_silent) {
        say(nodes, card, ". Which cards remain is not known, so the job ends");
        return;
    }
    say(nodes, card, ". %d card%s on this machine for %d rank%s, so the job ends", left,
        left == 1 ? " remains" : "s remain", ranks, plural(ranks));
}

/* Ranks of this machine do not start again. */
static void end(struct cddpi_generation_outcome *outcome)
{
    outcome->may_restart = false;
    outcome->must_end = true;
}

/* Tell what follows from @p card, the last that is left out, if @p ranks of the machine's ranks can
 * have a card. Returns as cddpi_cards_settle(). */
static int conclude(struct cddpi_nodes *nodes, const struct cddpi_ill_card *card, int ranks,
                    struct cddpi_generation_outcome *outcome)
{
    const struct cddpi_membership *members = &nodes->members;
    int before = cddpi_membership_find(members, members->self)->nproc;
    int left = nodes->job->cards.left_count;
    bool serves = members->self == CDDPI_LEADER && members->outside_store == NULL;

    if (ranks == before) {
        say(nodes, card, ". %s",
            nodes->job->cards.is_shared ? "Ranks share the cards that remain"
                                        : "Another card takes its place");
        return 0;
    }
    if (ranks >= least_ranks(members)) {
        say(nodes, card, ". %d card%s%s %d rank%s", left, left == 1 ? " remains" : "s remain",
            members->is_alone ? ", so the job goes on with"
                              : " on this machine, which goes on with",
            ranks, plural(ranks));
        return ranks;
    }
    if (ranks == 0 && members->is_elastic && !members->is_alone && !serves) {
        say(nodes, card, ". %s, so it leaves the job",
            nodes->job->cards.is_silent ? "Which cards remain on this machine is not known"
                                        : "No card remains on this machine");
        return -1;
    }
    tell_end(nodes, card, left, before);
    end(outcome);
    return 0;
}

/* A rank computes on @p card again. */
static void end_job(struct cddpi_nodes *nodes, const struct cddpi_ill_card *card,
                    struct cddpi_generation_outcome *outcome)
{
    cddpi_output_say(nodes->wait->output,
                     "a rank has used cuda:%d (%s) again, although it is left out (%s): its "
                     "program chooses its card itself, so the job ends",
                     card->index, card->name, card->fault);
    nodes->job->cards.must_end = true;
    end(outcome);
}

/* More ranks than the cards that are left cannot be asked for. */
static void limit(struct cddpi_membership *members, const struct cddpi_ill_cards *cards)
{
    if (members->most_ranks > cards->left_count && !cards->is_shared) {
        members->most_ranks = cards->left_count > members->least_ranks ? cards->left_count
                                                                       : members->least_ranks;
    }
}

static int count_lines(const char *text)
{
    int count = 0;

    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

/* Ask the driver for the cards that a process sees with the CUDA_VISIBLE_DEVICES @p visible; NULL:
 * with that of this process. NULL: it does not answer. */
static char *ask(const char *visible)
{
    static char name[] = CDDPI_CARDS_PROGRAM;
    char *argv[] = {name, NULL};
    char *variable = visible != NULL ? cddpi_format("CUDA_VISIBLE_DEVICES=%s", visible) : NULL;
    char *own[] = {variable, NULL};
    struct cddpi_device_lister lister = {"/proc/self/exe", argv, NULL};
    char **environment = NULL;
    char *answer = NULL;

    if ((visible == NULL || variable != NULL) &&
        cddpi_environment_merge(own, &environment) == CDDP_OK) {
        lister.environment = environment;
        answer = cddpi_device_list(&lister, ASK_MS);
    }
    cddpi_free(environment);
    cddpi_free(variable);
    return answer;
}

/* Ask the driver which cards remain: at first without showing it those that are ill, since it may
 * hang when it opens them. If some of the others are missing, numbers may mean other cards since
 * one is gone: then ask for all. NULL: it does not answer. */
static char *find_cards(struct cddpi_ill_cards *cards, int ranks)
{
    char visible[CDDPI_MACHINE_GPUS * CDDPI_CARD_NAME_BYTES];
    int wanted = cddpi_ill_cards_to_ask(cards, getenv("CUDA_VISIBLE_DEVICES"), ranks, visible,
                                        sizeof visible);
    char *some = wanted > 0 ? ask(visible) : NULL;
    char *all;

    if (some != NULL && count_lines(some) == wanted) {
        return some;
    }
    all = ask(NULL);
    if (all == NULL) {
        return some;
    }
    cddpi_free(some);
    return all;
}

int cddpi_cards_settle(struct cddpi_nodes *nodes, struct cddpi_generation_outcome *outcome)
{
    struct cddpi_ill_cards *cards = &nodes->job->cards;
    const struct cddpi_job_member *own = cddpi_membership_find(&nodes->members,
                                                               nodes->members.self);
    bool was_out[CDDPI_MACHINE_GPUS];
    int last = -1;
    int ranks;
    char *found;

    if (!cddpi_ill_cards_are_new(cards) || !may_go_on(nodes, outcome) || !are_whole_cards()) {
        return 0;
    }
    for (int i = 0; i < cards->count; i++) {
        was_out[i] = cards->list[i].is_out;
        if (cards->list[i].is_used_yet) {
            end_job(nodes, &cards->list[i], outcome);
            return 0;
        }
        last = was_out[i] ? last : i;
    }
    found = find_cards(cards, own->nproc);
    cards->is_silent = found == NULL;
    if (cards->is_silent) {
        cddpi_output_say(nodes->wait->output, "which cards remain? %s", cddp_last_error());
    }
    ranks = cddpi_ill_cards_leave_out(cards, found != NULL ? found : "", own->nproc);
    cddpi_free(found);
    limit(&nodes->members, cards);
    for (int i = 0; i < cards->count; i++) {
        if (!was_out[i] && i != last) {
            say(nodes, &cards->list[i], "%s", "");
        }
        if (!was_out[i]) {
            publish(nodes, &cards->list[i]);
        }
    }
    return conclude(nodes, &cards->list[last], ranks, outcome);
}

bool cddpi_cards_suffice(const struct cddpi_job *job, char why[CDDPI_CARD_TEXT_BYTES])
{
    const struct cddpi_ill_cards *cards = &job->cards;
    const struct cddpi_ill_card *card = &cards->list[cards->count > 0 ? cards->count - 1 : 0];
    int ranks = job->local_world_size;
    char remain[96] = "which cards remain is not known";

    why[0] = '\0';
    if (cddpi_ill_cards_serve(cards, ranks) == ranks) {
        return true;
    }
    if (cards->must_end) {
        snprintf(why, CDDPI_CARD_TEXT_BYTES, "a rank has used a card that is left out");
        return false;
    }
    if (!cards->is_silent) {
        snprintf(remain, sizeof remain, "%d card%s for %d rank%s", cards->left_count,
                 cards->left_count == 1 ? " remains" : "s remain", ranks, plural(ranks));
    }
    snprintf(why, CDDPI_CARD_TEXT_BYTES, "%s, since cuda:%d (%s) is not used any more: %s", remain,
             card->index, card->name, card->fault);
    return false;
}
