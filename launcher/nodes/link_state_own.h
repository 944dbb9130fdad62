/* link_state_own.h - what the parts of the link's state machine call of each other. Private to
 * link_state.c, link_teller.c and link_hearer.c. */
#ifndef CDDPI_LAUNCHER_LINK_STATE_OWN_H
#define CDDPI_LAUNCHER_LINK_STATE_OWN_H

#include "launcher/nodes/link_state.h"

/* link_teller.c */
void cddpi_link_event_key(const struct cddpi_link_state *link, int64_t number,
                          char out[CDDPI_NODE_KEY_BYTES]);
void cddpi_teller_next(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       struct cddpi_link_request *out);
/** Returns false if the store is lost; out_event->text says why. */
bool cddpi_teller_take(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       const struct cddpi_link_answer *answer, struct cddpi_node_event *out_event);
/** The current request was not answered: repeat it. */
void cddpi_teller_repeat(struct cddpi_link_teller *teller);
void cddpi_teller_fini(struct cddpi_link_teller *teller);

/* link_hearer.c */
/** Watch @p node from now on, unless it is known or is none that this node watches. Returns false
 *  without memory. */
bool cddpi_hearer_watch(struct cddpi_link_state *link, int node);
void cddpi_hearer_next(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       struct cddpi_link_request *out);
/** Like cddpi_teller_take(). */
bool cddpi_hearer_take(struct cddpi_link_state *link, const struct cddpi_link_now *now,
                       const struct cddpi_link_answer *answer, struct cddpi_node_event *out_event);

#endif
