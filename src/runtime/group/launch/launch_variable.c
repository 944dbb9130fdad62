/* launch_variable.c - reads one variable of a launcher, and looks for pairs of variable names that
 * follow the patterns of launchers. */
#include "group/launch/launch_variable.h"

#include "base/error.h"
#include "base/number.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cddpi_launch_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

cddp_status cddpi_launch_number(const char *origin, const char *name, int64_t low, int64_t high,
                                int *out)
{
    const char *text = cddpi_launch_variable(name);
    int64_t value;

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s is not set (the rest of %s's variables are)",
                          name, origin);
    }
    if (!cddpi_parse_integer(text, low, high, &value)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "join: %s=%s is not a whole number from %lld to %lld",
                          name, text, (long long)low, (long long)high);
    }
    *out = (int)value;
    return CDDP_OK;
}

/* Describe a Service's variable: Kubernetes gives every pod NAME_PORT=tcp://ADDRESS:PORT for each
 * Service of the namespace. */
static void name_service(const char *variable, char *out, size_t bytes)
{
    snprintf(out, bytes, "%.*s", (int)(strlen(variable) - strlen("_PORT")), variable);
    for (; *out != '\0'; out++) {
        *out = (char)(*out == '_' ? '-' : tolower((unsigned char)*out));
    }
}

cddp_status cddpi_launch_port(const char *origin, const char *name, int *out)
{
    const char *text = cddpi_launch_variable(name);
    char service[64];

    if (text == NULL || strncmp(text, "tcp://", 6) != 0) {
        return cddpi_launch_number(origin, name, 1, 65535, out);
    }
    name_service(name, service, sizeof service);
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "join: %s=%.200s is not a port: Kubernetes sets it for a Service called %s. "
                      "Put enableServiceLinks: false into the pod's spec, or give that Service "
                      "another name",
                      name, text, service);
}

enum { NAME_BYTES = 128, MOST = 1 << 20 };

/* Endings of names for a number, and for a count. */
static const char *const rank_ends[] = {"_RANK", "_RANKID", "_PROCID", "_PROC_ID", "_TASK_ID"};
static const char *const size_ends[] = {"_SIZE",      "_WORLD_SIZE", "_NPROCS",    "_NTASKS",
                                        "_NUM_RANKS", "_NRANKS",     "_NUM_TASKS", "_COUNT"};

/* Parts of names that can be derived from others, or that number something else. */
static const char *const others[] = {"LOCAL_", "ROLE_", "GROUP_", "CROSS_",
                                     "CDDP_",  "PET_",  "ARRAY"};

static bool read_number(const char *name, int64_t low, int64_t high, int64_t *out)
{
    const char *text = cddpi_launch_variable(name);

    return text != NULL && cddpi_parse_integer(text, low, high, out);
}

/* Whether the variable @p size is the count for the number in @p rank. */
static bool is_pair(const char *rank, const char *size, char *out, size_t bytes)
{
    int64_t count;
    int64_t number;

    if (!read_number(size, 2, MOST, &count) || !read_number(rank, 0, count - 1, &number)) {
        return false;
    }
    snprintf(out, bytes, "%s=%lld and %s=%lld", rank, (long long)number, size, (long long)count);
    return true;
}

static bool looks_like_rank(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t of_end = strlen(end);

    if (length <= of_end || strcmp(name + length - of_end, end) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strstr(name, others[i]) != NULL) {
            return false;
        }
    }
    return true;
}

/* Look for a count whose name has the same beginning as @p name, which ends with @p end. */
static bool has_size(const char *name, const char *end, char *out, size_t bytes)
{
    int stem = (int)(strlen(name) - strlen(end));

    for (size_t i = 0; i < sizeof size_ends / sizeof *size_ends; i++) {
        char size[NAME_BYTES + 16];

        snprintf(size, sizeof size, "%.*s%s", stem, name, size_ends[i]);
        if (is_pair(name, size, out, bytes)) {
            return true;
        }
    }
    return false;
}

bool cddpi_launch_find_unknown(char *out, size_t bytes)
{
    static const char *const pairs[][2] = {{"NODE_RANK", "NNODES"},
                                           {"NODE_RANK", "NUM_NODES"},
                                           {"NODE_RANK", "NODE_COUNT"},
                                           {"MACHINE_RANK", "NUM_MACHINES"},
                                           {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES"},
                                           {"CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (is_pair(pairs[i][0], pairs[i][1], out, bytes)) {
            return true;
        }
    }
    for (char **variable = environ; *variable != NULL; variable++) {
        size_t length = strcspn(*variable, "=");
        char name[NAME_BYTES];

        if (length >= sizeof name) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        for (size_t i = 0; i < sizeof rank_ends / sizeof *rank_ends; i++) {
            if (looks_like_rank(name, rank_ends[i]) && has_size(name, rank_ends[i], out, bytes)) {
                return true;
            }
        }
    }
    return false;
}
