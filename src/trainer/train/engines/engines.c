/* engines.c - owns the list of engines, and chooses one. */
#include "train/engines/engine.h"

const struct cddpi_engine *cddpi_engine_of(const struct cddpi_config *config)
{
    /* The last row fits every configuration. */
    static const struct cddpi_engine *const rows[] = {&cddpi_engine_replicated,
                                                      &cddpi_engine_stages, &cddpi_engine_placed,
                                                      &cddpi_engine_gan, &cddpi_engine_single};
    size_t i = 0;

    while (rows[i]->fits != NULL && !rows[i]->fits(config)) {
        i++;
    }
    return rows[i];
}
