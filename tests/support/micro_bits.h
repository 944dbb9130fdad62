/* micro_bits.h - one micro-batch of each kind of model that examples/ train, at small size: what it
 * computes, as one hash for each loss, output, buffer and gradient. */
#ifndef CDDP_TESTS_SUPPORT_MICRO_BITS_H
#define CDDP_TESTS_SUPPORT_MICRO_BITS_H

#include "support/nn.h"

struct bits_kind {
    const char *name;
    struct cddpi_model_spec spec;
    int samples;
    /* how many kinds of fallbacks (enum cddpi_fallbacks) must also give one result each */
    bool has_convolutions;
};

extern const struct bits_kind bits_kinds[];
extern const size_t bits_kind_count;

enum {
    BITS_TRAINING_LOSS,
    BITS_EVALUATION_LOSS,
    BITS_CORRECT,
    BITS_OUTPUTS,
    BITS_FIRST, /* of buffers, then of gradients */
    BITS_MOST = 400
};

struct bits_answer {
    int count;
    uint64_t hashes[BITS_MOST];
};

/* A model, its first values, and where its gradients are now. */
struct bits_subject {
    const struct bits_kind *kind;
    struct fixture f;
    void **grads;
    float **saved; /* parameters, then buffers */
    void *blocks[2];
    /* called between forward and backward; NULL: nothing */
    void (*between)(struct bits_subject *subject);
};

/** Make the model with the present environment. Ends the process if that fails. */
void bits_open(struct bits_subject *subject, const struct bits_kind *kind,
               const struct cddpi_model_spec *spec, cddp_group *group);
void bits_close(struct bits_subject *subject);

/** A training step and an evaluation of the micro-batch, from the first values. */
void bits_measure(struct bits_subject *subject, struct bits_answer *out);
/** What measuring does first: write the first values. */
void bits_restore(struct bits_subject *subject);
/** A step with @p count other samples, then one update. */
void bits_step(struct bits_subject *subject, int first, int count, bool accumulate);
/** Evaluate @p count other samples. */
void bits_evaluate(struct bits_subject *subject, int first, int count);

/** Open, measure, close. */
void bits_of_kind(const struct bits_kind *kind, cddp_group *group, struct bits_answer *out);

/** Print what differs, and return how much. */
int bits_compare(const struct bits_kind *kind, const char *circumstance,
                 const struct bits_answer *reference, const struct bits_answer *answer);

#endif
