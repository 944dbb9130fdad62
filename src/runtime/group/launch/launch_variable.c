/* launch_variable.c - reads one variable of a launcher. */
#include "group/launch/launch_variable.h"

#include "base/error.h"
#include "base/number.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
                      "join: %s=%.200s is no port: Kubernetes sets it so for a Service called %s. "
                      "Put enableServiceLinks: false into the pod's spec, or give that Service "
                      "another name",
                      name, text, service);
}
