/* ctl_message.c - owns the forms of cddp-ctl's messages. */
#include "launcher/ctl/ctl_message.h"

#include "launcher/nodes/node_event.h"

#define REQUEST struct cddpi_ctl_request
#define ANSWER struct cddpi_ctl_answer
#define ROW struct cddpi_ctl_row
#define STRAGGLER struct cddpi_ctl_straggler
#define CARD struct cddpi_ctl_card

enum { NODES = CDDPI_MAX_NODES + CDDPI_MAX_JOINS };

CDDPI_MESSAGE_FORM(cddpi_ctl_request_form, CTL_REQUEST, REQUEST, CDDPI_CTL_REQUEST_BYTES,
                   CDDPI_NUMBER(REQUEST, command, 0, CDDPI_CTL_COMMANDS - 1),
                   CDDPI_NUMBER(REQUEST, number, -1, CDDPI_NODE_NUMBERS - 1),
                   CDDPI_TEXT(REQUEST, host));

static const struct cddpi_field row_members[] = {
    CDDPI_NUMBER(ROW, node, 0, CDDPI_NODE_NUMBERS - 1),
    CDDPI_NUMBER(ROW, ranks, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(ROW, first_rank, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(ROW, nproc, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(ROW, state, 0, CDDPI_CTL_STATES - 1),
    CDDPI_TEXT(ROW, host),
    {.type = CDDPI_FIELD_END}};

static const struct cddpi_field straggler_members[] = {
    CDDPI_NUMBER(STRAGGLER, rank, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(STRAGGLER, percent, 0, UINT16_MAX),
    CDDPI_NUMBER(STRAGGLER, seconds, -1, INT64_MAX),
    CDDPI_NUMBER(STRAGGLER, waits_for_data, 0, 1),
    {.type = CDDPI_FIELD_END}};

static const struct cddpi_field card_members[] = {
    CDDPI_NUMBER(CARD, node, 0, CDDPI_NODE_NUMBERS - 1),
    CDDPI_NUMBER(CARD, rank, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_TEXT(CARD, text),
    {.type = CDDPI_FIELD_END}};

CDDPI_MESSAGE_FORM(
    cddpi_ctl_answer_form, CTL_ANSWER, ANSWER, CDDPI_CTL_ANSWER_BYTES,
    CDDPI_NUMBER(ANSWER, is_done, 0, 1), CDDPI_NUMBER(ANSWER, is_over, 0, 1),
    CDDPI_NUMBER(ANSWER, exit_status, 0, 255), CDDPI_TEXT(ANSWER, text), CDDPI_TEXT(ANSWER, job),
    CDDPI_TEXT(ANSWER, reason), CDDPI_TEXT(ANSWER, ending),
    CDDPI_NUMBER(ANSWER, generation, -1, INT32_MAX), CDDPI_NUMBER(ANSWER, seconds, -1, INT64_MAX),
    CDDPI_NUMBER(ANSWER, pid, 0, INT64_MAX),
    CDDPI_NUMBER(ANSWER, world_size, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(ANSWER, nodes, 0, NODES), CDDPI_NUMBER(ANSWER, restarts, 0, INT32_MAX),
    CDDPI_NUMBER(ANSWER, max_restarts, -1, INT32_MAX), CDDPI_NUMBER(ANSWER, is_elastic, 0, 1),
    CDDPI_NUMBER(ANSWER, is_alone, 0, 1), CDDPI_NUMBER(ANSWER, trains, 0, 1),
    CDDPI_NUMBER(ANSWER, is_running, 0, 1), CDDPI_NUMBER(ANSWER, is_ending, 0, 1),
    CDDPI_NUMBER(ANSWER, saves, 0, INT32_MAX), CDDPI_NUMBER(ANSWER, unsaved, 0, INT32_MAX),
    CDDPI_NUMBER(ANSWER, least, 0, CDDPI_MAX_WORLD_SIZE),
    CDDPI_NUMBER(ANSWER, most, 0, CDDPI_MAX_WORLD_SIZE), CDDPI_NUMBER(ANSWER, left_out, 0, NODES),
    CDDPI_ROWS(ANSWER, rows, count, row_members),
    CDDPI_ROWS(ANSWER, stragglers, straggler_count, straggler_members),
    CDDPI_ROWS(ANSWER, cards, card_count, card_members));
