/* launch_judge.c - compares launchers' variables and decides between them.
 *
 * Launchers nest: mpirun in a rank of cddp-run, torchrun in a Slurm step, cddp-run in a pod. Inner
 * launchers inherit the variables of outer ones, so the variables of several launchers are usually
 * set, and only the innermost launcher knows who this process is. */
#include "group/launch/launch_judge.h"

#include "base/env.h"
#include "base/error.h"
#include "base/process.h"
#include "group/launch/launch_daemon.h"
#include "group/launch/launch_variable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The state of one decision. `in` marks the claims that still count. */
struct court {
    struct cddpi_finding *finding;
    struct cddpi_ancestors ancestors;
    bool is_cddp_run;
    bool has_ancestors; /* the ancestors were read, which is done only if needed */
    bool in[CDDPI_LAUNCHERS];
};

static void __attribute__((format(printf, 3, 4)))
add_text(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;

    if (used > 0 && used + 2 < bytes) {
        used += (size_t)snprintf(text + used, bytes - used, "; ");
    }
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

#define ADD_REASON(court, ...)                                                                     \
    add_text((court)->finding->reason, sizeof(court)->finding->reason, __VA_ARGS__)

static const char *name_of(const struct cddpi_claim *claim)
{
    return cddpi_launcher_name(claim->by);
}

static struct cddpi_claim *find(const struct court *court, enum cddpi_launcher by)
{
    for (int i = 0; i < court->finding->count; i++) {
        if (court->finding->claims[i].by == by) {
            return court->in[i] ? &court->finding->claims[i] : NULL;
        }
    }
    return NULL;
}

static void strike(struct court *court, const struct cddpi_claim *claim)
{
    court->in[claim - court->finding->claims] = false;
}

static const struct cddpi_ancestors *ancestors_of(struct court *court)
{
    if (!court->has_ancestors) {
        cddpi_ancestors_read(&court->ancestors);
        court->has_ancestors = true;
    }
    return &court->ancestors;
}

static bool agree(const struct cddpi_claim *a, const struct cddpi_claim *b)
{
    return (a->rank < 0 || b->rank < 0 || a->rank == b->rank) &&
           (a->size == 0 || b->size == 0 || a->size == b->size);
}

/* Whether a launcher's own process is between this process and the nearest cddp-run above it. */
static bool was_started_within(struct court *court, const struct cddpi_claim *claim)
{
    int own = cddpi_launch_starter(ancestors_of(court), claim->by);
    int outer = cddpi_launch_starter(ancestors_of(court), CDDPI_BY_CDDP_RUN);

    return own > 0 && (outer < 0 || own < outer);
}

static cddp_status fail_contradiction(const struct cddpi_claim *a, const struct cddpi_claim *b)
{
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s and %s contradict each other: %s; %s. Nothing shows which of them "
                      "started this process: unset %s if that is left over or meant for another "
                      "program, or else unset %s",
                      name_of(a), name_of(b), a->says, b->says, a->unset, b->unset);
}

/* Whether @p claim, which is torchrun's, comes from the variables that cddp-run sets in addition to
 * its own. */
static bool is_twin(const struct cddpi_claim *claim, const struct cddpi_claim *own)
{
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");
    const char *job = cddpi_env(CDDPI_ENV_JOB);

    return claim->by == CDDPI_BY_TORCHRUN && agree(claim, own) && !claim->is_partial &&
           (run == NULL || job == NULL || strcmp(run, job) == 0);
}

/* Drop cddp-run's claim: one of its ranks started the launcher that started this process. */
static cddp_status leave_cddp_run(struct court *court, const struct cddpi_claim *own,
                                  const struct cddpi_claim *inner)
{
    if (inner->size == 1 && own->size > 1 && !was_started_within(court, inner)) {
        return fail_contradiction(own, inner);
    }
    strike(court, own);
    court->finding->is_in_cddp_run = true;
    ADD_REASON(court, "rank %d of %d of cddp-run (%s) has started what started this process",
               own->rank, own->size, own->says);
    if (own->size > 1) {
        add_text(court->finding->warning, sizeof court->finding->warning,
                 "each of the %d ranks of cddp-run starts a job of its own by %s (%s): start that "
                 "with cddp-run --nproc 1, or without cddp-run, if one was meant",
                 own->size, name_of(inner), inner->says);
    }
    return CDDP_OK;
}

