/* placement.c - owns the assignment of layers to devices until it is turned into segments. */
#include "parallel/placed/placement.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

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

static cddp_status fail_layer(const struct cddpi_placement *placement, int layer, const char *what)
{
    char name[200] = "";

    CDDPI_TRY(cddpi_model_layer_name(placement->spec, layer, name, sizeof name));
    return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" %s", name, what);
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
            return fail_layer(placement, i, "is placed twice");
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
            return fail_layer(placement, i, "is placed nowhere");
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
