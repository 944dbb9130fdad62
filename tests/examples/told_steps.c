/* told_steps.c - linked into an example before the library's functions: tells a test which steps
 * this rank begins, and where it goes on. */
#include "examples/told_steps.h"

#include <cddp/recovery.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

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

static struct told_steps *told_steps(void)
{
    static struct told_steps nobody = {.dies = -1};
    static struct told_steps *told;
    const char *path = getenv(TOLD_STEPS);

    if (told == NULL && path == NULL) {
        told = &nobody;
    } else if (told == NULL) {
        int fd = open(path, O_RDWR | O_CLOEXEC);

        told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (told == MAP_FAILED) {
            perror(path);
            abort();
        }
        close(fd);
    }
    return told;
}

static int number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text != NULL ? atoi(text) : -1;
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    uint64_t now = atomic_load(value);

    while (now < to && !atomic_compare_exchange_weak(value, &now, to)) {
    }
}

/* This rank's first step. No rank gets beyond its own before all have begun, so `most` is still
 * what earlier generations have left. */
static void tell_first(struct told_steps *told, uint64_t most, uint64_t step,
                       cddp_recovery_action action)
{
    if (most > step) {
        raise_to(&told->lost, most - step);
    }
    if (number_of("CDDP_RANK") == 0) {
        atomic_store(&told->restored, action == CDDP_RECOVERY_REPLACED ? step : 0);
        atomic_store(&told->ranks, number_of("CDDP_WORLD_SIZE"));
        atomic_fetch_add(&told->begun, 1);
    }
}

EXPORT cddp_status cddp_recovery_step(cddp_recovery *recovery, uint64_t *step,
                                      cddp_recovery_action *out_action)
{
    static bool is_begun;
    struct told_steps *told = told_steps();
    uint64_t most = atomic_load(&told->most);
    cddp_status (*real)(cddp_recovery *, uint64_t *, cddp_recovery_action *);
    cddp_status status;

    find("cddp_recovery_step", &real);
    raise_to(&told->most, *step);
    status = real(recovery, step, out_action);
    if (status != CDDP_OK) {
        return status;
    }
    if (!is_begun) {
        tell_first(told, most, *step, *out_action);
        is_begun = true;
    }
    if (*out_action == CDDP_RECOVERY_STOP) {
        atomic_store(&told->stopped, *step);
    }
    return CDDP_OK;
}

EXPORT void cddp_recovery_destroy(cddp_recovery *recovery)
{
    int rank = number_of("CDDP_RANK");
    void (*real)(cddp_recovery *);

    find("cddp_recovery_destroy", &real);
    real(recovery);
    if (rank >= 0 && atomic_compare_exchange_strong(&told_steps()->dies, &rank, -1)) {
        raise(SIGKILL);
    }
}