/* Drop the claims of launchers whose variables are inherited through cddp-run, which lists them for
 * its ranks: they do not describe these ranks. Variables that have changed since were set by a
 * launcher that a rank has started. */
static cddp_status hear_cddp_run(struct court *court)
{
    const char *inherited = cddpi_env(CDDPI_ENV_INHERITED);
    struct cddpi_claim *own = find(court, CDDPI_BY_CDDP_RUN);
    struct cddpi_claim *inner = NULL;

    if (own == NULL || own->is_partial || inherited == NULL) {
        return CDDP_OK;
    }
    for (int i = 0; i < court->finding->count; i++) {
        struct cddpi_claim *claim = &court->finding->claims[i];

        if (claim == own || !court->in[i]) {
            continue;
        }
        if (is_twin(claim, own)) {
            strike(court, claim); /* cddp-run's, too */
        } else if (cddpi_launcher_is_inherited(claim->by, inherited)) {
            strike(court, claim);
            ADD_REASON(court, "%s is inherited through cddp-run (%s)", name_of(claim), claim->says);
        } else if (!claim->is_partial && !claim->is_script &&
                   (!agree(claim, own) || claim->by == CDDPI_BY_TORCHRUN ||
                    was_started_within(court, claim))) {
            inner = claim;
        }
    }
    return inner != NULL ? leave_cddp_run(court, own, inner) : CDDP_OK;
}

/* Check for a launcher's daemon: it may be gone, and its variables a left-over in a shell. */
static void hear_daemon(struct court *court)
{
    struct cddpi_claim *claim = find(court, CDDPI_BY_OPEN_MPI);
    char says[CDDPI_SAYS_BYTES];
    char unset[CDDPI_SAYS_BYTES];
    int count = 0;

    if (claim == NULL || claim->size < 2) {
        return;
    }
    for (int i = 0; i < court->finding->count; i++) {
        count += court->in[i];
    }
    memcpy(says, claim->says, sizeof says);
    memcpy(unset, claim->unset, sizeof unset);
    cddpi_launch_look_for_daemon(ancestors_of(court), claim);
    if (claim->is_stale && count > 1) {
        strike(court, claim);
        ADD_REASON(court, "Open MPI's variables are left over (%s): its daemon is gone",
                   claim->says);
    } else if (claim->is_stale) {
        snprintf(claim->wrong, sizeof claim->wrong,
                 "%s, but neither a daemon of Open MPI is a parent of this process, nor does "
                 "its server answer: these variables are left over in this shell. unset %s to "
                 "train alone, or start the ranks by mpirun",
                 says, unset);
    } else if (!claim->is_alive) {
        add_text(
            court->finding->warning, sizeof court->finding->warning,
            "%s, but no daemon of Open MPI is a parent of this process: if these variables are "
            "left over, %d ranks will be waited for in vain: unset %s",
            claim->says, claim->size - 1, claim->unset);
    }
}

/* Drop weaker claims. Scripts and shells of a job are not ranks. A launcher that only repeats the
 * variables of another one is ignored if that one has a claim. A partial claim is ignored beside a
 * complete one, which it must not contradict. */
static void dismiss_lesser(struct court *court)
{
    struct cddpi_finding *finding = court->finding;

    for (int i = 0; i < finding->count; i++) {
        struct cddpi_claim *claim = &finding->claims[i];

        for (int k = 0; court->in[i] && k < finding->count; k++) {
            const struct cddpi_claim *other = &finding->claims[k];
            bool is_whole = court->in[k] && k != i && !other->is_partial && !other->is_script;
            /* pods count nodes, and RANK with LOCAL_RANK counts processes */
            bool counts_otherwise = claim->by == CDDPI_BY_KUBEFLOW ||
                                    (claim->by == CDDPI_BY_INDEXED_JOB && other->local_rank >= 0 &&
                                     !other->is_pod);

            if (is_whole && (claim->is_script ||
                             (claim->is_partial && (counts_otherwise || agree(claim, other))))) {
                court->in[i] = false;
                ADD_REASON(court, "%s (%s) does not say more than %s", name_of(claim), claim->says,
                           name_of(other));
            }
        }
    }
}

