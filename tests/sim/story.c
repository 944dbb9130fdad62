/* story.c - tells a history in plain words. */
#include "tests/sim/sim_head.h"

#include <stdarg.h>

void sim_say(const char *format, ...)
{
    va_list arguments;

    if (!sim.tells) {
        return;
    }
    printf("%10.4f s  ", (double)sim.now_ns / 1e9);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

const char *sim_node_name(const struct sim_node *node)
{
    static char names[4][32];
    static int next;
    char *name = names[next++ & 3];

    snprintf(name, sizeof names[0], "node %d on h%d", node->number, node->host);
    return name;
}

const char *sim_event_words(const struct cddpi_node_event *event)
{
    static const char *const names[] = {
        [CDDPI_EVENT_NONE] = "NONE",       [CDDPI_EVENT_START] = "START",
        [CDDPI_EVENT_FAILURE] = "FAILURE", [CDDPI_EVENT_FOLLOW] = "FOLLOW",
        [CDDPI_EVENT_SIGNAL] = "SIGNAL",   [CDDPI_EVENT_LOST] = "LOST",
        [CDDPI_EVENT_DONE] = "DONE",       [CDDPI_EVENT_END] = "END",
        [CDDPI_EVENT_BYE] = "BYE",         [CDDPI_EVENT_JOIN] = "JOIN",
        [CDDPI_EVENT_LEAVE] = "LEAVE",     [CDDPI_EVENT_SIZE] = "SIZE",
        [CDDPI_EVENT_CHANGE] = "CHANGE",   [CDDPI_EVENT_SAVING] = "SAVING",
        [CDDPI_EVENT_SAVED] = "SAVED",     [CDDPI_EVENT_CUT] = "CUT"};
    static char words[256];

    snprintf(words, sizeof words,
             "%s (generation %d, node %d, rank %d, number %d, status %d%s%s%.60s)",
             names[event->kind], event->generation, event->node, event->rank, event->number,
             event->exit_status, event->has_saved ? ", saved" : "",
             event->text[0] != '\0' ? ", " : "", event->text);
    return words;
}

void sim_head_says(const struct cddpi_head_action *action)
{
    static const char *const words[] = {
        [CDDPI_HEAD_SAY_CLOSING] = "an agent has not ended: closing its input",
        [CDDPI_HEAD_SAY_KILLING] = "an agent has still not ended: killing it",
        [CDDPI_HEAD_SAY_UNSTARTED] = "a host did not start",
        [CDDPI_HEAD_SAY_LATE_END] = "an agent has failed after the job's end",
        [CDDPI_HEAD_SAY_LOST_EARLY] = "a node is lost before the nodes have met",
        [CDDPI_HEAD_SAY_AGAIN] = "starting again",
        [CDDPI_HEAD_SAY_TOO_OFTEN] = "started too often",
        [CDDPI_HEAD_SAY_NOT_COME] = "a node did not come in time",
        [CDDPI_HEAD_SAY_LOST] = "a node is lost",
        [CDDPI_HEAD_SAY_CAME] = "a node has come",
        [CDDPI_HEAD_SAY_LEAVES] = "a node leaves",
        [CDDPI_HEAD_SAY_EARLY_SIGNAL] = "a signal ends the job before its beginning",
        [CDDPI_HEAD_SAY_STOPPING] = "a signal stops all ranks",
        [CDDPI_HEAD_SAY_ENDING] = "stopping the other ranks",
        [CDDPI_HEAD_SAY_CUT] = "the store is lost",
        [CDDPI_HEAD_SAY_MISSING] = "some have not come yet",
        [CDDPI_HEAD_SAY_TOO_LATE] = "some did not come in time",
        [CDDPI_HEAD_SAY_BEGINS] = "the job begins without some hosts",
        [CDDPI_HEAD_SAY_TOO_FEW] = "too few hosts have come in time",
        [CDDPI_HEAD_SAY_NONE_LEFT] = "no host is left: waiting for one to come back",
        [CDDPI_HEAD_SAY_ALL_LEFT] = "all hosts have left",
        [CDDPI_HEAD_SAY_NONE_BACK] = "no host came back in time"};

    sim_say("the head says: %s (host %d, number %d)",
            action->text != NULL ? action->text : words[action->kind], action->host,
            action->number);
}
