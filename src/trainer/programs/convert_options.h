/* convert_options.h - owns the command line of cddp-convert. */
#ifndef CDDPI_PROGRAMS_CONVERT_OPTIONS_H
#define CDDPI_PROGRAMS_CONVERT_OPTIONS_H

#include "nn/weights/weights.h"

#include <stdio.h>

enum cddpi_convert_mode {
    CDDPI_CONVERT_WRITE,
    CDDPI_CONVERT_INFO,
    CDDPI_CONVERT_HELP,
    CDDPI_CONVERT_VERSION
};

/* Strings point into argv. */
struct cddpi_convert_options {
    enum cddpi_convert_mode mode;
    enum cddpi_weights_format format;
    cddp_type type;
    int64_t heads; /* 0: not given */
    const char *in;
    const char *out; /* only for CDDPI_CONVERT_WRITE */
};

/** Read the command line, and move its options after its other words. Error texts are complete
 *  sentences for the user.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddpi_convert_options_parse(int argc, char **argv,
                                                     struct cddpi_convert_options *out);

void cddpi_convert_options_help(FILE *to);

#endif
