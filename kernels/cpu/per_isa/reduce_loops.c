/* reduce_loops.c - reductions and casts for one instruction set; compiled once for each, with
 * CDDPI_ISA as its name. Blocks of a few KiB pass through the whole tree while they are in the L1
 * cache. */
#include "kernels/cpu/per_isa/reduce_loops.h"

#include <assert.h>

/* A stack of partial results: two of the same height are combined at once, the others at the end.
 */
struct reduce_stack {
    void *slot[LEVELS];
    const void *value[LEVELS];
    int leaves[LEVELS];
    int depth;
};

static void combine_top(const struct plan *plan, struct reduce_stack *stack, size_t n)
{
    int top = --stack->depth;
    int below = top - 1;

    /* the left one is missing: the right one moves up unchanged */
    if (stack->value[below] == NULL) {
        void *slot = stack->slot[below];

        stack->slot[below] = stack->slot[top];
        stack->slot[top] = slot;
        stack->value[below] = stack->value[top];
    } else if (stack->value[top] != NULL) {
        plan->combine(stack->slot[below], stack->value[below], stack->value[top], n);
        stack->value[below] = stack->slot[below];
    }
    stack->leaves[below] += stack->leaves[top];
}

/* The sum of all sources, in the inner type. Returns its address (in a source, in @p buffer, or in
 * @p memory, which has LEVELS - 1 more blocks), or NULL if all sources were skipped. */
static const void *reduce_tree(const struct plan *plan, int sources, const void *const *src,
                               size_t at, size_t n, void *buffer, char (*memory)[BLOCK_BYTES])
{
    struct reduce_stack stack = {.depth = 0};

    stack.slot[0] = buffer;
    for (int i = 1; i < LEVELS; i++) {
        stack.slot[i] = memory[i - 1];
    }
    for (int s = 0; s < sources; s++) {
        const double *factor = plan->factors != NULL ? &plan->factors[s] : NULL;
        int top = stack.depth++;

        stack.value[top] = leaf(plan, src[s], at, factor, stack.slot[top], n);
        stack.leaves[top] = 1;
        while (stack.depth > 1 && stack.leaves[stack.depth - 1] == stack.leaves[stack.depth - 2]) {
            combine_top(plan, &stack, n);
        }
    }
    while (stack.depth > 1) {
        combine_top(plan, &stack, n);
    }
    return stack.value[0];
}

static void reduce_and_finish(const struct plan *plan, int sources, void *out,
                              const void *const *src, size_t at, size_t n)
{
    _Alignas(64) char memory[LEVELS][BLOCK_BYTES];
    const void *value = reduce_tree(plan, sources, src, at, n, memory[0], memory + 1);

    finish(plan, out, value, memory[0], n);
}

static bool reduce_fast(const struct plan *plan, const struct cddpi_reduce *how, void *out,
                        const void *const *src, size_t at, size_t n)
{
    if (how->factors != NULL || (how->op != CDDP_OP_SUM && how->op != CDDP_OP_MEAN)) {
        return false;
    }
    if (how->type == CDDP_F32 && how->sources == 2) {
        f32_sum2(out, src, at, (f32)plan->scale, n);
    } else if (how->type == CDDP_F32 && how->sources == 4) {
        f32_sum4(out, src, at, (f32)plan->scale, n);
    } else if (how->type == CDDP_F64 && how->sources == 2) {
        f64_sum2(out, src, at, plan->scale, n);
    } else if (how->type == CDDP_F64 && how->sources == 4) {
        f64_sum4(out, src, at, plan->scale, n);
    } else {
        return false;
    }
    return true;
}

