/* at_exit.h - handles groups that are open when the program exits. */
#ifndef CDDPI_GROUP_AT_EXIT_H
#define CDDPI_GROUP_AT_EXIT_H

#include <cddp/group.h>

void cddpi_group_note_open(cddp_group *group);
void cddpi_group_note_closed(cddp_group *group);

#endif
