/* carriers.c - owns the list of carriers, and the MPI module's handle. */
#include "group/net/carriers.h"

#include "base/env.h"
#include "base/log.h"
#include "base/module_loader.h"
#include "group/net/mpi_module.h"

#include <string.h>

static struct cddpi_module_file file = {
    .title = "MPI",
    .file = "libcddp-mpi.so",
    .at = CDDPI_ENV_MPI_MODULE,
    .symbol = CDDPI_MPI_MODULE_SYMBOL,
    .built_in = "group/net/mpi/",
    .build_with = "-Dmpi=enabled",
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

cddp_status cddpi_mpi_module_open(const struct cddpi_mpi_module **out)
{
    static struct cddpi_mpi_host host = {.agree = cddpi_agree_by};
    const struct cddpi_mpi_module *module;
    const void *table;
    cddp_status status = cddpi_module_file_open(&file, &table);

    if (status == CDDP_OK) {
        module = table;
        host.base = cddpi_module_host(); /* always the same */
        module->use(&host);
        *out = module;
    }
    return status;
}

/* The module's carrier, or NULL with the reason. */
static const struct cddpi_carrier_ops *find_mpi(void)
{
    const struct cddpi_mpi_module *module;

    return cddpi_mpi_module_open(&module) == CDDP_OK ? module->carrier : NULL;
}

static const struct cddpi_carrier_ops *find_tcp(void)
{
    return &cddpi_tcp_carrier;
}

/* Best first. */
static const struct row {
    const char *name;
    const struct cddpi_carrier_ops *(*find)(void);
} rows[] = {{"mpi", find_mpi}, {"tcp", find_tcp}};

enum { ROWS = sizeof rows / sizeof *rows };

static const struct cddpi_carrier_ops *probe(const struct row *row)
{
    const struct cddpi_carrier_ops *carrier = row->find();

    return carrier != NULL && carrier->probe() == CDDP_OK ? carrier : NULL;
}

static const struct cddpi_carrier_ops *named(const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            const struct cddpi_carrier_ops *carrier = probe(&rows[i]);

            if (carrier == NULL) {
                (void)cddpi_fail_prefix((cddp_status)cddpi_last_failure()->status, "carrier %s",
                                        name);
            }
            return carrier;
        }
    }
    (void)cddpi_fail(CDDP_ERR_ARGUMENT, "there is no carrier %s: choose tcp or mpi", name);
    return NULL;
}

const struct cddpi_carrier_ops *cddpi_carrier_choose(const char *name)
{
    if (name == NULL) {
        name = cddpi_env(CDDPI_ENV_CARRIER);
    }
    if (name != NULL) {
        return named(name);
    }
    for (int i = 0; i < ROWS; i++) {
        const struct cddpi_carrier_ops *carrier = probe(&rows[i]);

        if (carrier != NULL) {
            return carrier;
        }
        cddpi_log(CDDPI_LOG_DEBUG, "carrier %s: %s", rows[i].name, cddp_last_error());
    }
    return NULL;
}
