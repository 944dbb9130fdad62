/* shape.h - the number of elements of a tensor. */
#ifndef CDDPI_SHAPE_H
#define CDDPI_SHAPE_H

#include <stddef.h>
#include <stdint.h>

/** The product of @p dims sizes, each >= 0; 1 if @p dims is 0. The caller has checked that it fits:
 *  shapes from outside pass a check with its own text first. */
static inline size_t cddpi_elements(int dims, const int64_t *shape)
{
    size_t count = 1;

    for (int d = 0; d < dims; d++) {
        count *= (size_t)shape[d];
    }
    return count;
}

#endif
