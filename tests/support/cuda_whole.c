/* cuda_whole.c - compares kernels, at the sizes and with the options of the examples, with float32
 * on the same device: how large the difference is, and whether a GPU ran the fast variant. */
#include "support/cuda_whole.h"

bool on_a_card(void)
{
    const char *module = getenv("CDDP_CUDA_MODULE");

    return module == NULL || strstr(module, "emulated") == NULL;
}

size_t whole_cases(size_t count)
{
    return getenv("CDDP_TEST_QUICK") != NULL ? 1 : count;
}

struct listening listen_to_the_log(void)
{
    struct listening l = {tmpfile(), dup(STDERR_FILENO)};

    assert_non_null(l.file);
    fflush(stderr);
    assert_true(l.stderr_was >= 0 && dup2(fileno(l.file), STDERR_FILENO) >= 0);
    return l;
}

void nothing_slower_was_taken(struct listening *l, const char *what)
{
    char line[1024];
    bool slower = false;

    assert_true(dup2(l->stderr_was, STDERR_FILENO) >= 0);
    close(l->stderr_was);
    rewind(l->file);
    while (fgets(line, sizeof line, l->file) != NULL) {
        fputs(line, stderr);
        slower |= strstr(line, "slower kernels") != NULL &&
                  strstr(line, "cannot be opened") == NULL;
    }
    fclose(l->file);
    if (slower) {
        fail_msg("%s: cuDNN did not do it", what);
    }
}

void distance_add(struct distance *d, float got, float want)
{
    d->apart += ((double)got - (double)want) * ((double)got - (double)want);
    d->size += (double)want * (double)want;
}

void distance_is_small(const struct distance *d, const char *what)
{
    double relative = sqrt(d->apart / d->size);

    if (!(relative < WHOLE_RELATIVE)) {
        fail_msg("%s: %.3g from float32, relatively, and %.3g is allowed", what, relative,
                 WHOLE_RELATIVE);
    }
}
