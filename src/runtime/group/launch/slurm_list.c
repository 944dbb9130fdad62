/* slurm_list.c - parses Slurm's compressed lists of hosts and of ranks per node. */
#include "group/launch/slurm_list.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 9 }; /* maximum digits of a number, so that it fits into an int */

/* Parse at most DIGITS digits at *at, and move *at past them. */
static bool take_number(const char **at, int *out, int *out_width)
{
    const char *begin = *at;
    int value = 0;

    while (isdigit((unsigned char)**at) && *at - begin < DIGITS) {
        value = value * 10 + (**at - '0');
        (*at)++;
    }
    *out = value;
    *out_width = (int)(*at - begin);
    return *at > begin && !isdigit((unsigned char)**at);
}

/* One range of a bracket, "01-03" or "7": numbers with at least @p width digits. */
struct range {
    int low;
    int high;
    int width;
};

/* Parse the range at *at, and move *at past it and a following comma. */
static bool take_range(const char **at, struct range *out)
{
    int width;

    if (!take_number(at, &out->low, &out->width)) {
        return false;
    }
    out->high = out->low;
    if (**at == '-') {
        (*at)++;
        if (!take_number(at, &out->high, &width) || out->high < out->low) {
            return false;
        }
    }
    if (**at == ',') {
        (*at)++;
        return isdigit((unsigned char)**at) != 0;
    }
    return **at == ']';
}

/* Count the numbers of the bracket at *at, and move *at past it. 0: not a bracket. */
static size_t take_bracket(const char **at)
{
    size_t count = 0;

    (*at)++;
    while (**at != ']') {
        struct range range = {0, 0, 0};

        if (!take_range(at, &range)) {
            return 0;
        }
        count += (size_t)(range.high - range.low) + 1;
        if (count > CDDPI_SLURM_LIST_MAX) {
            return 0;
        }
    }
    (*at)++;
    return count;
}

/* Write number @p index of the valid bracket at *at as text, and move *at past the bracket. */
static int write_number(const char **at, size_t index, char *out, size_t bytes)
{
    int written = 0;

    (*at)++;
    while (**at != ']') {
        struct range range = {0, 0, 0};
        size_t count;

        (void)take_range(at, &range);
        count = (size_t)(range.high - range.low) + 1;
        if (index < count) {
            written = snprintf(out, bytes, "%0*d", range.width, range.low + (int)index);
            index = CDDPI_SLURM_LIST_MAX + (size_t)1; /* no index of the following ranges */
        } else if (index <= CDDPI_SLURM_LIST_MAX) {
            index -= count;
        }
    }
    (*at)++;
    return written;
}

static bool is_name_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '-' || byte == '_' || byte == '.';
}

/* Count the hosts of the term at *at, which ends at a comma outside brackets or at the end; move
 * *at there. 0: not a term. */
static size_t take_term(const char **at)
{
    const char *begin = *at;
    size_t count = 1;

    while (**at != '\0' && **at != ',') {
        if (**at == '[') {
            size_t numbers = take_bracket(at);

            if (numbers == 0 || count > CDDPI_SLURM_LIST_MAX / numbers) {
                return 0;
            }
            count *= numbers;
        } else if (is_name_byte(**at)) {
            (*at)++;
        } else {
            return 0;
        }
    }
    return *at > begin ? count : 0;
}

/* Write host @p index of the @p count hosts in the valid term at @p at. */
static bool write_host(const char *at, size_t count, size_t index, char *out)
{
    size_t used = 0;

    while (*at != '\0' && *at != ',') {
        if (*at == '[') {
            const char *bracket = at;
            size_t numbers = take_bracket(&bracket);

            count /= numbers; /* of several brackets, the last changes fastest */
            used += (size_t)write_number(&at, index / count, out + used,
                                         CDDPI_HOST_NAME_BYTES - used);
            index %= count;
        } else {
            out[used++] = *at++;
        }
        if (used >= CDDPI_HOST_NAME_BYTES) {
            return false;
        }
    }
    out[used] = '\0';
    return true;
}

/* Walk through the list: count its hosts, and write host @p index unless @p out is NULL. */
static bool walk(const char *text, size_t index, char *out, size_t *out_count)
{
    const char *at = text;
    size_t total = 0;
    bool found = out == NULL;

    for (;;) {
        const char *term = at;
        size_t count = take_term(&at);

        if (count == 0 || total + count > CDDPI_SLURM_LIST_MAX) {
            return false;
        }
        if (!found && index < total + count) {
            found = write_host(term, count, index - total, out);
            if (!found) {
                return false;
            }
        }
        total += count;
        if (*at == '\0') {
            *out_count = total;
            return found;
        }
        at++;
    }
}

size_t cddpi_slurm_hosts(const char *text)
{
    size_t count;

    return walk(text, 0, NULL, &count) ? count : 0;
}

bool cddpi_slurm_host(const char *text, size_t index, char out[CDDPI_HOST_NAME_BYTES])
{
    char name[CDDPI_HOST_NAME_BYTES];
    size_t count;

    if (!walk(text, index, name, &count)) {
        return false;
    }
    memcpy(out, name, strlen(name) + 1);
    return true;
}

/* Parse "2(x3)" or "2" at *at, and move *at past it and a following comma. */
static bool take_tasks(const char **at, int *out_size, int *out_nodes)
{
    int width;

    *out_nodes = 1;
    if (!take_number(at, out_size, &width)) {
        return false;
    }
    if (strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        if (!take_number(at, out_nodes, &width) || **at != ')') {
            return false;
        }
        (*at)++;
    }
    if (**at == ',') {
        (*at)++;
        return **at != '\0';
    }
    return **at == '\0';
}

bool cddpi_slurm_tasks(const char *text, int node, struct cddpi_slurm_tasks *out)
{
    struct cddpi_slurm_tasks tasks = {0, 0, -1};
    const char *at = text;

    while (*at != '\0') {
        int size;
        int nodes;

        if (!take_tasks(&at, &size, &nodes) || size < 1 || nodes < 1 ||
            nodes > (CDDPI_SLURM_LIST_MAX - tasks.total) / size) {
            return false;
        }
        if (node >= tasks.nodes && node < tasks.nodes + nodes) {
            tasks.local_size = size;
        }
        tasks.nodes += nodes;
        tasks.total += nodes * size;
    }
    if (tasks.local_size < 0) {
        return false;
    }
    *out = tasks;
    return true;
}
