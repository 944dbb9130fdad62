/* carriers.c - owns the list of carriers; opens the MPI module. */
#include "group/net/carrier.h"

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

    CDDPI_TRY(cddpi_module_file_open(&cddpi_mpi_module_file, &table));
    module = table;
    host.base = cddpi_module_host(); /* the same at every call */
    module->use(&host);
    *out = module;
    return CDDP_OK;
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

/* The carrier of @p row, if it can serve; NULL: the error text has the reason. @p must_encrypt:
 * carriers that do not encrypt are rejected. */
static const struct cddpi_carrier_ops *probe(const struct carriers_row *row, bool must_encrypt)
{
    const struct cddpi_carrier_ops *carrier;

    if (must_encrypt && !row->encrypts) {
        (void)cddpi_fail(
            CDDP_ERR_UNAVAILABLE,
            "it does not encrypt, and CDDP_ENCRYPT=1 (CDDP_CARRIER=%s takes it all the "
            "same)",
            row->name);
        return NULL;
    }
    carrier = row->find();
    return carrier != NULL && carrier->probe() == CDDP_OK ? carrier : NULL;
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

/* Find the carriers that this rank can use, as a bit mask of rows. @p name: only this one, if it
 * can serve; NULL: the one that $CDDP_CARRIER names, else all. */
static cddp_status find_usable(const char *name, const struct cddpi_carrier_ops *found[ROWS],
                               uint32_t *out)
{
    bool is_known = false;
    bool encrypts;

    *out = 0;
    CDDPI_TRY(cddpi_encryption_wanted(&encrypts));
    if (name == NULL) {
        name = cddpi_env(CDDPI_ENV_CARRIER);
    }
    for (int i = 0; i < ROWS; i++) {
        found[i] = NULL;
        if (name != NULL && strcmp(rows[i].name, name) != 0) {
            continue;
        }
        is_known = true;
        found[i] = probe(&rows[i], encrypts && name == NULL);
        *out |= found[i] != NULL ? 1u << i : 0;
        if (found[i] == NULL && name != NULL) {
            return cddpi_fail_prefix((cddp_status)cddpi_last_failure()->status, "carrier %s", name);
        }
        if (found[i] == NULL) {
            cddpi_log(CDDPI_LOG_DEBUG, "carrier %s: %s", rows[i].name, cddp_last_error());
        }
    }
    return is_known
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "there is no carrier %s: choose tcp or mpi", name);
}

/* The first of @p usable; NULL: none. */
static const struct cddpi_carrier_ops *best_of(const struct cddpi_carrier_ops *const found[ROWS],
                                               uint32_t usable)
{
    for (int i = 0; i < ROWS; i++) {
        if ((usable & 1u << i) != 0) {
            return found[i];
        }
    }
    return NULL;
}

const struct cddpi_carrier_ops *cddpi_carrier_choose(const char *name)
{
    const struct cddpi_carrier_ops *found[ROWS];
    uint32_t usable;

    return find_usable(name, found, &usable) == CDDP_OK ? best_of(found, usable) : NULL;
}

cddp_status cddpi_carrier_agree(const struct cddpi_exchange *exchange,
                                const struct cddpi_carrier_ops **out)
{
    const struct cddpi_carrier_ops *found[ROWS];
    uint32_t own = 0;
    uint32_t common = ~0u;
    void *all;
    cddp_status status = find_usable(NULL, found, &own);

    CDDPI_TRY(cddpi_agree_and_gather_by(exchange, status, &own, sizeof own, &all));
    for (int rank = 0; rank < exchange->world_size; rank++) {
        common &= ((const uint32_t *)all)[rank];
    }
    cddpi_free(all);
    *out = best_of(found, common);
    return *out != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "net: CDDP_CARRIER is not the same on all ranks");
}