/* Find the first pair of claims that contradict each other. */
static bool find_contradiction(const struct court *court, int *out_a, int *out_b)
{
    for (int a = 0; a < court->finding->count; a++) {
        for (int b = a + 1; b < court->finding->count; b++) {
            if (court->in[a] && court->in[b] &&
                !agree(&court->finding->claims[a], &court->finding->claims[b])) {
                *out_a = a;
                *out_b = b;
                return true;
            }
        }
    }
    return false;
}

/* Whether @p outer starts the daemons of @p inner: within a Slurm job, mpirun starts its daemons
 * through srun. */
static bool starts_daemons(const struct cddpi_claim *outer, const struct cddpi_claim *inner)
{
    return outer->by == CDDPI_BY_SLURM && outer->local_size <= 1 &&
           inner->by >= CDDPI_BY_OPEN_MPI && inner->by <= CDDPI_BY_MVAPICH;
}

/* Drop all claims that contradict @p winner. If the winner has only one rank but another launcher
 * counts several, this is an error, unless a launcher started this process that way. */
static cddp_status let_win(struct court *court, int winner)
{
    struct cddpi_finding *finding = court->finding;
    const struct cddpi_claim *won = &finding->claims[winner];

    for (int i = 0; i < finding->count; i++) {
        const struct cddpi_claim *lost = &finding->claims[i];

        if (!court->in[i] || i == winner || agree(lost, won)) {
            continue;
        }
        /* unless a process of the launcher is an ancestor of this process */
        if (won->size == 1 && lost->size > 1 &&
            cddpi_launch_starter(ancestors_of(court), won->by) <= 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "%s and %s contradict each other: %s were set last, and each process "
                              "would train alone; but %s. unset %s to train together, or %s to "
                              "train alone",
                              name_of(won), name_of(lost), won->says, lost->says, won->unset,
                              lost->unset);
        }
        ADD_REASON(court, "%s (%s) is nearer to this process than %s (%s)", name_of(won), won->says,
                   name_of(lost), lost->says);
        if (lost->size > 1 && !starts_daemons(lost, won)) {
            add_text(finding->warning, sizeof finding->warning,
                     "%s has started this process (%s), within what %s has started (%s): those %d "
                     "processes are jobs of their own",
                     name_of(won), won->says, name_of(lost), lost->says, lost->size);
        }
        court->in[i] = false;
    }
    return CDDP_OK;
}

/* Compare the claims that still count. */
static cddp_status compare(struct court *court)
{
    struct cddpi_finding *finding = court->finding;
    int a = -1;
    int b = -1;

    while (find_contradiction(court, &a, &b)) {
        const struct cddpi_claim *first = &finding->claims[a];
        const struct cddpi_claim *second = &finding->claims[b];
        int winner = -1;

        if (cddpi_claim_is_within(first, second) || cddpi_claim_is_within(second, first)) {
            winner = cddpi_claim_is_within(first, second) ? a : b;
            court->in[winner == a ? b : a] = false;
            ADD_REASON(court, "%s (%s) started it within %s (%s)",
                       name_of(&finding->claims[winner]), finding->claims[winner].says,
                       name_of(winner == a ? second : first), (winner == a ? second : first)->says);
            continue;
        }
        winner = cddpi_claims_nearest(ancestors_of(court), finding->claims, court->in,
                                      finding->count);
        if (winner < 0) {
            return fail_contradiction(first, second);
        }
        CDDPI_TRY(let_win(court, winner));
        if (find_contradiction(court, &a, &b)) {
            return fail_contradiction(&finding->claims[a], &finding->claims[b]);
        }
    }
    return CDDP_OK;
}

/* Fill in from @p other what @p claim lacks: the ranks on this machine. */
static void complete(struct cddpi_claim *claim, const struct cddpi_claim *other)
{
    if (claim->local_rank < 0 && claim->local_size == 0 && other->local_size > 0 &&
        other->local_rank >= 0) {
        claim->local_rank = other->local_rank;
        claim->local_size = other->local_size;
        claim->is_pod = claim->is_pod || other->is_pod;
    }
    if (claim->node < 0 && claim->nodes == 0) {
        claim->node = other->node;
        claim->nodes = other->nodes;
    }
    claim->nproc = claim->nproc != 0 ? claim->nproc : other->nproc;
}

