/* graph_part.h - a graph cut out of a whole one: some of its layers, with an op at each value that
 * crosses the cuts. */
#ifndef CDDPI_NN_GRAPH_PART_H
#define CDDPI_NN_GRAPH_PART_H

#include "nn/graph/graph.h"

/* What a part holds beside its graph: a row for each op that receives or sends. */
struct cddpi_edges {
    struct cddpi_edge *items;
    int *values;  /* of the part's graph, one an edge */
    float **data; /* bound by the caller, one an edge */
    float **grads;
    size_t count;
};

struct cddpi_part {
    struct cddpi_edges in, out;
    struct cddpi_graph whole;
    int *origin;             /* the whole graph's value that each value of the part is */
    uint32_t *param_numbers; /* among those of the whole model */
};

/** Cut layers @p range out of @p whole, which the part owns from now on, also on failure.
 *  @return CDDP_OK, CDDP_ERR_CONFIG: no layer is in it, or tokens would cross a cut. */
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
