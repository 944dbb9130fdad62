/* moment.c - reads the clock together with what was waited for until then. */
#include "train/moment.h"

#include "base/clock.h"
#include "ddp/copies.h"

struct cddpi_moment cddpi_moment_now(const struct cddpi_trainer *trainer)
{
    struct cddpi_moment moment = {.now_ns = cddpi_now_ns()};

    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        moment.exposed_ns += cddpi_ddp_exposed_ns(each->ddp);
    }
    return moment;
}

int64_t cddpi_moment_work_ns(const struct cddpi_moment *begin, const struct cddpi_moment *end)
{
    return end->now_ns - begin->now_ns - (int64_t)(end->exposed_ns - begin->exposed_ns);
}
