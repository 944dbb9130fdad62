/* rendezvous_news.h - logs which ranks are missing during a long wait, for rendezvous.c. */
#ifndef CDDPI_GROUP_RENDEZVOUS_NEWS_H
#define CDDPI_GROUP_RENDEZVOUS_NEWS_H

#include "group/join/rendezvous.h"

/** While rank 0 waits: log at growing intervals which ranks are missing. */
void cddpi_rendezvous_tell(struct cddpi_rendezvous *rendezvous,
                           const struct cddpi_member_values *values);

/** The same on a rank that waits for rank 0. Once rank 0 has joined, only rank 0 logs; until then,
 * the first rank to ask does. */
void cddpi_rendezvous_tell_for_0(struct cddpi_rendezvous *rendezvous);

#endif
