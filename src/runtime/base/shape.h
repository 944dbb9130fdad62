/* shape.h - how many elements a tensor has. */
#ifndef CDDPI_SHAPE_H
#define CDDPI_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/** Product of @p dims sizes, each >= 0; 1 without any. The caller has checked that it fits: shapes
 *  from outside go through a check with a text of its own first. */
static inline size_t cddpi_elements(int dims, const int64_t *shape)
{
    size_t count = 1;

    for (int d = 0; d < dims; d++) {
        count *= (size_t)shape[d];
    }
    return count;
}

#endif
