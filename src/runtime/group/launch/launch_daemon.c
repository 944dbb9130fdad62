/* launch_daemon.c - finds launchers' processes among this process's ancestors, and Open MPI's
 * server; decides which of two launchers is inside the other: by their numbers, and by which
 * process set which variables on the way down to this process. */
#include "group/launch/launch_daemon.h"

#include "base/interface.h"
#include "base/number.h"
#include "group/launch/launch_variable.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 1000, NAME_BYTES = 15 /* of a process name, which the kernel cuts off */ };

/* Launchers that are Python scripts are recognised by their command lines. */
static const char *const scripts[] = {"torch.distributed", "torchrun",  "torch/distributed",
                                      "accelerate",        "deepspeed", "lightning"};

static bool is_python_launcher(const struct cddpi_ancestor *ancestor)
{
    bool is_launcher = false;

    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        is_launcher = is_launcher || (strncmp(ancestor->process.name, "python", 6) == 0 &&
                                      cddpi_ancestor_says(ancestor, scripts[i]));
    }
    return is_launcher;
}

/* Whether @p ancestor is a process through which @p by starts ranks. */
static bool is_starter(const struct cddpi_ancestor *ancestor, enum cddpi_launcher by)
{
    if (by == CDDPI_BY_TORCHRUN && is_python_launcher(ancestor)) {
        return true;
    }
    for (const char *const *name = cddpi_launcher_starters(by); *name != NULL; name++) {
        if (strncmp(ancestor->process.name, *name, NAME_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

int cddpi_launch_starter(const struct cddpi_ancestors *ancestors, enum cddpi_launcher by)
{
    for (int i = 1; i < ancestors->count; i++) {
        if (is_starter(&ancestors->list[i], by)) {
            return i;
        }
    }
    return -1;
}

/* The loopback port in "3238.0;tcp4://127.0.0.1:57039"; 0: no port. */
static int server_port(void)
{
    static const char *const names[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                        "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"};
    int64_t port = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names && port == 0; i++) {
        const char *value = cddpi_launch_variable(names[i]);
        const char *at = value != NULL ? strstr(value, "tcp4://127.") : NULL;
        const char *colon = at != NULL ? strchr(at + strlen("tcp4://"), ':') : NULL;
        char digits[8];

        if (colon != NULL) {
            snprintf(digits, sizeof digits, "%.*s", (int)strspn(colon + 1, "0123456789"),
                     colon + 1);
            (void)cddpi_parse_integer(digits, 1, 65535, &port);
        }
    }
    return (int)port;
}

/* Whether a process listens on @p port of this machine, or this is not known. */
static bool answers(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    return cddpi_address_probe((const struct sockaddr *)&address, sizeof address, ANSWER_MS) !=
           ECONNREFUSED;
}

void cddpi_launch_look_for_daemon(const struct cddpi_ancestors *ancestors,
                                  struct cddpi_claim *claim)
{
    const char *folder = cddpi_launch_variable("PMIX_SERVER_TMPDIR");
    int port = server_port();

    if (cddpi_launch_starter(ancestors, CDDPI_BY_OPEN_MPI) > 0) {
        claim->is_alive = true;
    } else if (port != 0) {
        claim->is_alive = answers(port);
        claim->is_stale = !claim->is_alive;
    } else {
        /* mpirun sets one of these variables for every rank, and removes the folder at the end of
         * the job */
        folder = folder != NULL ? folder : cddpi_launch_variable("OMPI_FILE_LOCATION");
        claim->is_stale = folder == NULL || access(folder, F_OK) != 0;
    }
}

/* The number of machines of @p claim's ranks; 0: not given. */
static int nodes_of(const struct cddpi_claim *claim)
{
    if (claim->nodes > 0) {
        return claim->nodes;
    }
    if (claim->local_size == 0) {
        return 0;
    }
    return (claim->size + claim->local_size - 1) / claim->local_size;
}

bool cddpi_claim_is_within(const struct cddpi_claim *inner, const struct cddpi_claim *outer)
{
    bool starts_nodes = outer->is_pod || outer->by == CDDPI_BY_SLURM ||
                        outer->by == CDDPI_BY_FLUX || outer->by == CDDPI_BY_PALS;
    bool starts_ranks = !inner->is_pod && inner->by < CDDPI_BY_FLUX && inner->local_rank >= 0;

    return starts_nodes && starts_ranks && !outer->is_partial && !inner->is_partial &&
           inner->size >= outer->size && inner->size > 1 && outer->local_size <= 1 &&
           nodes_of(inner) == outer->size;
}

/* How a claim's variables appear in the environments from this process upwards. */
static int level_of(const struct cddpi_ancestors *ancestors, const struct cddpi_claim *claim)
{
    const char *names[2] = {claim->rank_name, claim->size_name};
    int level = 0;

    for (; level < ancestors->count; level++) {
        for (int i = 0; i < 2; i++) {
            if (names[i] != NULL && !cddpi_ancestor_has(&ancestors->list[level], names[i],
                                                        cddpi_launch_variable(names[i]))) {
                return level;
            }
        }
    }
    return level;
}

int cddpi_claims_nearest(const struct cddpi_ancestors *ancestors, const struct cddpi_claim *claims,
                         const bool *in, int count)
{
    int least = CDDPI_ANCESTORS + 1;
    int found = -1;
    int ties = 0;
    int named = -1;
    int names = 0;

    for (int i = 0; i < count; i++) {
        const struct cddpi_claim *claim = &claims[i];
        int level = in[i] ? level_of(ancestors, claim) : least + 1;

        if (level < least) {
            least = level;
            found = i;
            ties = names = 0;
            named = -1;
        }
        if (level == least) {
            ties++;
            if (level < ancestors->count && level > 0 &&
                is_starter(&ancestors->list[level], claim->by)) {
                named = i;
                names++;
            }
        }
    }
    if (ties == 1) {
        return found;
    }
    return names == 1 ? named : -1;
}

long cddpi_launch_proxy(enum cddpi_launcher by, char *out_start, size_t bytes)
{
    struct cddpi_ancestors ancestors;
    int found;
    long pid = (long)getppid();

    cddpi_ancestors_read(&ancestors);
    found = cddpi_launch_starter(&ancestors, by);
    if (found < 0 || ancestors.list[found].pid == 1) {
        found = 1; /* the parent */
    }
    if (found < ancestors.count) {
        pid = ancestors.list[found].pid;
        snprintf(out_start, bytes, "%" PRIu64, ancestors.list[found].process.start_time);
    }
    cddpi_ancestors_fini(&ancestors);
    return pid;
}
