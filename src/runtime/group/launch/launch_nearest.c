/* launch_nearest.c - decides which of two launchers is inside the other: by their numbers, and by
 * which process set which variables on the way down to this process. */
#include "group/launch/launch_nearest.h"

#include "group/launch/launch_daemon.h"
#include "group/launch/launch_variable.h"

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
                cddpi_launch_is_starter(&ancestors->list[level], claim->by)) {
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
