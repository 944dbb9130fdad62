/* interface.c - see interface.h. */
#include "base/interface.h"

#include <stddef.h>
#include <string.h>

bool cddpi_interface_matches(const char *patterns, const char *name)
{
    bool excludes = false;
    bool is_whole = false;

    if (patterns == NULL || patterns[0] == '\0') {
        return true;
    }
    for (; *patterns == '^' || *patterns == '='; patterns++) {
        excludes = excludes || *patterns == '^';
        is_whole = is_whole || *patterns == '=';
    }
    for (size_t bytes; *patterns != '\0'; patterns += bytes + (patterns[bytes] == ',' ? 1 : 0)) {
        bytes = strcspn(patterns, ",");
        if (bytes > 0 && strncmp(name, patterns, bytes) == 0 &&
            (!is_whole || name[bytes] == '\0')) {
            return !excludes;
        }
    }
    return excludes;
}
