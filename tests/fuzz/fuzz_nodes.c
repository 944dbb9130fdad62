/* fuzz_nodes.c - what cddp-run's nodes read of each other in the store, and on standard input. The
 * first byte says what: an event, a record, a plan, a list of addresses, a parcel. */
#include "fuzz/fuzz.h"
#include "launcher/hosts/parcel.h"
#include "launcher/nodes/node_address.h"
#include "launcher/nodes/node_event.h"
#include "launcher/nodes/node_record.h"

#include <stdlib.h>
#include <string.h>

enum { NODES = 3 };

static void read_event(const uint8_t *data, size_t size)
{
    static struct cddpi_node_event event;
    struct cddpi_message again = {{NULL, 0, 0}, false};

    if (!cddpi_node_event_take(data, size, NODES, &event)) {
        return;
    }
    fuzz_check(event.node >= -1 && event.node < NODES, "a node that is none");
    cddpi_node_event_put(&again, &event);
    fuzz_check(again.buffer.bytes == size && memcmp(again.buffer.data, data, size) == 0,
               "an event is not written as it was read");
    cddpi_buffer_fini(&again.buffer);
}

static void read_record(const uint8_t *data, size_t size)
{
    static struct cddpi_node_record zero;
    static struct cddpi_node_record record;
    char text[CDDPI_REFUSAL_BYTES];

    if (cddpi_node_record_take(data, size, &record)) {
        fuzz_check(!cddpi_node_record_differs(&record, &record, 0, text, sizeof text),
                   "a record differs from itself");
        zero.count = 1;
        fuzz_check(cddpi_node_record_differs(&zero, &record, 1, text, sizeof text) &&
                       memchr(text, '\0', sizeof text) != NULL,
                   "a stranger's record");
    }
}

static void read_plan(const uint8_t *data, size_t size)
{
    static struct cddpi_node_plan plan;

    if (cddpi_node_plan_take(data, size, NODES, &plan)) {
        for (int i = 0; i < plan.count; i++) {
            fuzz_check(plan.nodes[i].nproc > 0, "a node without ranks");
        }
        cddpi_node_plan_fini(&plan);
    }
}

static void read_addresses(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct cddpi_address address;
    char url[CDDPI_ADDRESS_BYTES];

    fuzz_check(text != NULL, "no memory");
    memcpy(text, data, size);
    text[size] = '\0';
    for (const char *rest = text;
         *rest != '\0' && cddpi_address_next(&rest, &address) == CDDP_OK;) {
        cddpi_address_url(&address, url);
        fuzz_check(address.port > 0 && address.host[0] != '\0', "an address that is none");
    }
    free(text);
}

static void read_parcel(const uint8_t *data, size_t size)
{
    static struct cddpi_job job;
    const char *folder = NULL;

    if (cddpi_parcel_unpack(&job, data, size, &folder) == CDDP_OK) {
        fuzz_touch(folder, strlen(folder));
        fuzz_touch(job.host, strlen(job.host));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *data, size_t size) = {
        read_event, read_record, read_plan, read_addresses, read_parcel};

    if (size > 0) {
        readers[data[0] % 5](data + 1, size - 1);
    }
    return 0;
}
