/* sizes.c - owns the choice of bucket sizes: it makes plans with many sizes, and predicts for each
 * when communication ends. */
#include "ddp/bucket_plan.h"

#include "base/alloc.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

enum { LEAST_SHIFT = 16, MOST_SHIFT = 26, SCENARIOS = 5 };

/* How long backward may take, as multiples of the time of all communication. */
static const double durations[SCENARIOS] = {0, 0.5, 1, 2, 8};

/* A tail counts as equal to the best tail if it is longer by at most `worth` of the best plus
 * `worth_s`: a link's noise is larger than that. */
static const double worth = 0.01, worth_s = 100e-6;

/* A bucket costs more than its all_reduce: threads that have slept since the last one wake up. */
static const double wake_s = 50e-6;

struct sizes_search {
    const struct cddpi_bucket_question *question;
    int scenarios;
    double *ready_s; /* by scenario and tensor */
    struct cddpi_bucket_plan_rule rule, found;
    double tails[SCENARIOS]; /* of `rule` */
    double least[SCENARIOS]; /* the shortest tails of all rules that were tried */

    /* a stage tries its rules twice: to find the least loss, then the first rule as good as that */
    bool finds;
    bool is_settled;
    double least_loss, margin;
};

/* When the last gradient of bucket @p b is ready. */
static double ready_of(const struct cddpi_bucket_plan *plan, size_t b, const double *ready_s)
{
    const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];
    double ready = 0;

    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        ready = fmax(ready, ready_s[plan->members[i]]);
    }
    return ready;
}

double cddpi_bucket_plan_tail_s(const struct cddpi_bucket_question *question,
                                const struct cddpi_bucket_plan *plan, const double *ready_s)
{
    double ready = 0;    /* when all gradients of the buckets so far are ready */
    double prepared = 0; /* when the CPU has prepared these buckets for sending */
    double free = 0;     /* when the link has sent them and is free */
    double done;         /* when the CPU has finished its work on the received results */
    double last = 0;
    double work;

    for (size_t t = 0; t < plan->tensor_count; t++) {
        last = fmax(last, ready_s[t]);
    }
    for (size_t b = 0; b < plan->bucket_count; b++) {
        prepared = fmax(prepared, ready_of(plan, b, ready_s)) +
                   (double)plan->buckets[b].bytes * question->worked_s;
    }
    done = prepared; /* the CPU waits for no bucket before it has prepared all */
    prepared = 0;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];
        double sent = (double)bucket->bytes * (bucket->type == CDDP_F32 ? question->sent : 1);

        work = (double)bucket->bytes * question->worked_s;
        ready = fmax(ready, ready_of(plan, b, ready_s));
        prepared = fmax(prepared, ready) + work;
        free = fmax(free, prepared) + wake_s + cddpi_link_all_reduce_s(question->link, sent);
        done = fmax(done, free) + work;
    }
    return done - last;
}

/* Predict the tails of @p rule. */
static cddp_status predict_tails(struct sizes_search *search,
                                 const struct cddpi_bucket_plan_rule *rule, double *out_tails)
{
    const struct cddpi_bucket_question *question = search->question;
    struct cddpi_bucket_plan *plan = NULL;

    CDDPI_TRY(cddpi_bucket_plan_make(question->tensors, question->count, rule, &plan));
    for (int s = 0; s < search->scenarios; s++) {
        out_tails[s] = cddpi_bucket_plan_tail_s(question, plan,
                                                search->ready_s + (size_t)s * question->count);
        search->least[s] = fmin(search->least[s], out_tails[s]);
    }
    cddpi_bucket_plan_destroy(plan);
    return CDDP_OK;
}

/* How much worse than the best @p tails are, in the worst scenario. If the times of gradients are
 * known, there is one scenario, and its tail is returned. */
static double loss_of(const struct sizes_search *search, const double *tails)
{
    double most = 0;

    for (int s = 0; s < search->scenarios; s++) {
        most = fmax(most, search->scenarios == 1 ? tails[s] : tails[s] - search->least[s]);
    }
    return most;
}

static double tail_of(const struct sizes_search *search, const double *tails)
{
    double most = 0;

    for (int s = 0; s < search->scenarios; s++) {
        most = fmax(most, tails[s]);
    }
    return most;
}

static cddp_status try_rule(struct sizes_search *search, struct cddpi_bucket_plan_rule rule)
{
    double tails[SCENARIOS];

    if (search->is_settled) {
        return CDDP_OK;
    }
    CDDPI_TRY(predict_tails(search, &rule, tails));
    if (search->finds) {
        search->least_loss = fmin(search->least_loss, loss_of(search, tails));
    } else if (loss_of(search, tails) <= search->least_loss + search->margin) {
        search->found = rule;
        memcpy(search->tails, tails, sizeof tails);
        search->is_settled = true;
    }
    return CDDP_OK;
}

