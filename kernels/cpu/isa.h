/* isa.h - which set of instructions the kernels use here. Any thread. */
#ifndef CDDPI_KERNELS_ISA_H
#define CDDPI_KERNELS_ISA_H

enum cddpi_isa {
    CDDPI_ISA_LEVEL_GENERIC,
    CDDPI_ISA_LEVEL_AVX2,  /* with F16C and FMA */
    CDDPI_ISA_LEVEL_AVX512 /* F, BW, DQ and VL */
};

/** The best that this processor has and this build knows. */
enum cddpi_isa cddpi_isa(void);

#endif
