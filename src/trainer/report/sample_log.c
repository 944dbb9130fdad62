/* sample_log.c - owns the file that lists the samples this rank took. */
#include "report/sample_log.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct cddpi_sample_log {
    FILE *file;
    uint64_t *samples; /* of the current step */
    size_t count, most;
};

cddp_status cddpi_sample_log_open(const char *base, int rank, size_t most,
                                  struct cddpi_sample_log **out)
{
    struct cddpi_sample_log *log = cddpi_zalloc(sizeof *log);
    char *path = cddpi_format("%s.%d", base, rank);
    uint64_t *samples = cddpi_zalloc_array(most, sizeof *samples);
    FILE *file = NULL;
    cddp_status status;

    if (log == NULL || path == NULL || samples == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "train.sample_log: no memory");
        goto fail;
    }
    status = cddpi_file_stream(path, "a", &file);
    if (status != CDDP_OK) {
        (void)cddpi_fail_prefix(status, "train.sample_log");
        goto fail;
    }
    cddpi_free(path);
    *log = (struct cddpi_sample_log){.file = file, .samples = samples, .most = most};
    *out = log;
    return CDDP_OK;

fail:
    cddpi_free(path);
    cddpi_free(samples);
    cddpi_free(log);
    return status;
}

void cddpi_sample_log_close(struct cddpi_sample_log *log)
{
    if (log == NULL) {
        return;
    }
    fclose(log->file);
    cddpi_free(log->samples);
    cddpi_free(log);
}

void cddpi_sample_log_take(struct cddpi_sample_log *log, const uint64_t *samples, size_t count)
{
    if (log != NULL) {
        assert(count <= log->most - log->count);
        memcpy(log->samples + log->count, samples, count * sizeof *samples);
        log->count += count;
    }
}

void cddpi_sample_log_end_step(struct cddpi_sample_log *log, uint64_t step, uint64_t epoch)
{
    if (log == NULL) {
        return;
    }
    fprintf(log->file, "%llu %llu", (unsigned long long)step, (unsigned long long)epoch);
    for (size_t i = 0; i < log->count; i++) {
        fprintf(log->file, " %llu", (unsigned long long)log->samples[i]);
    }
    fputc('\n', log->file);
    (void)fflush(log->file);
    log->count = 0;
}
