/* fuzz_nodes.c - what cddp-runs read from each other in the store and on standard input. The first
 * byte selects the kind: an event, a record, a plan, a list of addresses, a parcel, refused
 * clients. */
#include "fuzz/fuzz.h"
#include "launcher/hosts/parcel.h"
#include "launcher/nodes/node_address.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/refused.h"

#include <stdlib.h>
#include <string.h>

enum { NODES = 3 };

static void read_event(const uint8_t *data, size_t size)
{
    static struct cddpi_node_event event;

    if (cddpi_node_event_decode(data, size, &event) == CDDP_OK) {
        fuzz_check(event.node >= -1 && event.node < CDDPI_NODE_NUMBERS, "a node that is none");
        fuzz_write_again(&cddpi_node_event_form, &event, data, size);
    }
}

static void read_record(const uint8_t *data, size_t size)
{
    static struct cddpi_node_record zero;
    static struct cddpi_node_record record;
    char text[CDDPI_REFUSAL_BYTES];

    if (cddpi_message_decode(&cddpi_node_record_form, data, size, &record) == CDDP_OK) {
        fuzz_write_again(&cddpi_node_record_form, &record, data, size);
        fuzz_check(!cddpi_node_record_differs(&record, 0, &record, 0, text, sizeof text),
                   "a record differs from itself");
        zero.count = 1;
        fuzz_check(cddpi_node_record_differs(&zero, 0, &record, 1, text, sizeof text) &&
                       memchr(text, '\0', sizeof text) != NULL,
                   "a stranger's record");
    }
}

static void read_plan(const uint8_t *data, size_t size)
{
    struct cddpi_node_plan plan;

    for (int least = 1; least <= NODES; least++) {
        if (cddpi_node_plan_decode(data, size, least, NODES, &plan) == CDDP_OK) {
            fuzz_write_again(&cddpi_node_plan_form, &plan, data, size);
            for (int i = 0; i < plan.count; i++) {
                fuzz_check(plan.nodes[i].nproc > 0, "a node without ranks");
                fuzz_check(cddpi_node_plan_has(&plan, plan.nodes[i].node), "a node that is none");
            }
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
    struct cddpi_parcel parcel;

    if (cddpi_message_decode(&cddpi_parcel_form, data, size, &parcel) == CDDP_OK) {
        fuzz_write_again(&cddpi_parcel_form, &parcel, data, size);
        fuzz_touch(parcel.folder, strlen(parcel.folder));
        if (cddpi_parcel_unpack(&job, &parcel) == CDDP_OK) {
            fuzz_touch(job.host, strlen(job.host));
        }
    }
    cddpi_message_fini(&cddpi_parcel_form, &parcel);
}

static void read_refused(const uint8_t *data, size_t size)
{
    struct cddpi_refused_list list;
    char text[CDDPI_REFUSED_BYTES];

    if (cddpi_message_decode(&cddpi_refused_form, data, size, &list) == CDDP_OK) {
        fuzz_write_again(&cddpi_refused_form, &list, data, size);
        cddpi_refused_say(&list, text);
        fuzz_check(memchr(text, '\0', sizeof text) != NULL, "a text without end");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *data, size_t size) = {
        read_event, read_record, read_plan, read_addresses, read_parcel, read_refused};

    if (size > 0) {
        readers[data[0] % 6](data + 1, size - 1);
    }
    return 0;
}
