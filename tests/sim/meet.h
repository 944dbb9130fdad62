/* meet.h - the nodes of a job that a head has started, until they have met. Simulated, since the
 * meeting is no state machine: a node writes its record, and waits for the plan of the nodes. */
#ifndef CDDPI_TESTS_SIM_MEET_H
#define CDDPI_TESTS_SIM_MEET_H

#include "tests/sim/sim.h"

/** cddp-run is started on @p host, as node @p number. Returns false if there is no room for it. */
bool sim_meet_come(int host, int number);
/** Whether the record of node @p number is in the store. */
bool sim_meet_has_come(int number);
/** Node @p number is one of those that meet. */
void sim_meet_add(int number, int host);
/** Look whether @p node may begin. */
void sim_meet_look(struct sim_node *node);
/** The input of @p node ends: so does it. */
void sim_meet_input_ends(struct sim_node *node);

#endif
