/* replicated_layers.c - turns the user's layer names into the range of layers to copy. */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/replicated/replicated.h"

static cddp_status fail_layer(const struct cddpi_model_spec *spec, int layer, const char *what)
{
    char name[200] = "";

    CDDPI_TRY(cddpi_model_layer_name(spec, layer, name, sizeof name));
    return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" %s", name, what);
}

static cddp_status mark_layers(const struct cddpi_model_spec *spec, const char *name, bool *marked,
                               struct cddpi_layer_range *all)
{
    struct cddpi_layer_range found;

    CDDPI_TRY(cddpi_model_find_layers(spec, name, &found));
    for (int i = found.first; i < found.end; i++) {
        if (marked[i]) {
            return fail_layer(spec, i, "is named twice");
        }
        marked[i] = true;
        all->first = i < all->first ? i : all->first;
        all->end = i >= all->end ? i + 1 : all->end;
    }
    return CDDP_OK;
}

/* A layer between named ones must be named, unless it has no parameters. A layer without parameters
 * after the range joins it, because such a layer may be computed together with the one before
 * it. */
static cddp_status complete_range(const struct cddpi_model_spec *spec, const bool *marked,
                                  int layers, struct cddpi_layer_range *all)
{
    bool has_params = false;
    int named_end = all->end;

    for (int i = all->first; i < layers && (i < named_end || !has_params); i++) {
        int count;

        CDDPI_TRY(cddpi_model_layer_has_params(spec, i, &has_params, &count));
        if (i < named_end && has_params && !marked[i]) {
            return fail_layer(spec, i, "lies between layers that are named, but is not");
        }
        all->end = i < named_end || has_params ? all->end : i + 1;
        has_params = i >= named_end && has_params;
    }
    return CDDP_OK;
}

cddp_status cddpi_replicated_layers(const struct cddpi_model_spec *spec, char *const *names,
                                    int name_count, struct cddpi_layer_range *out)
{
    struct cddpi_layer_range all = {0, 0};
    bool *marked;
    bool has_params;
    int count;
    cddp_status status = cddpi_model_layer_has_params(spec, 0, &has_params, &count);

    if (status != CDDP_OK) {
        return status;
    }
    marked = cddpi_zalloc_array((size_t)count, sizeof *marked);
    if (marked == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d layers", count);
    }
    all.first = count;
    for (int n = 0; status == CDDP_OK && n < name_count; n++) {
        status = mark_layers(spec, names[n], marked, &all);
    }
    if (status == CDDP_OK) {
        status = complete_range(spec, marked, count, &all);
    }
    cddpi_free(marked);
    if (status == CDDP_OK) {
        *out = all;
    }
    return status;
}
