/* fake_cublaslt_count.c - counts how often the fake cuBLASLt's heuristics are asked: in this
 * process, and by a line for each in the file $CDDP_FAKE_CUBLASLT_CALLS. */
#include "fake_cuda/fake_cublaslt.h"
#include "fake_cuda/fake_matmul.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic uint64_t asked;

__attribute__((visibility("default"))) uint64_t fake_cublaslt_asked(void)
{
    return asked;
}

void fake_cublaslt_count(const struct fake_matmul *job, int wanted)
{
    const char *path = getenv("CDDP_FAKE_CUBLASLT_CALLS");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    char line[128];
    int length = snprintf(line, sizeof line, "%llu x %llu x %llu: %d\n", (unsigned long long)job->m,
                          (unsigned long long)job->n, (unsigned long long)job->k, wanted);

    asked++;
    if (fd >= 0) {
        (void)!write(fd, line, (size_t)length);
        close(fd);
    }
}
