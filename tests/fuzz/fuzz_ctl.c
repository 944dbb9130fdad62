/* fuzz_ctl.c - what cddp-run reads from whoever connects to its socket, and what cddp-ctl reads
 * from it. The first byte selects a request or an answer. */
#include "fuzz/fuzz.h"
#include "launcher/ctl/ctl_print.h"
#include "launcher/ctl/ctl_request.h"

#include <stdlib.h>

enum { NODES = 3 };

static void read_request(const uint8_t *data, size_t size)
{
    struct cddpi_job_member list[NODES];
    struct cddpi_membership members = {.list = list, .room = NODES, .least = 2, .most = 3};
    struct cddpi_ctl_request request;
    struct cddpi_node_event event;
    char text[CDDPI_CTL_TEXT_BYTES];

    if (cddpi_message_decode(&cddpi_ctl_request_form, data, size, &request) != CDDP_OK) {
        return;
    }
    fuzz_write_again(&cddpi_ctl_request_form, &request, data, size);
    members.is_elastic = true;
    for (int i = 0; i < NODES; i++) {
        struct cddpi_job_member *member = cddpi_membership_add(&members, i, "alpha", 2);

        member->ranks = 2;
        member->first_rank = 2 * i;
    }
    members.world_size = 2 * NODES;
    if (!cddpi_ctl_decide(&members, &request, true, &event, text)) {
        fuzz_check(text[0] != '\0', "refused without a reason");
    } else if (event.kind == CDDPI_EVENT_SIZE) {
        fuzz_check(event.node >= 0 && event.node < NODES && event.number > 0,
                   "no node, or no rank");
    }
    fuzz_check(event.kind != CDDPI_EVENT_LEAVE || (event.node > 0 && event.node < NODES),
               "no node, or the one that serves the store");
    (void)cddpi_ctl_has_happened(&members, &request, -1, text);
}

static void read_answer(const uint8_t *data, size_t size)
{
    static struct cddpi_ctl_answer answer;
    const struct cddpi_ctl_run run = {.points = 0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *to;

    if (cddpi_message_decode(&cddpi_ctl_answer_form, data, size, &answer) != CDDP_OK) {
        return;
    }
    fuzz_write_again(&cddpi_ctl_answer_form, &answer, data, size);
    to = open_memstream(&text, &bytes);
    fuzz_check(to != NULL, "no memory");
    cddpi_ctl_print(&answer, &run, 40, false, to);
    cddpi_ctl_print_line(&answer, &run, to);
    fuzz_check(cddpi_ctl_print_json(&answer, &run, to), "it has no JSON");
    fclose(to);
    for (size_t i = 0; i < bytes; i++) {
        fuzz_check(text[i] != '\033', "an escape sequence");
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] % 2 == 0) {
        read_request(data + 1, size - 1);
    } else if (size > 0) {
        read_answer(data + 1, size - 1);
    }
    return 0;
}
