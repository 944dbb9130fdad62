/* replace_card.h - receives ranks' reports about cards that are ill, and leaves these out when
 * ranks start again (ill_cards.h decides who gets which of the others). */
#ifndef CDDPI_LAUNCHER_REPLACE_CARD_H
#define CDDPI_LAUNCHER_REPLACE_CARD_H

#include "launcher/supervise/job_state.h"

#include <stdbool.h>
#include <stddef.h>

struct cddpi_job;
struct cddpi_nodes;
struct cddpi_supervision;

enum { CDDPI_CARD_TEXT_BYTES = 768 };

/* The name, as its word 0, under which cddp-run only writes which cards it sees. */
#define CDDPI_CARDS_PROGRAM "cddp-cards"

/** Process run->report, a whole CDDPI_REPORT_CARD, which may come from any program. */
void cddpi_supervision_take_card(struct cddpi_supervision *run);

/** The ranks of this machine have ended, with @p outcome: leave out the cards that were reported,
 *  and tell the user what follows. Asks the driver, which may take up to 24 s if it
 *  hangs; nothing else is served meanwhile.
 *  @return how many ranks this machine can start from now on; 0: as many as before; -1: none. */
int cddpi_cards_settle(struct cddpi_nodes *nodes, struct cddpi_generation_outcome *outcome);

/** Whether the ranks of this machine that are about to start can have cards. If not, @p why gets
 *  the reason, a sentence without its full stop. */
bool cddpi_cards_suffice(const struct cddpi_job *job, char why[CDDPI_CARD_TEXT_BYTES]);

#endif
