/* stack.c - owns the stack size of the program and its threads. */
#include "base/stack.h"

#include "base/error.h"

#include <pthread.h>
#include <sys/resource.h>

enum { LEAST_KIB = 256, USUAL_KIB = 8192 };

/* Set the stack size of new threads. Their default is the limit from when the program began. */
static void set_thread_stack(size_t bytes)
{
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes) == 0) {
        if (pthread_attr_setstacksize(&attributes, bytes) == 0) {
            (void)pthread_setattr_default_np(&attributes);
        }
        pthread_attr_destroy(&attributes);
    }
}

cddp_status cddpi_stack_ensure(void)
{
    const rlim_t least = (rlim_t)LEAST_KIB << 10;
    const rlim_t usual = (rlim_t)USUAL_KIB << 10;
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= least) {
        return CDDP_OK;
    }
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > usual ? usual
                                                                               : limit.rlim_max;
    if (limit.rlim_cur < least) {
        return cddpi_fail(
            CDDP_ERR_UNAVAILABLE,
            "the stack may have %llu KiB only (ulimit -s): at least %d KiB are needed",
            (unsigned long long)limit.rlim_cur >> 10, LEAST_KIB);
    }
    if (setrlimit(RLIMIT_STACK, &limit) == 0) {
        set_thread_stack((size_t)limit.rlim_cur);
    }
    return CDDP_OK;
}
