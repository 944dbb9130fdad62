/* story.c - tells a history in plain words. */
#include "tests/sim/sim.h"

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
