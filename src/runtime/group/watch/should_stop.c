/* should_stop.c - owns the ranks' common answer to whether a signal has requested one of them to
 * end.
 */
#include "base/error.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/watch/stop.h"

#include <cddp/exchange.h>

static cddp_status ask_all(cddp_group *group, uint8_t *asked)
{
    CDDPI_ENTER_GROUP(group, "should_stop");
    return cddp_all_reduce(group, asked, asked, 1, CDDP_U8, CDDP_OP_MAX, NULL);
}

cddp_status cddp_should_stop(cddp_group *group, bool *out_stop)
{
    uint8_t asked = cddpi_stop_requested();

    if (out_stop == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "should_stop: out is NULL");
    }
    if (group != NULL) {
        CDDPI_TRY(ask_all(group, &asked));
    }
    *out_stop = asked != 0;
    return CDDP_OK;
}
