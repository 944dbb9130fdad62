/* planes.c - the data planes of the CUDA module, best first. */
#include "group/plane.h"

extern const struct cddpi_plane_ops *const cddpi_cuda_planes[];

const struct cddpi_plane_ops *const cddpi_cuda_planes[] = {
    NULL,
};
