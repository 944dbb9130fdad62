/* test_reduce_merges.c - a reduction split at nodes of its tree: summed separately and merged
 * later, it has the bits of one reduction over all sources, for any split, on every instruction
 * set. */
#include "group/net/net_schedule.h"
#include "kernels/cpu/reduce.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* More than a block of the kernel, of 8-byte sums and of bytes. */
enum { COUNT = 1100, BYTES = 4 * COUNT * 8, RANKS = 21 };

static const cddp_type types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16, CDDP_I32,
                                  CDDP_I64, CDDP_U8,  CDDP_I8,  CDDP_BOOL};

static size_t count_of(cddp_type type)
{
    return cddp_type_bytes(type) == 1 ? 4 * COUNT : COUNT;
}

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

_Alignas(64) static unsigned char inputs[RANKS][BYTES];
_Alignas(64) static unsigned char sums[RANKS][BYTES]; /* of parts */
_Alignas(64) static unsigned char more[RANKS][BYTES]; /* of merges */
_Alignas(64) static unsigned char whole[BYTES];
_Alignas(64) static unsigned char result[3][BYTES];

/* Any bits: numbers of every size, infinities, now and then NaNs of all kinds. */
static void fill_inputs(int ranks, cddp_type type)
{
    size_t bytes = cddp_type_bytes(type);

    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < count_of(type); i++) {
            uint64_t bits = draw(1u << 30) << 34 ^ draw(1u << 30) << 15 ^ draw(1u << 30);

            if (type == CDDP_F32 && i % 4 != 0) {
                float value = (float)(int64_t)bits * 0x1p-50f;

                memcpy(&bits, &value, 4);
            } else if (type == CDDP_F64 && i % 4 != 0) {
                double value = (double)(int64_t)bits * 0x1p-50;

                memcpy(&bits, &value, 8);
            }
            bits = type == CDDP_BOOL ? bits & 1 : bits;
            memcpy(inputs[r] + i * bytes, &bits, bytes);
        }
    }
}

/* One reduction, cut by chance. */
struct cut {
    const struct cddpi_reduce_isa *isa;
    struct cddpi_reduce how;
    struct cddpi_tree tree;
    struct cddpi_tree_node nodes[RANKS]; /* of operands; count 0: used up */
    struct cddpi_reduce_operand operands[RANKS];
    struct cddpi_reduce_merge merges[RANKS];
};

static int by_first(const void *a, const void *b)
{
    return ((const struct cddpi_tree_node *)a)->first - ((const struct cddpi_tree_node *)b)->first;
}

/* Each part summed alone; single sources are taken as they are, mostly. */
static void sum_parts(struct cut *cut)
{
    memcpy(cut->nodes, cut->tree.parts, sizeof *cut->nodes * (size_t)cut->tree.part_count);
    qsort(cut->nodes, (size_t)cut->tree.part_count, sizeof *cut->nodes, by_first);
    for (int p = 0; p < cut->tree.part_count; p++) {
        struct cddpi_tree_node node = cut->nodes[p];
        struct cddpi_reduce how = cut->how;
        struct cddpi_reduce_operand *operand = &cut->operands[p];
        const void *src[RANKS];

        if (node.count == 1 && draw(4) != 0) {
            *operand = (struct cddpi_reduce_operand){inputs[node.first], true, 1};
            if (how.factors != NULL) {
                operand->factor = how.factors[node.first];
                operand->data = operand->factor == 0 && draw(2) ? NULL : operand->data;
            }
            continue;
        }
        for (int s = 0; s < node.count; s++) {
            src[s] = inputs[node.first + s];
        }
        how.sources = node.count;
        how.factors = how.factors != NULL ? how.factors + node.first : NULL;
        *operand = (struct cddpi_reduce_operand){sums[p], false, 0};
        if (!cut->isa->part(&how, sums[p], src, count_of(how.type))) {
            operand->data = NULL;
        }
    }
}

/* All merges that the nodes allow, of which a call does the first @p limit. */
static int list_merges(struct cut *cut, int limit)
{
    int stack[RANKS];
    int depth = 0;
    int count = 0;

    for (int p = 0; p < cut->tree.part_count; p++) {
        struct cddpi_tree_node node;

        if (cut->nodes[p].count == 0) {
            continue;
        }
        stack[depth++] = p;
        while (depth > 1 && count < limit &&
               cddpi_tree_siblings(&cut->tree, cut->nodes[stack[depth - 2]],
                                   cut->nodes[stack[depth - 1]], &node)) {
            cut->merges[count++] = (struct cddpi_reduce_merge){stack[depth - 2], stack[depth - 1],
                                                               NULL};
            cut->nodes[stack[depth - 2]] = node;
            cut->nodes[stack[depth - 1]].count = 0;
            depth--;
        }
    }
    return count;
}

