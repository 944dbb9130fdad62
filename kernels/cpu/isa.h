/* isa.h - which set of instructions the kernels use here: what the processor has, unless
 * CDDP_MAX_ISA says less. Any thread. */
#ifndef CDDPI_KERNELS_ISA_H
#define CDDPI_KERNELS_ISA_H

#include <stdbool.h>

enum cddpi_isa {
    CDDPI_ISA_LEVEL_GENERIC,
    CDDPI_ISA_LEVEL_AVX2,  /* with F16C and FMA */
    CDDPI_ISA_LEVEL_AVX512 /* F, BW, DQ and VL */
};

/** The best that may be used, this processor has and this build knows. */
enum cddpi_isa cddpi_isa(void);

/** Whether CDDP_MAX_ISA says something, which is then in @p out: the level that it allows, and in
 *  @p out_amx whether tiles are allowed, too. */
bool cddpi_isa_limit(enum cddpi_isa *out, bool *out_amx);

#endif
