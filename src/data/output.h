/* output.h - a file that appears under its name only when it is complete: written beside, flushed,
 * then renamed. */
#ifndef CDDPI_DATA_OUTPUT_H
#define CDDPI_DATA_OUTPUT_H

#include <cddp/status.h>

/* Zeroed: closed. */
struct cddpi_output {
    char *path;   /* as it will be called; NULL: closed */
    char *beside; /* as it is called until then */
    unsigned char *buffer;
    size_t used;
    uint64_t bytes; /* put so far */
    int fd;
};

/** @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY; texts, here and below, name the file. */
CDDP_CHECKED cddp_status cddpi_output_open(const char *path, struct cddpi_output *out);
CDDP_CHECKED cddp_status cddpi_output_put(struct cddpi_output *output, const void *data,
                                          size_t bytes);

/** Write over the beginning of the file, which has that many bytes. */
CDDP_CHECKED cddp_status cddpi_output_put_head(struct cddpi_output *output, const void *data,
                                               size_t bytes);

/** Give the complete file its name, @p path or, if that is NULL, the one it was opened with. After
 *  a failure there is no file of that name, or still the old one. Closes in any case. */
CDDP_CHECKED cddp_status cddpi_output_finish(struct cddpi_output *output, const char *path);

/** Remove what was written; accepts a closed one. */
void cddpi_output_discard(struct cddpi_output *output);

#endif
