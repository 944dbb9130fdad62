/* layer_names.c - owns how users select layers of a description: by name, by prefix, or by number.
 */
#include "base/error.h"
#include "nn/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layers that @p spec describes, by name. After a failure, there is nothing to release. */
static cddp_status list_layers(const struct cddpi_model_spec *spec, struct cddpi_layer_list *out)
{
    struct cddpi_model_spec complete = *spec;

    CDDPI_TRY(cddpi_model_spec_complete(&complete));
    return cddpi_layers_expand(&complete, out);
}

cddp_status cddpi_model_check_layers(const struct cddpi_model_spec *spec)
{
    struct cddpi_layer_list list = {0};
    cddp_status status = list_layers(spec, &list);

    cddpi_layer_list_fini(&list);
    return status;
}

/* The layers called @p name; or, unless @p whole, all whose names begin with it and a dot: "layer3"
 * is a prefix of "layer3.0.conv1", but not of "layer30". */
static bool find_name(const struct cddpi_layer_list *list, const char *name, bool whole,
                      struct cddpi_layer_range *out)
{
    size_t length = strlen(name);

    *out = (struct cddpi_layer_range){-1, -1};
    for (size_t i = 0; i < list->count; i++) {
        const char *layer = list->layers[i].name;

        if (strncmp(layer, name, length) == 0 && layer[length] == (whole ? '\0' : '.')) {
            out->first = out->first < 0 ? (int)i : out->first;
            out->end = (int)i + 1;
        }
    }
    return out->first >= 0;
}

static cddp_status find_range(const struct cddpi_model_spec *spec, const char *name,
                              struct cddpi_layer_range *out, size_t *out_count)
{
    struct cddpi_layer_list list = {0};
    size_t digits = strspn(name, "0123456789");
    long number = digits > 0 && digits < 6 && name[digits] == '\0' ? strtol(name, NULL, 10) : -1;
    cddp_status status = list_layers(spec, &list);

    number = strcmp(name, "input") == 0 ? 0 : number;
    *out_count = list.count;
    if (status == CDDP_OK && !find_name(&list, name, true, out) &&
        !find_name(&list, name, false, out)) {
        *out = (struct cddpi_layer_range){(int)number, (int)number + 1};
        status = number >= 0 && (size_t)number < list.count
                     ? CDDP_OK
                     : cddpi_fail(CDDP_ERR_CONFIG, "no layer is called \"%s\"", name);
    }
    cddpi_layer_list_fini(&list);
    return status;
}

cddp_status cddpi_model_find_layers(const struct cddpi_model_spec *spec, const char *name,
                                    struct cddpi_layer_range *out)
{
    size_t count;

    return find_range(spec, name, out, &count);
}

cddp_status cddpi_model_find_layer(const struct cddpi_model_spec *spec, const char *name,
                                   int *out_layer, int *out_count)
{
    struct cddpi_layer_range range = {0, 0};
    size_t count;
    cddp_status status = find_range(spec, name, &range, &count);

    *out_layer = range.first;
    *out_count = (int)count;
    return status;
}

cddp_status cddpi_model_layer_has_params(const struct cddpi_model_spec *spec, int layer, bool *out,
                                         int *out_count)
{
    struct cddpi_layer_list list = {0};

    CDDPI_TRY(list_layers(spec, &list));
    *out = (size_t)layer < list.count &&
           cddpi_layer_rows[list.layers[layer].type].ops->declare != NULL;
    *out_count = (int)list.count;
    cddpi_layer_list_fini(&list);
    return CDDP_OK;
}

cddp_status cddpi_model_layer_name(const struct cddpi_model_spec *spec, int layer, char *out,
                                   size_t out_bytes)
{
    struct cddpi_layer_list list = {0};

    CDDPI_TRY(list_layers(spec, &list));
    snprintf(out, out_bytes, "%s", list.layers[layer].name);
    cddpi_layer_list_fini(&list);
    return CDDP_OK;
}
