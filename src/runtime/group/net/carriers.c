/* carriers.c - owns the list of carriers; opens the MPI module. */
#include "group/net/carriers.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/module_loader.h"
#include "group/net/mpi_module.h"
#include "store/auth.h"

#include <string.h>

cddp_status cddpi_mpi_module_open(const struct cddpi_mpi_module **out)
{
    static struct cddpi_mpi_host host = {.agree = cddpi_agree_by};
    const struct cddpi_mpi_module *module;
    const void *table;
    cddp_status status = cddpi_module_file_open(&cddpi_mpi_module_file, &table);

    if (status == CDDP_OK) {
        module = table;
        host.base = cddpi_module_host(); /* the same at every call */
        module->use(&host);
        *out = module;
    }
    return status;
}

/* Get the module's carrier; NULL: the error text has the reason. */
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
static const struct carriers_row {
    const char *name;
    const struct cddpi_carrier_ops *(*find)(void);
    bool encrypts; /* with CDDP_ENCRYPT=1 */
} rows[] = {{"mpi", find_mpi, false}, {"tcp", find_tcp, true}};

enum { ROWS = sizeof rows / sizeof *rows };

static const struct cddpi_carrier_ops *probe(const struct carriers_row *row)
{
    const struct cddpi_carrier_ops *carrier = row->find();

    return carrier != NULL && carrier->probe() == CDDP_OK ? carrier : NULL;
}

/* The same if the user named no carrier: if encryption is requested, carriers without it are
 * rejected. */
static const struct cddpi_carrier_ops *probe_unnamed(const struct carriers_row *row)
{
    bool encrypts;

    if (cddpi_encryption_wanted(&encrypts) != CDDP_OK) {
        return NULL;
    }
    if (encrypts && !row->encrypts) {
        (void)cddpi_fail(
            CDDP_ERR_UNAVAILABLE,
            "it does not encrypt, and CDDP_ENCRYPT=1 (CDDP_CARRIER=%s takes it all the "
            "same)",
            row->name);
        return NULL;
    }
    return probe(row);
}

void cddpi_carrier_warn(const struct cddpi_carrier_ops *carrier)
{
    const struct carriers_row *row = rows;
    bool encrypts;

    while (strcmp(row->name, carrier->name) != 0) {
        row++;
    }
    if (!row->encrypts && cddpi_encryption_wanted(&encrypts) == CDDP_OK && encrypts) {
        cddpi_log(CDDPI_LOG_WARN,
                  "carrier %s: cddp does not encrypt what goes between hosts by it, though "
                  "CDDP_ENCRYPT=1, since CDDP_CARRIER names it",
                  row->name);
    }
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
        const struct cddpi_carrier_ops *carrier = probe_unnamed(&rows[i]);

        if (carrier != NULL) {
            return carrier;
        }
        cddpi_log(CDDPI_LOG_DEBUG, "carrier %s: %s", rows[i].name, cddp_last_error());
    }
    return NULL;
}

/* Find the carriers that this rank can use, as a bit mask of rows. */
static cddp_status find_usable(const struct cddpi_carrier_ops *found[ROWS], uint32_t *out)
{
    const char *name = cddpi_env(CDDPI_ENV_CARRIER);
    uint32_t usable = 0;
    bool encrypts;
    cddp_status status = cddpi_encryption_wanted(&encrypts);

    if (status != CDDP_OK) {
        return status;
    }
    if (name != NULL && named(name) == NULL) {
        return (cddp_status)cddpi_last_failure()->status;
    }
    for (int i = 0; i < ROWS; i++) {
        found[i] = name == NULL                      ? probe_unnamed(&rows[i])
                   : strcmp(rows[i].name, name) == 0 ? probe(&rows[i])
                                                     : NULL;
        usable |= found[i] != NULL ? 1u << i : 0;
        if (found[i] == NULL && name == NULL) {
            cddpi_log(CDDPI_LOG_DEBUG, "carrier %s: %s", rows[i].name, cddp_last_error());
        }
    }
    *out = usable;
    return CDDP_OK;
}

cddp_status cddpi_carrier_agree(const struct cddpi_exchange *exchange,
                                const struct cddpi_carrier_ops **out)
{
    const struct cddpi_carrier_ops *found[ROWS];
    uint32_t own = 0;
    uint32_t common = ~0u;
    uint32_t *all = cddpi_zalloc_array((size_t)exchange->world_size, sizeof *all);
    cddp_status status = all != NULL ? find_usable(found, &own)
                                     : cddpi_fail(CDDP_ERR_NO_MEMORY, "net: no memory for %d ranks",
                                                  exchange->world_size);

    status = cddpi_agree_and_gather_by(exchange, status, &own, sizeof own, all);
    for (int rank = 0; status == CDDP_OK && rank < exchange->world_size; rank++) {
        common &= all[rank];
    }
    cddpi_free(all);
    if (status != CDDP_OK) {
        return status;
    }
    for (int i = 0; i < ROWS; i++) {
        if ((common & 1u << i) != 0) {
            *out = found[i];
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "net: CDDP_CARRIER is not the same on all ranks");
}
