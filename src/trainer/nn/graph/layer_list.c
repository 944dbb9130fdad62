/* layer_list.c - owns lists of layers, with their strings. */
#include "base/alloc.h"
#include "nn/graph/graph_layers.h"

#include <stdarg.h>
#include <stdio.h>

void cddpi_layer_list_fini(struct cddpi_layer_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        cddpi_free((char *)list->layers[i].name);
        cddpi_free((char *)list->layers[i].input);
        cddpi_free((char *)list->layers[i].input2);
        cddpi_free((char *)list->layers[i].tied);
        cddpi_free((char *)list->layers[i].positions);
    }
    cddpi_free(list->layers);
    *list = (struct cddpi_layer_list){0};
}

const char *cddpi_layer_list_last(const struct cddpi_layer_list *list)
{
    return list->no_memory ? NULL : list->layers[list->count - 1].name;
}

static bool grow_list(struct cddpi_layer_list *list)
{
    size_t capacity = list->capacity > 0 ? 2 * list->capacity : 32;
    void *grown;

    if (list->count < list->capacity) {
        return true;
    }
    grown = cddpi_realloc(list->layers, capacity * sizeof *list->layers);
    if (grown == NULL) {
        return false;
    }
    list->layers = grown;
    list->capacity = capacity;
    return true;
}

void cddpi_layer_list_append(struct cddpi_layer_list *list, struct cddpi_layer layer,
                             const char *format, ...)
{
    char name[CDDPI_LAYER_NAME_BYTES];
    const struct cddpi_layer given = layer;

    if (list->no_memory || !grow_list(list)) {
        list->no_memory = true;
        return;
    }
    if (format != NULL) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(name, sizeof name, format, arguments);
        va_end(arguments);
        layer.name = name;
    }
    layer.name = cddpi_strdup(layer.name);
    layer.input = cddpi_strdup(given.input);
    layer.input2 = cddpi_strdup(given.input2);
    layer.tied = cddpi_strdup(given.tied);
    layer.positions = cddpi_strdup(given.positions);
    list->no_memory = layer.name == NULL || (given.input != NULL && layer.input == NULL) ||
                      (given.input2 != NULL && layer.input2 == NULL) ||
                      (given.tied != NULL && layer.tied == NULL) ||
                      (given.positions != NULL && layer.positions == NULL);
    list->layers[list->count++] = layer;
}
