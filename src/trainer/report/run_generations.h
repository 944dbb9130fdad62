/* run_generations.h - the generations of a job in the metrics of its run. Each line of kind "run"
 * begins one: it has the number of ranks, and, if a launcher has started the job again, why. */
#ifndef CDDPI_TRAIN_REPORT_RUN_GENERATIONS_H
#define CDDPI_TRAIN_REPORT_RUN_GENERATIONS_H

#include <jansson.h>

/** The generation of this process, as its launcher counts: 0 is the first. */
int cddpi_generation(void);

/** Add "generation" to @p line, of kind "run", and "reason" if the launcher has told why it began:
 *  the first 200 bytes, as a terminal may show them. */
void cddpi_generation_describe(json_t *line);

/** Append what a page shows of the generation that @p line begins to @p list: step, ranks,
 *  generation and reason; the last two are null if unknown. Of a line without a step or ranks,
 *  nothing. A very long list loses its oldest. */
void cddpi_generation_collect(const json_t *line, json_t *list);

#endif