/* Whether some factor below the node is not 0. */
static bool adds_something(const struct cut *cut, struct cddpi_tree_node node)
{
    for (int r = node.first; cut->how.factors != NULL && r < node.first + node.count; r++) {
        if (cut->how.factors[r] != 0) {
            return true;
        }
    }
    return cut->how.factors == NULL;
}

/* Where the sum of a merge may be kept: over an operand that is a sum, over a leaf if that has the
 * same type and no factor, or elsewhere. */
static void *place_of_sum(const struct cut *cut, const struct cddpi_reduce_merge *merge)
{
    const struct cddpi_reduce_operand *over =
        &cut->operands[draw(3) == 0 ? merge->right : merge->left];
    bool fits = !over->is_leaf ||
                (cut->how.factors == NULL &&
                 cddpi_reduce_sum_type(cut->how.type, cut->how.op) == cut->how.type);

    return over->data != NULL && fits && draw(2) == 0 ? (void *)(uintptr_t)over->data
                                                      : more[merge->left];
}

/* Some merges, whose sums are kept. */
static void merge_some(struct cut *cut, struct cddpi_reduce_merges *how)
{
    how->destinations = 0;
    how->merge_count = list_merges(cut, (int)draw(RANKS));
    for (int m = 0; m < how->merge_count; m++) {
        cut->merges[m].out = place_of_sum(cut, &cut->merges[m]);
        for (int later = m + 1; later < how->merge_count; later++) {
            if (cut->merges[later].left == cut->merges[m].left) { /* kept by a later one */
                cut->merges[m].out = NULL;
            }
        }
    }
    cut->isa->merges(how, count_of(how->type));
    for (int m = 0; m < how->merge_count; m++) {
        int left = cut->merges[m].left;

        if (cut->merges[m].out != NULL) {
            bool any = adds_something(cut, cut->nodes[left]);

            cut->operands[left] = (struct cddpi_reduce_operand){any ? cut->merges[m].out : NULL,
                                                                false, 0};
        }
    }
}

/* Put some destinations into the memory of operands: of leaves, or of any if the types are equal.
 */
static void draw_places(const struct cut *cut, void **dst, int destinations)
{
    bool any = cddpi_reduce_sum_type(cut->how.type, cut->how.op) == cut->how.type;

    for (int d = 0; d < destinations; d++) {
        const struct cddpi_reduce_operand *over =
            &cut->operands[draw((uint64_t)cut->tree.part_count)];
        bool is_free = over->data != NULL && (any || over->is_leaf) && draw(2) == 0;

        for (int e = 0; e < d; e++) {
            is_free = is_free && dst[e] != over->data;
        }
        dst[d] = is_free ? (void *)(uintptr_t)over->data : dst[d];
    }
}

static void check_cut(struct cut *cut, int ranks)
{
    struct cddpi_reduce_merges how = {.type = cut->how.type,
                                      .op = cut->how.op,
                                      .has_factors = cut->how.factors != NULL,
                                      .operands = cut->operands,
                                      .merges = cut->merges,
                                      .operand_count = cut->tree.part_count,
                                      .ranks = ranks};
    void *dst[3] = {result[0], result[1], result[2]};

    sum_parts(cut);
    if (draw(2) == 0) {
        merge_some(cut, &how);
    }
    how.merge_count = list_merges(cut, RANKS);
    how.destinations = 1 + (int)draw(3);
    how.dst = dst;
    draw_places(cut, dst, how.destinations);
    cut->isa->merges(&how, count_of(how.type));
    for (int d = 0; d < how.destinations; d++) {
        size_t bytes = cddp_type_bytes(cut->how.type);

        for (size_t i = 0; i < count_of(how.type); i++) {
            if (memcmp((char *)dst[d] + i * bytes, whole + i * bytes, bytes) != 0) {
                fail_msg("%s: type %s, op %d, %d ranks, %d parts, element %zu of destination %d "
                         "differs",
                         cut->isa->name, cddp_type_name(cut->how.type), cut->how.op, ranks,
                         cut->tree.part_count, i, d);
            }
        }
    }
}

