/* device_trace.h - spans of what each device of one process does: its thread notes them, and the
 * thread that drives compute puts them into the trace when the devices have ended. */
#ifndef CDDPI_PARALLEL_DEVICE_TRACE_H
#define CDDPI_PARALLEL_DEVICE_TRACE_H

#include "group/watch/group_trace.h"
#include "parallel/pipeline/pipeline_schedule.h"

struct cddpi_device_trace;

/** The span of a pass, of stages over ranks or devices. */
enum cddpi_span cddpi_span_of_pass(enum cddpi_pipeline_pass pass);

/** Begin with a pass of at most @p most spans of each of @p devices.
 *  @param traced  Whose trace gets them, borrowed; NULL: no trace.
 *  @return NULL: this step is not traced, or there is no memory for it. */
struct cddpi_device_trace *cddpi_device_trace_begin(cddp_group *traced, int devices, size_t most);
/** @p device has done this from @p begin_ns until now. By the device's thread; @p trace may be
 * NULL.
 *  @p number: of the micro-batch; -1: none. */
void cddpi_device_trace_add(struct cddpi_device_trace *trace, int device, enum cddpi_span kind,
                            int64_t begin_ns, int32_t number);
/** Put them into the trace, and release them; accepts NULL. */
void cddpi_device_trace_end(struct cddpi_device_trace *trace);

#endif