/* Take the best rule of @p stage, or keep the current one if that is as good. */
static cddp_status run_stage(struct sizes_search *search,
                             cddp_status (*stage)(struct sizes_search *search))
{
    cddp_status status;

    search->margin = worth * tail_of(search, search->tails) + worth_s;
    search->least_loss = loss_of(search, search->tails);
    search->found = search->rule;
    search->is_settled = false;
    search->finds = true;
    status = stage(search);
    search->finds = false;
    search->is_settled = loss_of(search, search->tails) <= search->least_loss + search->margin;
    if (status == CDDP_OK) {
        status = stage(search);
    }
    search->rule = search->found;
    return status;
}

/* Try large sizes first: the first of equally good sizes wins, and large buckets are fewer. */
static cddp_status try_sizes(struct sizes_search *search)
{
    for (int shift = MOST_SHIFT; shift >= LEAST_SHIFT; shift--) {
        struct cddpi_bucket_plan_rule rule = search->rule;

        rule.bucket_bytes = (size_t)1 << shift;
        rule.first_bytes = rule.bucket_bytes < search->question->rule.first_bytes
                               ? rule.bucket_bytes
                               : search->question->rule.first_bytes;
        rule.large_bytes = 0;
        CDDPI_TRY(try_rule(search, rule));
        rule.large_bytes = rule.bucket_bytes;
        CDDPI_TRY(try_rule(search, rule));
    }
    return CDDP_OK;
}

static cddp_status try_first(struct sizes_search *search)
{
    for (int shift = MOST_SHIFT; shift >= LEAST_SHIFT; shift--) {
        struct cddpi_bucket_plan_rule rule = search->rule;

        rule.first_bytes = (size_t)1 << shift;
        CDDPI_TRY(try_rule(search, rule));
    }
    return CDDP_OK;
}

static cddp_status try_parts(struct sizes_search *search)
{
    for (int shift = MOST_SHIFT; shift >= LEAST_SHIFT; shift--) {
        struct cddpi_bucket_plan_rule rule = search->rule;

        rule.part_bytes = (size_t)1 << shift;
        rule.large_bytes = 2 * rule.part_bytes;
        if (search->rule.large_bytes > rule.part_bytes) {
            rule.large_bytes = search->rule.large_bytes;
        }
        CDDPI_TRY(try_rule(search, rule));
    }
    return CDDP_OK;
}

/* Try the default sizes first, then others. */
static cddp_status try_all(struct sizes_search *search, double *out_usual)
{
    search->rule = search->question->rule;
    CDDPI_TRY(predict_tails(search, &search->rule, search->tails));
    memcpy(out_usual, search->tails, sizeof search->tails);
    CDDPI_TRY(run_stage(search, try_sizes));
    CDDPI_TRY(run_stage(search, try_first));
    return search->question->may_split ? run_stage(search, try_parts) : CDDP_OK;
}

/* Set when gradients become ready in each scenario: as measured, or in backward's order at a time
 * proportional to their bytes. */
static void set_arrivals(struct sizes_search *search)
{
    const struct cddpi_bucket_question *question = search->question;
    double all = 0;
    double so_far = 0;
    double whole_s;

    for (size_t t = 0; t < question->count; t++) {
        all += (double)question->tensors[t].bytes;
    }
    whole_s = cddpi_link_all_reduce_s(question->link, all * question->sent);
    for (size_t i = 0; i < question->count; i++) {
        size_t t = question->rule.order != NULL ? question->rule.order[i] : question->count - 1 - i;

        if (t >= question->count) {
            return; /* the plan says what is wrong with the order */
        }
        so_far += (double)question->tensors[t].bytes;
        for (int s = 0; s < search->scenarios; s++) {
            search->ready_s[(size_t)s * question->count + t] = question->ready_s != NULL
                                                                   ? question->ready_s[t]
                                                                   : durations[s] * whole_s *
                                                                         so_far / fmax(all, 1);
        }
    }
}

cddp_status cddpi_bucket_sizes_choose(const struct cddpi_bucket_question *question,
                                      struct cddpi_bucket_sizes *out)
{
    struct sizes_search search = {.question = question,
                                  .scenarios = question->ready_s != NULL ? 1 : SCENARIOS,
                                  .rule = question->rule,
                                  .least = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY}};
    double usual[SCENARIOS];
    cddp_status status;

    search.ready_s = cddpi_zalloc_array((size_t)search.scenarios * question->count + 1,
                                        sizeof *search.ready_s);
    CDDPI_TRY_MEMORY(search.ready_s != NULL, "ddp: no memory to choose bucket sizes");
    set_arrivals(&search);
    /* only after the first pass is the best tail of each scenario known */
    for (int pass = 0; pass < 2; pass++) {
        CDDPI_TRY_GOTO(done, status, try_all(&search, usual));
    }
    *out = (struct cddpi_bucket_sizes){.first_bytes = search.rule.first_bytes,
                                       .bucket_bytes = search.rule.bucket_bytes,
                                       .large_bytes = search.rule.large_bytes,
                                       .part_bytes = search.rule.part_bytes,
                                       .tail_s = tail_of(&search, search.tails),
                                       .usual_tail_s = tail_of(&search, usual)};

done:
    cddpi_free(search.ready_s);
    return status;
}
