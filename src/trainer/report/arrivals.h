/* arrivals.h - when the gradients of a step become ready: from that, and what a link carries,
 * scripts compute how much communication other links would expose.
 *
 * A line for each gradient and bucket, and one of the step:
 *   {"gradient": "name", "bytes": n, "ready_s": t}
 *   {"bucket": i, "bytes": n, "ready_s": t, "done_s": t}
 *   {"forward_end_s": t, "backward_end_s": t, "step_s": t, "exposed_s": t, "steps": n}
 * Times count from the beginning of forward, of the last micro-batch; step_s is how long a step
 * takes without its exposed communication, which is the last. Each is the median over the last
 * steps (at most 64). Only on the processor, where a gradient is ready when backward says so. */
#ifndef CDDPI_TRAIN_REPORT_ARRIVALS_H
#define CDDPI_TRAIN_REPORT_ARRIVALS_H

#include <cddp/ddp.h>

struct cddpi_arrivals;

/** Prepare for steps of @p count parameters, which are borrowed.
 *  @param out  Release with cddpi_arrivals_close(). */
CDDP_CHECKED cddp_status cddpi_arrivals_open(const char *path, const cddp_param *params,
                                             size_t count, struct cddpi_arrivals **out);
void cddpi_arrivals_close(struct cddpi_arrivals *arrivals); /* or NULL */

/* The course of a step; NULL is accepted, and nothing happens. */
void cddpi_arrivals_begin(struct cddpi_arrivals *arrivals);
void cddpi_arrivals_forward_end(struct cddpi_arrivals *arrivals);
void cddpi_arrivals_note(struct cddpi_arrivals *arrivals, size_t index);
void cddpi_arrivals_backward_end(struct cddpi_arrivals *arrivals);
/** The step is complete: keep its times. */
CDDP_CHECKED cddp_status cddpi_arrivals_end(struct cddpi_arrivals *arrivals, const cddp_ddp *ddp);

/** Write the file; NULL is accepted. */
CDDP_CHECKED cddp_status cddpi_arrivals_write(const struct cddpi_arrivals *arrivals);

#endif
