/* graph_part.h - a graph cut out of a whole one: some of its layers, and an op for each value that
 * crosses a cut. */
#ifndef CDDPI_NN_GRAPH_PART_H
#define CDDPI_NN_GRAPH_PART_H

#include "nn/graph/graph.h"

/* The edges at one side of a part: one for each op that receives or sends. */
struct cddpi_edges {
    struct cddpi_edge *items;
    int *values;  /* in the part's graph, one for each edge */
    float **data; /* bound by the caller, one for each edge */
    float **grads;
    size_t count;
};

struct cddpi_part {
    struct cddpi_edges in, out;
    struct cddpi_graph whole;
    int *origin;             /* for each value of the part, its number in the whole graph */
    uint32_t *param_numbers; /* their numbers in the whole model */
};

/** Cut layers @p range out of @p whole. The part owns @p whole from now on, even if this fails.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the range has no layer, or tokens would cross a cut. */
CDDP_CHECKED cddp_status cddpi_part_cut(const struct cddpi_model_spec *spec,
                                        const struct cddpi_layer_list *list,
                                        struct cddpi_graph *whole, struct cddpi_part *part,
                                        struct cddpi_graph *out);
void cddpi_part_fini(struct cddpi_part *part);
/** The edges at one side. */
static inline struct cddpi_edges *cddpi_part_edges(struct cddpi_part *part,
                                                   enum cddpi_edge_side side)
{
    return side == CDDPI_EDGE_IN ? &part->in : &part->out;
}

#endif
