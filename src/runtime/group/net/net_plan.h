/* net_plan.h - owns the schedules of a group, and the data that each piece needs to follow one. */
#ifndef CDDPI_GROUP_NET_PLAN_H
#define CDDPI_GROUP_NET_PLAN_H

#include "group/net/net_schedule.h"

struct net_backend;
struct net_collective;

/* A schedule, with the data that each piece needs to follow it. */
struct net_plan {
    struct cddpi_net_schedule schedule;
    int *slot_begin, *slot_end; /* by slot: the range of shares that are received or summed there */
    bool is_made;
};

/** Create @p plan for @p algorithm, unless it exists. If @p root is a host's number, the result
 *  goes only to that host, whatever the algorithm. False: no memory. */
bool cddpi_net_plan_make(struct net_backend *net, enum cddpi_algorithm algorithm, int root,
                         struct net_plan *plan);
void cddpi_net_plan_fini(struct net_plan *plan);
/** The plan of @p collective, which is an all_reduce or a reduce. */
const struct net_plan *cddpi_net_plan_of(const struct net_backend *net,
                                         const struct net_collective *collective);
/** Whether all ranks of the step's node have weight 0, so that nothing is sent. */
bool cddpi_net_adds_nothing(const struct net_backend *net, const struct net_collective *collective,
                            const struct cddpi_net_step *step);

#endif
