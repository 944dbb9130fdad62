/* layer_names.c - owns how users select layers of a description: by name, by prefix, or by number.
 */
#include "base/error.h"
#include "nn/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layers that @p spec describes, by name. */
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

/* "layer3" is a prefix of "layer3.0.conv1", but not of "layer30". */
static bool is_group_of(const char *layer, const char *name)
{
    size_t length = strlen(name);

    return strncmp(layer, name, length) == 0 && layer[length] == '.';
}

static bool find_name(const struct cddpi_layer_list *list, const char *name, bool whole,
                      struct cddpi_layer_range *out)
{
    *out = (struct cddpi_layer_range){-1, -1};
    for (size_t i = 0; i < list->count; i++) {
        const char *layer = list->layers[i].name;

        if (whole ? strcmp(layer, name) == 0 : is_group_of(layer, name)) {
            out->first = out->first < 0 ? (int)i : out->first;
            out->end = (int)i + 1;
        }
    }
    return out->first >= 0;
}

static bool find_number(const struct cddpi_layer_list *list, const char *name,
                        struct cddpi_layer_range *out)
{
    size_t digits = strspn(name, "0123456789");
    long number = digits > 0 && digits < 6 && name[digits] == '\0' ? strtol(name, NULL, 10) : -1;

    if (strcmp(name, "input") == 0) {
        number = 0;
    }
    *out = (struct cddpi_layer_range){(int)number, (int)number + 1};
    return number >= 0 && (size_t)number < list->count;
}

static cddp_status find_range(const struct cddpi_layer_list *list, const char *name,
                              struct cddpi_layer_range *out)
{
    if (find_name(list, name, true, out) || find_name(list, name, false, out) ||
        find_number(list, name, out)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_CONFIG, "no layer is called \"%s\"", name);
}

cddp_status cddpi_model_find_layers(const struct cddpi_model_spec *spec, const char *name,
                                    struct cddpi_layer_range *out)
{
    struct cddpi_layer_list list = {0};
    cddp_status status = list_layers(spec, &list);

    if (status == CDDP_OK) {
        status = find_range(&list, name, out);
    }
    cddpi_layer_list_fini(&list);
    return status;
}

cddp_status cddpi_model_find_layer(const struct cddpi_model_spec *spec, const char *name,
                                   int *out_layer, int *out_count)
{
    struct cddpi_layer_list list = {0};
    struct cddpi_layer_range range = {0, 0};
    cddp_status status = list_layers(spec, &list);

    if (status == CDDP_OK) {
        status = find_range(&list, name, &range);
    }
    *out_layer = range.first;
    *out_count = (int)list.count;
    cddpi_layer_list_fini(&list);
    return status;
}

cddp_status cddpi_model_layer_has_params(const struct cddpi_model_spec *spec, int layer, bool *out,
                                         int *out_count)
{
    struct cddpi_layer_list list = {0};
    cddp_status status = list_layers(spec, &list);

    if (status == CDDP_OK) {
        *out = (size_t)layer < list.count &&
               cddpi_layer_rows[list.layers[layer].type].ops->declare != NULL;
        *out_count = (int)list.count;
    }
    cddpi_layer_list_fini(&list);
    return status;
}

cddp_status cddpi_model_layer_name(const struct cddpi_model_spec *spec, int layer, char *out,
                                   size_t out_bytes)
{
    struct cddpi_layer_list list = {0};
    cddp_status status = list_layers(spec, &list);

    if (status == CDDP_OK) {
        snprintf(out, out_bytes, "%s", list.layers[layer].name);
    }
    cddpi_layer_list_fini(&list);
    return status;
}
