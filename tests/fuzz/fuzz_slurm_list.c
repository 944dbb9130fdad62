/* fuzz_slurm_list.c - Slurm's compressed lists. Each input is used as both: a list of hosts, of
 * which each (up to a few) must have a name, and the numbers of ranks per node. */
#include "fuzz/fuzz.h"
#include "group/launch/slurm_list.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT = 20 };

static void use_hosts(const char *text)
{
    char name[CDDPI_HOST_NAME_BYTES];
    size_t count = cddpi_slurm_hosts(text);

    fuzz_check(count <= CDDPI_SLURM_LIST_MAX, "too many hosts");
    fuzz_check(!cddpi_slurm_host(text, count, name), "a host behind the last one");
    for (size_t i = 0; i < count && i < LOOKED_AT; i++) {
        size_t index = i % 2 == 0 ? i : count - i;

        if (cddpi_slurm_host(text, index, name)) { /* not if it is too long */
            fuzz_check(name[0] != '\0' && strlen(name) < sizeof name, "no name");
            fuzz_check(strpbrk(name, "[],") == NULL, "a name that is a list");
        } else {
            fuzz_check(strlen(text) >= CDDPI_HOST_NAME_BYTES, "a host without a name");
        }
    }
}

static void use_tasks(const char *text)
{
    struct cddpi_slurm_tasks first;
    struct cddpi_slurm_tasks last;

    if (cddpi_slurm_tasks(text, 0, &first)) {
        fuzz_check(first.nodes > 0 && first.total >= first.nodes && first.local_size > 0, "tasks");
        fuzz_check(first.total <= CDDPI_SLURM_LIST_MAX, "too many ranks");
        fuzz_check(cddpi_slurm_tasks(text, first.nodes - 1, &last) && last.total == first.total,
                   "the last node");
        fuzz_check(!cddpi_slurm_tasks(text, first.nodes, &last), "a node behind the last one");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    fuzz_check(text != NULL, "no memory");
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    use_hosts(text);
    use_tasks(text);
    free(text);
    return 0;
}