static void reduce(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                   size_t count)
{
    struct plan plan = plan_for(how->type, how->op, how->factors, how->sources);
    size_t bytes = cddp_type_bytes(how->type);
    bool two = how->sources == 2 && how->destinations == 2 && how->factors == NULL &&
               (how->op == CDDP_OP_SUM || how->op == CDDP_OP_MEAN);

    assert(how->sources >= 1 && how->sources <= CDDPI_REDUCE_MAX_SOURCES);
    for (size_t at = 0; at < count; at += plan.block) {
        size_t n = count - at < plan.block ? count - at : plan.block;
        void *out = (char *)dst[0] + at * bytes;

        if (two && how->type == CDDP_F32) {
            f32_sum2x2(out, (f32 *)dst[1] + at, src, at, (f32)plan.scale, n);
            continue;
        }
        if (two && how->type == CDDP_F64) {
            f64_sum2x2(out, (f64 *)dst[1] + at, src, at, plan.scale, n);
            continue;
        }
        if (!reduce_fast(&plan, how, out, src, at, n)) {
            reduce_and_finish(&plan, how->sources, out, src, at, n);
        }
        for (int d = 1; d < how->destinations; d++) {
            copy_block((char *)dst[d] + at * bytes, out, n * bytes);
        }
    }
}

static bool reduce_part(const struct cddpi_reduce *how, void *out, const void *const *src,
                        size_t count)
{
    _Alignas(64) char memory[LEVELS - 1][BLOCK_BYTES];
    struct plan plan = plan_for(how->type, how->op, how->factors, how->sources);
    size_t bytes = cddp_type_bytes(plan.inner);
    bool is_plain = plan.inner == how->type && how->sources > 1;
    bool any = how->factors == NULL;

    for (int s = 0; s < how->sources; s++) {
        any = any || how->factors[s] != 0;
    }
    plan.scale = 1.0; /* the finish does the last step */
    for (size_t at = 0; any && at < count; at += plan.block) {
        size_t n = count - at < plan.block ? count - at : plan.block;
        char *to = (char *)out + at * bytes;

        if (!is_plain || !reduce_fast(&plan, how, to, src, at, n)) {
            const void *value = reduce_tree(&plan, how->sources, src, at, n, to, memory);

            if (value != to) {
                copy_block(to, value, n * bytes);
            }
        }
    }
    return any;
}

enum { TEMPORARIES = LEVELS + 2, IS_RAW = 0, IS_OUT = 255 };

/* One block of all operands. */
struct operands {
    const struct cddpi_reduce_merges *how;
    const struct plan *plan;
    size_t at, n;
    int fused; /* number of merges that are fused with the finish */
    char (*memory)[BLOCK_BYTES];
    unsigned char unused[TEMPORARIES]; /* free temporary blocks, numbered from 1 */
    int unused_count;
    const void *value[CDDPI_REDUCE_MAX_SOURCES];   /* of operands that are not raw */
    unsigned char place[CDDPI_REDUCE_MAX_SOURCES]; /* where the value is: raw as given, in a block,
                                                      or in a merge's out */
};

static int take_block(struct operands *all)
{
    assert(all->unused_count > 0); /* merges come one subtree after the other, so a block is free */
    return all->unused[--all->unused_count];
}

static void give_back(struct operands *all, int place)
{
    if (place != IS_RAW && place != IS_OUT) {
        all->unused[all->unused_count++] = (unsigned char)place;
    }
}

/* The operand's values as a sum, or NULL if it contributes nothing; place says where they are. */
static const void *value_of(struct operands *all, int index)
{
    const struct cddpi_reduce_operand *operand = &all->how->operands[index];
    const struct plan *plan = all->plan;
    const double *factor = all->how->has_factors ? &operand->factor : NULL;
    int place;

    if (all->place[index] != IS_RAW) {
        return all->value[index];
    }
    if (operand->data == NULL || (operand->is_leaf && factor != NULL && *factor == 0)) {
        return NULL;
    }
    if (!operand->is_leaf || (plan->type == plan->inner && factor == NULL)) {
        return (const char *)operand->data + all->at * cddp_type_bytes(plan->inner);
    }
    place = take_block(all);
    all->place[index] = (unsigned char)place;
    all->value[index] = leaf(plan, operand->data, all->at, factor, all->memory[place - 1], all->n);
    return all->value[index];
}

/* Where to write the sum of @p left and @p right: to the requested place, or over one of them. */
static void *target_of(struct operands *all, const struct cddpi_reduce_merge *merge, int *out_place)
{
    int place = all->place[merge->left];

    if (merge->out != NULL) {
        *out_place = IS_OUT;
        return (char *)merge->out + all->at * cddp_type_bytes(all->plan->inner);
    }
    if (place == IS_RAW || place == IS_OUT) {
        place = all->place[merge->right];
    }
    if (place == IS_RAW || place == IS_OUT) {
        place = take_block(all);
    }
    *out_place = place;
    return all->memory[place - 1];
}

