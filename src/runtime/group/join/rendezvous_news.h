/* rendezvous_news.h - what is said of a long wait, for rendezvous.c. */
#ifndef CDDPI_GROUP_RENDEZVOUS_NEWS_H
#define CDDPI_GROUP_RENDEZVOUS_NEWS_H

#include "group/join/rendezvous.h"

/** Rank 0 waits: log from time to time, at growing intervals, which ranks have not come. */
void cddpi_rendezvous_tell(struct cddpi_rendezvous *rendezvous,
                           const struct cddpi_member_values *values);

/** The same from a rank that waits for rank 0, which speaks for all once it is there: until then
 * the first who asks does. */
void cddpi_rendezvous_tell_for_0(struct cddpi_rendezvous *rendezvous);

#endif
