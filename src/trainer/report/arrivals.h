/* arrivals.h - writes when the gradients of a step become ready. From these times and the speed of
 * a link, scripts compute how much communication another link would expose.
 *
 * The file has a line for each gradient and bucket, and one for the step: {"gradient": "name",
 * "bytes": n, "ready_s": t} {"bucket": i, "bytes": n, "ready_s": t, "done_s": t} {"forward_end_s":
 * t, "backward_end_s": t, "step_s": t, "exposed_s": t, "steps": n} Times are measured from the
 * beginning of the last micro-batch's forward. step_s is the time of a step without its exposed
 * communication, exposed_s. Each time is the median over the last steps, at most 64. CPU only:
 * there a gradient is ready when backward says so. */
#ifndef CDDPI_TRAIN_REPORT_ARRIVALS_H
#define CDDPI_TRAIN_REPORT_ARRIVALS_H

#include <cddp/ddp.h>

struct cddpi_arrivals;

/** Prepare for steps of @p count parameters, which are borrowed.
 *  @param out  Release with cddpi_arrivals_close(). */
CDDP_CHECKED cddp_status cddpi_arrivals_open(const char *path, const cddp_param *params,
                                             size_t count, struct cddpi_arrivals **out);
void cddpi_arrivals_close(struct cddpi_arrivals *arrivals); /* accepts NULL, as all below */

/* The events of a step, in this order. */
void cddpi_arrivals_begin(struct cddpi_arrivals *arrivals);
void cddpi_arrivals_forward_end(struct cddpi_arrivals *arrivals);
void cddpi_arrivals_note(struct cddpi_arrivals *arrivals, size_t index);
void cddpi_arrivals_backward_end(struct cddpi_arrivals *arrivals);
/** Keep the times of the step, which is complete. */
CDDP_CHECKED cddp_status cddpi_arrivals_end(struct cddpi_arrivals *arrivals, const cddp_ddp *ddp);

/** Write the file. */
CDDP_CHECKED cddp_status cddpi_arrivals_write(const struct cddpi_arrivals *arrivals);

#endif