static void merge_two(struct operands *all, const struct cddpi_reduce_merge *merge)
{
    const void *left = value_of(all, merge->left);
    const void *right = value_of(all, merge->right);
    const void *only = left == NULL ? right : left;
    void *target;
    int place;

    /* the other one moves up unchanged */
    if (merge->out == NULL && (left == NULL || right == NULL)) {
        if (left == NULL) {
            all->place[merge->left] = all->place[merge->right] == IS_RAW ? IS_OUT
                                                                         : all->place[merge->right];
            all->value[merge->left] = right;
            all->place[merge->right] = IS_OUT;
        }
        return;
    }
    target = target_of(all, merge, &place);
    if (left != NULL && right != NULL) {
        all->plan->combine(target, left, right, all->n);
    } else if (only != NULL && target != only) {
        copy_block(target, only, all->n * cddp_type_bytes(all->plan->inner));
    }
    for (int side = 0; side < 2; side++) {
        int index = side == 0 ? merge->left : merge->right;

        if (all->place[index] != place) {
            give_back(all, all->place[index]);
        }
        all->place[index] = IS_OUT;
    }
    all->place[merge->left] = (unsigned char)place;
    all->value[merge->left] = only == NULL ? NULL : target;
}

/* How many of the last merges can be fused with the finish in one pass: the common sums of two or
 * four, as in reduce_fast(). */
static int fused_merges(const struct cddpi_reduce_merges *how)
{
    bool is_sum = how->op == CDDP_OP_SUM || how->op == CDDP_OP_MEAN;
    const struct cddpi_reduce_merge *last = how->merges + how->merge_count - 1;

    if (how->destinations == 0 || how->merge_count == 0 || !is_sum ||
        (how->type != CDDP_F32 && how->type != CDDP_F64) || last->left != how->root ||
        last->out != NULL) {
        return 0;
    }
    if (how->merge_count >= 3 && last[-2].left == last->left && last[-1].left == last->right &&
        last[-2].out == NULL && last[-1].out == NULL) {
        return 3;
    }
    return 1;
}

/* Returns how many destinations were written: 0 if an operand contributes nothing. */
static int merge_and_finish(struct operands *all, void *const *dst)
{
    const struct plan *plan = all->plan;
    const struct cddpi_reduce_merge *merges = all->how->merges + all->how->merge_count;
    const void *src[4] = {NULL, NULL, NULL, NULL};
    bool is_f32 = plan->type == CDDP_F32;
    int values = 0;

    merges -= all->fused;
    for (int m = 0; m < (all->fused == 3 ? 2 : 1); m++) {
        src[values++] = value_of(all, merges[m].left);
        src[values++] = value_of(all, merges[m].right);
        if (src[values - 2] == NULL || src[values - 1] == NULL) {
            return 0;
        }
    }
    if (values == 4) {
        if (is_f32) {
            f32_sum4(dst[0], src, 0, (f32)plan->scale, all->n);
        } else {
            f64_sum4(dst[0], src, 0, plan->scale, all->n);
        }
        return 1;
    }
    if (all->how->destinations == 2) {
        if (is_f32) {
            f32_sum2x2(dst[0], dst[1], src, 0, (f32)plan->scale, all->n);
        } else {
            f64_sum2x2(dst[0], dst[1], src, 0, plan->scale, all->n);
        }
        return 2;
    }
    if (is_f32) {
        f32_sum2(dst[0], src, 0, (f32)plan->scale, all->n);
    } else {
        f64_sum2(dst[0], src, 0, plan->scale, all->n);
    }
    return 1;
}

static void finish_root(struct operands *all, void *out)
{
    const void *value = value_of(all, all->how->root);
    int place = all->place[all->how->root];

    place = place == IS_RAW || place == IS_OUT ? take_block(all) : place;
    finish(all->plan, out, value, all->memory[place - 1], all->n);
}

