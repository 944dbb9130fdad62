/* rounds.c - owns the rounds of ranks that wait for others that read data. */
#include "data/rounds.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/join/group_agree.h"

/* @p busy: whether this rank is; replaced by whether any is. */
static cddp_status meet(struct cddpi_rounds *rounds, cddp_status mine, uint8_t *busy)
{
    cddp_status status = cddpi_agree(rounds->group, mine);

    if (status == CDDP_OK) {
        status = cddp_all_reduce(rounds->group, busy, busy, 1, CDDP_U8, CDDP_OP_MAX, NULL);
    }
    rounds->failed = status != CDDP_OK;
    rounds->next_ns = cddpi_now_ns() + CDDPI_ROUND_NS;
    return status;
}

cddp_status cddpi_rounds_tick(struct cddpi_rounds *rounds)
{
    uint8_t busy = 1;

    return rounds == NULL || cddpi_now_ns() < rounds->next_ns ? CDDP_OK
                                                              : meet(rounds, CDDP_OK, &busy);
}

cddp_status cddpi_rounds_end(struct cddpi_rounds *rounds, cddp_status mine)
{
    uint8_t busy = 1;

    if (rounds->failed) {
        return mine;
    }
    while (busy) {
        busy = 0;
        CDDPI_TRY(meet(rounds, mine, &busy));
    }
    return CDDP_OK;
}
