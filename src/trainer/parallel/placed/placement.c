/* placement.c - owns the turning of layer names into segments on devices and ranges of layers. */
#include "parallel/placed/placement.h"

#include "base/alloc.h"
#include "base/error.h"

static cddp_status fail_layer(const struct cddpi_model_spec *spec, int layer, const char *what)
{
    char name[200] = "";

    CDDPI_TRY(cddpi_model_layer_name(spec, layer, name, sizeof name));
    return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" %s", name, what);
}

cddp_status cddpi_placement_init(const struct cddpi_model_spec *spec, struct cddpi_placement *out)
{
    bool has_params = false;

    *out = (struct cddpi_placement){.spec = spec};
    CDDPI_TRY(cddpi_model_layer_has_params(spec, 0, &has_params, &out->layers));
    out->devices = cddpi_zalloc_array((size_t)out->layers + 1, sizeof *out->devices);
    if (out->devices == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory to place %d layers",
                          out->layers);
    }
    for (int i = 0; i < out->layers; i++) {
        out->devices[i] = -1;
    }
    return CDDP_OK;
}

void cddpi_placement_fini(struct cddpi_placement *placement)
{
    cddpi_free(placement->devices);
}

cddp_status cddpi_placement_put(struct cddpi_placement *placement, const char *first,
                                const char *last, int device)
{
    struct cddpi_layer_range from = {0, 0};
    struct cddpi_layer_range to = {0, 0};

    CDDPI_TRY(cddpi_model_find_layers(placement->spec, first, &from));
    CDDPI_TRY(cddpi_model_find_layers(placement->spec, last, &to));
    if (to.end <= from.first) {
        return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" comes before \"%s\"", last, first);
    }
    for (int i = from.first; i < to.end; i++) {
        if (placement->devices[i] >= 0) {
            return fail_layer(placement->spec, i, "is placed twice");
        }
        placement->devices[i] = device;
    }
    return CDDP_OK;
}

/* Assign the layers that have no device yet. */
static cddp_status place_rest(struct cddpi_placement *placement)
{
    int *devices = placement->devices;
    int count;

    for (int i = 0; i < placement->layers; i++) {
        bool has_params = false;

        if (devices[i] < 0) {
            CDDPI_TRY(cddpi_model_layer_has_params(placement->spec, i, &has_params, &count));
        }
        if (has_params) {
            return fail_layer(placement->spec, i, "is placed nowhere");
        }
        if (devices[i] < 0 && i > 0) {
            devices[i] = devices[i - 1];
        }
    }
    for (int i = placement->layers - 2; i >= 0; i--) {
        devices[i] = devices[i] < 0 ? devices[i + 1] : devices[i];
    }
    return CDDP_OK;
}

cddp_status cddpi_placement_segments(struct cddpi_placement *placement, struct cddpi_segment **out,
                                     int *out_count)
{
    struct cddpi_segment *segments;
    int count = 0;

    CDDPI_TRY(place_rest(placement));
    segments = cddpi_zalloc_array((size_t)placement->layers + 1, sizeof *segments);
    if (segments == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d layers",
                          placement->layers);
    }
    for (int i = 0; i < placement->layers; i++) {
        if (i == 0 || placement->devices[i] != placement->devices[i - 1]) {
            segments[count++] = (struct cddpi_segment){{i, i}, placement->devices[i]};
        }
        segments[count - 1].layers.end = i + 1;
    }
    *out = segments;
    *out_count = count;
    return CDDP_OK;
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
    cddp_status status;

    CDDPI_TRY(cddpi_model_layer_has_params(spec, 0, &has_params, &count));
    marked = cddpi_zalloc_array((size_t)count, sizeof *marked);
    if (marked == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d layers", count);
    }
    all.first = count;
    for (int n = 0; n < name_count; n++) {
        CDDPI_TRY_GOTO(out, status, mark_layers(spec, names[n], marked, &all));
    }
    CDDPI_TRY_GOTO(out, status, complete_range(spec, marked, count, &all));
    *out = all;

out:
    cddpi_free(marked);
    return status;
}