static void merge_block(struct operands *all)
{
    const struct cddpi_reduce_merges *how = all->how;
    size_t bytes = cddp_type_bytes(how->type);
    void *dst[2] = {NULL, NULL};
    int written = 0;
    int m = 0;

    if (all->unused_count < TEMPORARIES) {
        all->unused_count = 0;
        for (int i = TEMPORARIES; i > 0; i--) {
            give_back(all, i);
        }
    }
    memset(all->place, IS_RAW, (size_t)how->operand_count);
    for (int d = 0; d < how->destinations && d < 2; d++) {
        dst[d] = (char *)how->dst[d] + all->at * bytes;
    }
    for (; m < how->merge_count - all->fused; m++) {
        merge_two(all, &how->merges[m]);
    }
    if (all->fused > 0) {
        written = merge_and_finish(all, dst);
    }
    for (; written == 0 && m < how->merge_count; m++) {
        merge_two(all, &how->merges[m]);
    }
    if (written == 0 && how->destinations > 0) {
        finish_root(all, dst[0]);
        written = 1;
    }
    for (int d = written; d < how->destinations; d++) {
        copy_block((char *)how->dst[d] + all->at * bytes, dst[0], all->n * bytes);
    }
}

/* Whether no merge writes over a leaf that it would have to read afterwards; see `out`. */
static bool keeps_leaves(const struct cddpi_reduce_merges *how, const struct plan *plan)
{
    for (int m = 0; m < how->merge_count && (plan->type != plan->inner || how->has_factors); m++) {
        const void *out = how->merges[m].out;
        const struct cddpi_reduce_operand *left = &how->operands[how->merges[m].left];
        const struct cddpi_reduce_operand *right = &how->operands[how->merges[m].right];

        if (out != NULL &&
            ((left->is_leaf && left->data == out) || (right->is_leaf && right->data == out))) {
            return false;
        }
    }
    return true;
}

static void reduce_merges(const struct cddpi_reduce_merges *how, size_t count)
{
    _Alignas(64) char memory[TEMPORARIES][BLOCK_BYTES];
    struct plan plan = plan_for(how->type, how->op, NULL, how->ranks > 0 ? how->ranks : 1);
    struct operands all;

    assert(how->operand_count >= 1 && how->operand_count <= CDDPI_REDUCE_MAX_SOURCES);
    assert(keeps_leaves(how, &plan));
    all.how = how;
    all.plan = &plan;
    all.memory = memory;
    all.fused = fused_merges(how);
    all.unused_count = 0;
    for (size_t at = 0; at < count; at += plan.block) {
        all.at = at;
        all.n = count - at < plan.block ? count - at : plan.block;
        merge_block(&all);
    }
}

static void load_any(f32 *out, const void *in, cddp_type type, size_t n)
{
    if (type == CDDP_F16) {
        f16_load(out, in, n);
    } else if (type == CDDP_BF16) {
        bf16_load(out, in, n);
    } else {
        memcpy(out, in, n * sizeof *out);
    }
}

static void store_any(void *out, const f32 *in, cddp_type type, size_t n)
{
    if (type == CDDP_F16) {
        f16_store(out, in, n);
    } else if (type == CDDP_BF16) {
        bf16_store(out, in, n);
    } else {
        memcpy(out, in, n * sizeof *in);
    }
}

static void cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count)
{
    enum { STEP = BLOCK_BYTES / sizeof(f32) };
    f32 values[STEP];

    if (dst_type == src_type) {
        memmove(dst, src, count * cddp_type_bytes(dst_type));
        return;
    }
    if (src_type == CDDP_F32) {
        store_any(dst, src, dst_type, count);
        return;
    }
    if (dst_type == CDDP_F32) {
        load_any(dst, src, src_type, count);
        return;
    }
    for (size_t at = 0; at < count; at += STEP) {
        size_t n = count - at < STEP ? count - at : STEP;

        load_any(values, (const uint16_t *)src + at, src_type, n);
        store_any((uint16_t *)dst + at, values, dst_type, n);
    }
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

extern const struct cddpi_reduce_isa JOIN(cddpi_reduce_, CDDPI_ISA);
const struct cddpi_reduce_isa JOIN(cddpi_reduce_, CDDPI_ISA) = {TEXT(CDDPI_ISA), reduce,
                                                                reduce_part, reduce_merges, cast};
