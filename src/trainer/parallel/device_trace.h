/* device_trace.h - owns the spans of what each device of a process does. Each device's thread
 * records its own; the thread that drives the step puts them into the trace when the devices are
 * done. */
#ifndef CDDPI_PARALLEL_DEVICE_TRACE_H
#define CDDPI_PARALLEL_DEVICE_TRACE_H

#include "group/watch/group_trace.h"
#include "parallel/pipeline/pipeline_schedule.h"

struct cddpi_device_trace;

/** The kind of span for a pass, of stages over ranks or devices. */
enum cddpi_span cddpi_span_of_pass(enum cddpi_pipeline_pass pass);

/** Begin to record one pass, at most @p most spans per device.
 *  @param traced  Its trace gets the spans; borrowed; NULL: no trace.
 *  @return NULL: this step is not traced, or there is no memory. */
struct cddpi_device_trace *cddpi_device_trace_begin(cddp_group *traced, int devices, size_t most);
/** Record that @p device did this from @p begin_ns until now. Call it in the device's thread; @p
 *  trace may be NULL.
 *  @param number  Of the micro-batch; -1: none. */
void cddpi_device_trace_add(struct cddpi_device_trace *trace, int device, enum cddpi_span kind,
                            int64_t begin_ns, int32_t number);
/** Put the spans into the trace, and release them; accepts NULL. */
void cddpi_device_trace_end(struct cddpi_device_trace *trace);

#endif
