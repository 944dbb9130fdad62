/* net_plan.h - the schedules of a group, and what every piece that follows one needs to know. */
#ifndef CDDPI_GROUP_NET_PLAN_H
#define CDDPI_GROUP_NET_PLAN_H

#include "group/net/net_schedule.h"

struct net_backend;
struct net_collective;

/* A schedule, with what every piece that follows it needs to know. */
struct net_plan {
    struct cddpi_net_schedule schedule;
    int *slot_begin, *slot_end; /* by slot: shares that are received or summed there */
    bool is_made;
};

/** Make @p plan by @p algorithm, or, where @p root is a host's number, to that host, unless it is
 *  made already. False: no memory. */
bool cddpi_net_plan_make(struct net_backend *net, enum cddpi_algorithm algorithm, int root,
                         struct net_plan *plan);
void cddpi_net_plan_fini(struct net_plan *plan);
/** The plan that @p collective, an all_reduce or a reduce, follows. */
const struct net_plan *cddpi_net_plan_of(const struct net_backend *net,
                                         const struct net_collective *collective);
/** Whether the weights of all ranks of the step's node are 0: then nothing is sent. */
bool cddpi_net_adds_nothing(const struct net_backend *net, const struct net_collective *collective,
                            const struct cddpi_net_step *step);

#endif
