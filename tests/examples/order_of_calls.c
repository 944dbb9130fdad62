/* order_of_calls.c - linked into an example before the library's functions: prints, for each
 * backward, how many buckets had begun before its last gradient was ready. That shows the order of
 * calls, not times: a hook, which does the default communication, is called when a bucket
 * begins. */
#include <cddp/ddp.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static size_t ready;       /* gradients of this backward */
static size_t begun;       /* buckets of this backward */
static size_t begun_early; /* of those: before its last gradient that was ready so far */

/* The library's own. POSIX lets a pointer to data be one to a function, C does not. */
static void find(const char *name, void *out)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        fprintf(stderr, "there is no %s\n", name);
        abort();
    }
    memcpy(out, &found, sizeof found);
}

static cddp_status count_bucket(void *state, const cddp_bucket *bucket, int stage,
                                cddp_work **out_work)
{
    begun += stage == 0;
    return cddp_hook_identity(state, bucket, stage, out_work);
}

EXPORT cddp_status cddp_ddp_create(cddp_group *group, const cddp_param *params, size_t param_count,
                                   const cddp_param *buffers, size_t buffer_count,
                                   const cddp_ddp_options *options, cddp_ddp **out)
{
    cddp_status (*real)(cddp_group *, const cddp_param *, size_t, const cddp_param *, size_t,
                        const cddp_ddp_options *, cddp_ddp **);
    cddp_ddp_options how = *options;

    find("cddp_ddp_create", &real);
    how.hook = count_bucket;
    return real(group, params, param_count, buffers, buffer_count, &how, out);
}

EXPORT cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index)
{
    cddp_status (*real)(cddp_ddp *, size_t);

    find("cddp_ddp_grad_ready", &real);
    ready++;
    begun_early = begun;
    return real(ddp, index);
}

EXPORT cddp_status cddp_ddp_wait(cddp_ddp *ddp)
{
    cddp_status (*real)(cddp_ddp *);
    cddp_status status;

    find("cddp_ddp_wait", &real);
    status = real(ddp);
    printf("%zu of %zu buckets began before gradient %zu\n", begun_early, begun, ready);
    ready = begun = begun_early = 0;
    return status;
}
