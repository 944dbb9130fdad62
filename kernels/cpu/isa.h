/* isa.h - the instruction set that kernels use: the best that the CPU has, limited by CDDP_MAX_ISA.
 * Any thread. */
#ifndef CDDPI_KERNELS_ISA_H
#define CDDPI_KERNELS_ISA_H

#include <stdbool.h>

enum cddpi_isa {
    CDDPI_ISA_LEVEL_GENERIC,
    CDDPI_ISA_LEVEL_AVX2,  /* with F16C and FMA */
    CDDPI_ISA_LEVEL_AVX512 /* F, BW, DQ and VL */
};

/** The best instruction set that is allowed, that this CPU has and that this build supports. */
enum cddpi_isa cddpi_isa(void);

/** Whether CDDP_MAX_ISA is set. If so, @p out receives the level that it allows, and @p out_amx
 *  whether it allows AMX tiles. */
bool cddpi_isa_limit(enum cddpi_isa *out, bool *out_amx);

#endif
