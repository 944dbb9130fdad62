/* struct_size.c - reads and fills the caller's structs, whichever version the caller was compiled
 * with. */
#include "base/struct_size.h"

#include "base/error.h"

#include <string.h>

static cddp_status check(const char *name, const char *init, size_t given, size_t least)
{
    if (given >= least) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s: struct_size is %zu: begin with %s, which sets it and the defaults, then "
                      "change fields",
                      name, given, init);
}

cddp_status cddpi_struct_read(const char *name, const char *init, const void *from, size_t known,
                              size_t least, void *to)
{
    size_t given;

    memcpy(&given, from, sizeof given);
    CDDPI_TRY(check(name, init, given, least));
    memcpy(to, from, given < known ? given : known);
    return CDDP_OK;
}

cddp_status cddpi_struct_fill(const char *name, const char *init, const void *from, size_t known,
                              void *to)
{
    size_t given;

    if (to == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: out is NULL", name);
    }
    memcpy(&given, to, sizeof given);
    CDDPI_TRY(check(name, init, given, sizeof given));
    memcpy((char *)to + sizeof given, (const char *)from + sizeof given,
           (given < known ? given : known) - sizeof given);
    return CDDP_OK;
}