static void check_random(cddp_type type, cddp_op op, bool weighted,
                         const struct cddpi_reduce_isa *isa)
{
    int ranks = 1 + (int)draw(RANKS);
    int hosts = 1 + (int)draw((uint64_t)ranks);
    int host_of[RANKS];
    bool in_order = draw(2) == 0;
    double weights[RANKS];
    double factors[RANKS];
    const void *src[RANKS];
    void *dst[] = {whole};
    size_t isas;
    struct cut cut = {.isa = isa, .how = {type, op, ranks, 1, NULL}};

    for (int r = 0; r < ranks; r++) {
        host_of[r] = in_order ? r * hosts / ranks : r < hosts ? r : (int)draw((uint64_t)hosts);
        weights[r] = draw(3) == 0 ? 0 : (double)draw(100);
        src[r] = inputs[r];
    }
    if (weighted) {
        cddpi_reduce_weighted(&cut.how, type, weights, ranks, factors);
    }
    fill_inputs(ranks, type);
    cddpi_reduce_isas(&isas)[0]->reduce(&cut.how, dst, src, count_of(type));
    assert_true(cddpi_tree_init(ranks, host_of, hosts, &cut.tree));
    check_cut(&cut, ranks);
    cddpi_tree_fini(&cut.tree);
}

static void parts_merged_have_the_bits_of_one_reduction(void **unused)
{
    size_t isas;
    const struct cddpi_reduce_isa *const *isa = cddpi_reduce_isas(&isas);

    (void)unused;
    for (size_t k = 0; k < isas; k++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (int again = 0; again < 60; again++) {
                for (int op = CDDP_OP_SUM; op <= (t < 4 ? CDDP_OP_PROD : CDDP_OP_XOR); op++) {
                    if (types[t] != CDDP_BOOL || op != CDDP_OP_MEAN) {
                        check_random(types[t], (cddp_op)op, false, isa[k]);
                    }
                }
                if (t < 4) {
                    check_random(types[t], CDDP_OP_MEAN, true, isa[k]);
                }
            }
        }
    }
}

/* With nothing but zeros as weights the mean is zero, and no source is read. */
static void a_node_without_weight_is_neither_read_nor_sent(void **unused)
{
    static const double factors[] = {0, 0};
    static float out[] = {7, 7};
    struct cddpi_reduce how = {CDDP_F32, CDDP_OP_SUM, 2, 1, factors};
    const void *src[] = {NULL, NULL};
    struct cddpi_reduce_operand operands[] = {{NULL, false, 0}, {NULL, true, 0}};
    struct cddpi_reduce_merge merge = {0, 1, NULL};
    void *dst[] = {out};
    struct cddpi_reduce_merges merges = {CDDP_F32, CDDP_OP_SUM, true, operands, 2, &merge,
                                         1,        1,           dst,  0,        3};

    (void)unused;
    assert_false(cddpi_reduce_part(&how, out, src, 2));
    assert_true(out[0] == 7 && out[1] == 7);
    cddpi_reduce_merges(&merges, 2);
    assert_true(out[0] == 0 && out[1] == 0);
}

static void sums_are_held_in_what_the_kernel_adds_in(void **unused)
{
    (void)unused;
    assert_int_equal(cddpi_reduce_sum_type(CDDP_F16, CDDP_OP_MAX), CDDP_F32);
    assert_int_equal(cddpi_reduce_sum_type(CDDP_BF16, CDDP_OP_MEAN), CDDP_F32);
    assert_int_equal(cddpi_reduce_sum_type(CDDP_I32, CDDP_OP_MEAN), CDDP_I64);
    assert_int_equal(cddpi_reduce_sum_type(CDDP_U8, CDDP_OP_MEAN), CDDP_I64);
    assert_int_equal(cddpi_reduce_sum_type(CDDP_U8, CDDP_OP_SUM), CDDP_U8);
    assert_int_equal(cddpi_reduce_sum_type(CDDP_F64, CDDP_OP_MEAN), CDDP_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_merged_have_the_bits_of_one_reduction),
        cmocka_unit_test(a_node_without_weight_is_neither_read_nor_sent),
        cmocka_unit_test(sums_are_held_in_what_the_kernel_adds_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
