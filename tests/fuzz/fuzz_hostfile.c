/* fuzz_hostfile.c - a list of hosts, as a file or, after a first byte with bit 0 set, in the syntax
 * of --hosts. What is accepted becomes part of ssh's command line. */
#include "fuzz/fuzz.h"
#include "launcher/hosts/host_list.h"
#include "launcher/run_options.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct cddpi_hosts *hosts)
{
    fuzz_check(hosts->count > 0 && hosts->count <= CDDPI_MAX_NODES, "number of hosts");
    for (int i = 0; i < hosts->count; i++) {
        const struct cddpi_host *host = &hosts->hosts[i];

        fuzz_check(memchr(host->name, '\0', sizeof host->name) != NULL, "a name without end");
        fuzz_check(host->name[0] != '\0' && host->name[0] != '-', "a name that is an option");
        fuzz_check(strpbrk(host->name, " \t\r\n;|&$`'\"\\<>()#*?") == NULL, "a name for the shell");
        fuzz_check(host->slots >= 0 && host->slots <= CDDPI_MAX_RANKS, "number of ranks");
        for (int k = 0; k < i; k++) {
            fuzz_check(strcmp(host->name, hosts->hosts[k].name) != 0, "a host stands there twice");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_hosts hosts;
    cddp_status status;

    if (size == 0) {
        return 0;
    }
    if ((data[0] & 1) != 0) {
        char *list = malloc(size);

        fuzz_check(list != NULL, "no memory");
        memcpy(list, data + 1, size - 1);
        list[size - 1] = '\0';
        status = cddpi_hosts_parse_list(list, &hosts);
        free(list);
    } else {
        status = cddpi_hosts_parse_text((const char *)data + 1, size - 1, "hosts", &hosts);
    }
    if (status == CDDP_OK) {
        check(&hosts);
        cddpi_hosts_fini(&hosts);
    }
    return 0;
}