/* Warn that RANK or WORLD_SIZE is a left-over, or that the other one was lost. cddp-run's ranks get
 * both. */
static void warn_of_half(struct court *court, const struct cddpi_claim *claim)
{
    add_text(court->finding->warning, sizeof court->finding->warning,
             "%s is set, but %s is not, so cddp-run starts a job of its own", claim->says,
             claim->rank_name != NULL ? "WORLD_SIZE" : "RANK");
}

static cddp_status choose(struct court *court)
{
    struct cddpi_finding *finding = court->finding;

    for (int pass = 0; pass < 2; pass++) { /* launchers that repeat others' variables come last */
        for (int i = 0; i < finding->count; i++) {
            struct cddpi_claim *claim = &finding->claims[i];

            if (!court->in[i] || claim->is_echo != (pass == 1)) {
                continue;
            }
            if (court->is_cddp_run && claim->is_partial && claim->by == CDDPI_BY_TORCHRUN) {
                warn_of_half(court, claim);
                continue;
            }
            if (claim->wrong[0] != '\0') {
                return cddpi_fail(CDDP_ERR_ARGUMENT, "%s", claim->wrong);
            }
            if (!claim->is_partial) {
                finding->agreeing[finding->agreeing_count++] = i;
            }
        }
    }
    if (finding->agreeing_count > 0) {
        finding->chosen = finding->agreeing[0];
        for (int i = 1; i < finding->agreeing_count; i++) {
            complete(&finding->claims[finding->chosen], &finding->claims[finding->agreeing[i]]);
        }
    }
    return CDDP_OK;
}

/* Warn about a pod that has a number but not the number of pods. */
static void warn_of_indexed_job(struct court *court)
{
    const struct cddpi_claim *claim = find(court, CDDPI_BY_INDEXED_JOB);

    if (claim != NULL && claim->size == 0 && claim->wrong[0] == '\0' &&
        court->finding->chosen < 0) {
        add_text(
            court->finding->warning, sizeof court->finding->warning,
            "%s numbers this pod, and nothing says how many there are, so it trains alone: for "
            "pods that train together set WORLD_SIZE (or CDDP_WORLD_SIZE) to the Job's "
            "completions, and MASTER_ADDR to pod 0",
            claim->says);
    }
}

/* Warn that a launcher which is not in the table has started several processes. */
static void warn_of_unknown(struct court *court)
{
    char pair[CDDPI_SAYS_BYTES];

    if (court->finding->chosen < 0 && court->finding->warning[0] == '\0' &&
        cddpi_launch_find_unknown(pair, sizeof pair)) {
        add_text(court->finding->warning, sizeof court->finding->warning,
                 "%s look like those of a launcher, and cddp knows none that sets them, so this "
                 "process %s: if it is one of several, set CDDP_RANK, CDDP_WORLD_SIZE, "
                 "CDDP_LOCAL_RANK, CDDP_LOCAL_WORLD_SIZE and CDDP_STORE%s",
                 pair, court->is_cddp_run ? "starts a job of its own" : "trains alone",
                 court->is_cddp_run ? " for ranks, or give --nnodes, --node-rank and --rdzv" : "");
    }
}

cddp_status cddpi_launch_judge(bool is_cddp_run, struct cddpi_finding *out)
{
    struct court court = {.finding = out, .is_cddp_run = is_cddp_run};
    cddp_status status;

    *out = (struct cddpi_finding){.chosen = -1};
    for (int by = 0; by < CDDPI_LAUNCHERS; by++) {
        if (cddpi_claim_read(by, &out->claims[out->count])) {
            court.in[out->count++] = true;
        }
    }
    CDDPI_TRY_GOTO(end, status, hear_cddp_run(&court));
    hear_daemon(&court);
    dismiss_lesser(&court);
    CDDPI_TRY_GOTO(end, status, compare(&court));
    CDDPI_TRY_GOTO(end, status, choose(&court));
    warn_of_indexed_job(&court);
    warn_of_unknown(&court);

end:
    if (court.has_ancestors) {
        cddpi_ancestors_fini(&court.ancestors);
    }
    return status;
}
