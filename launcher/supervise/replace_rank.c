/* replace_rank.c - owns what is said about stragglers, and asks the job's members to replace
 * them. */
#include "launcher/supervise/replace_rank.h"

#include "launcher/nodes/nodes.h"
#include "launcher/supervise/supervision.h"

#include "base/clock.h"

/* The 16-bit number at @p at. */
static int number_at(const unsigned char *at)
{
    return at[0] | at[1] << 8;
}

/* Read the ranks of the report that exist. Returns their number. */
static int read_ranks(const struct cddpi_supervision *run,
                      struct cddpi_slow_rank out[CDDPI_REPORT_SLOW_RANKS])
{
    const unsigned char *at = run->report + CDDPI_REPORT_SLOW_BYTES;
    int listed = number_at(run->report + 1);
    int count = 0;

    for (int i = 0; i < listed && i < CDDPI_REPORT_SLOW_RANKS; i++) {
        int rank = number_at(at);

        if (rank < run->job->world_size) {
            out[count++] = (struct cddpi_slow_rank){.rank = rank,
                                                    .factor = number_at(at + 2) / 100.0,
                                                    .waits_for_data = number_at(at + 4) != 0};
        }
        at += CDDPI_REPORT_SLOW_RANK_BYTES;
    }
    return count;
}

static void say(const struct cddpi_supervision *run, const struct cddpi_followed_rank *slow,
                const char *follows)
{
    const struct cddpi_membership *members = &run->job->nodes->members;
    const struct cddpi_job_member *member = cddpi_member_of_rank(members, slow->last.rank);
    bool has_node = !members->is_alone && member != NULL;

    cddpi_output_say(run->output,
                     "rank %d%s%s is slow: for %lld s it has needed %.1f times the median's time "
                     "for a step, because it %s; the others wait for it%s%s",
                     slow->last.rank, has_node ? " of " : "",
                     has_node ? cddpi_member_name(members, member->node) : "",
                     (long long)(slow->slow_ms / 1000), slow->last.factor,
                     slow->last.waits_for_data ? "waits longer for its data" : "computes longer",
                     follows[0] != '\0' ? ". " : "", follows);
}

/* Ask the rank's process to end, as a user does who lets the rank leave: then all ranks save. */
static void ask_rank(const struct cddpi_supervision *run, int rank)
{
    struct cddpi_worker *worker = cddpi_supervision_worker(run, rank);

    if (worker != NULL && worker->pid > 0 && !worker->has_ended) {
        worker->must_go = true;
        kill(-worker->pid, SIGTERM);
        kill(-worker->pid, SIGCONT);
    }
}

/* Returns false if it is too early to decide about @p straggler. */
static bool decide(struct cddpi_supervision *run, struct cddpi_followed_rank *straggler)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    int64_t now_ns = cddpi_now_ns();
    int rank = straggler->last.rank;
    char text[CDDPI_REPLACE_TEXT_BYTES];
    struct cddpi_node_event event;
    enum cddpi_replace_how how = cddpi_slow_ranks_decide(&nodes->slow, &nodes->members, rank,
                                                         now_ns, &event, text);
    bool is_replaced = how == CDDPI_REPLACE_PROCESS || how == CDDPI_REPLACE_NODE;

    if (how == CDDPI_REPLACE_LATER) {
        return false;
    }
    straggler->is_decided = true;
    if (cddpi_slow_ranks_names(&nodes->slow, rank) || is_replaced) {
        say(run, straggler, text);
    }
    if (is_replaced) {
        cddpi_slow_ranks_note(&nodes->slow, &nodes->members, rank, how, now_ns);
        CDDPI_MEMBERS_FEED(nodes, .kind = CDDPI_MEMBERS_ASKED, .heard = &event);
    }
    if (how == CDDPI_REPLACE_PROCESS) {
        ask_rank(run, rank);
    }
    return !is_replaced; /* the members change now */
}

void cddpi_supervision_take_slow(struct cddpi_supervision *run)
{
    struct cddpi_nodes *nodes = run->job->nodes;
    struct cddpi_slow_rank ranks[CDDPI_REPORT_SLOW_RANKS];
    struct cddpi_followed_rank *next;

    if (run->state.phase != CDDPI_JOB_RUNS) {
        return;
    }
    if (cddpi_slow_ranks_take(&nodes->slow, ranks, read_ranks(run, ranks),
                              number_at(run->report + 3))) {
        nodes->steps++; /* cddp-ctl shows stragglers */
    }
    while ((next = cddpi_slow_ranks_next(&nodes->slow)) != NULL && decide(run, next)) {
    }
}
