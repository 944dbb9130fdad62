/* types.c - owns the sizes and names of element types and reduction operations; reads and fills the
 * caller's structs, whichever version the caller was compiled with. */
#include "base/types.h"

#include "base/error.h"

#include <cddp/types.h>

#include <string.h>

/* No version's struct is larger: what is larger was never set. */
enum { MOST_BYTES = 4096 };

static cddp_status check(const char *name, const char *init, size_t given, size_t least)
{
    if (given >= least && given > sizeof given && given <= MOST_BYTES) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "%s: struct_size is %zu: begin with %s, which sets it and the defaults, then "
                      "change fields",
                      name, given, init);
}

cddp_status cddpi_reserved_check(const char *name, const void *reserved, size_t bytes)
{
    const unsigned char *byte = reserved;

    for (size_t i = 0; i < bytes; i++) {
        if (byte[i] != 0) {
            return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                              "%s: reserved is not 0, and cddp %s does not know what that means: "
                              "the program was built for a newer one",
                              name, cddp_version());
        }
    }
    return CDDP_OK;
}

/* Check that fields that this version does not know have their default. */
static cddp_status check_unknown(const char *name, const void *from, size_t known, size_t given)
{
    const unsigned char *byte = from;

    for (size_t i = known; i < given; i++) {
        if (byte[i] != 0) {
            return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                              "%s: the field at offset %zu is not known to cddp %s: the program "
                              "was built for a newer one",
                              name, i, cddp_version());
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_struct_read(const char *name, const char *init, const void *from, size_t known,
                              size_t least, void *to)
{
    size_t given;

    memcpy(&given, from, sizeof given);
    CDDPI_TRY(check(name, init, given, least));
    CDDPI_TRY(check_unknown(name, from, known, given));
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

cddp_status cddpi_flags_check(uint32_t flags, uint64_t words)
{
    if (flags == 0 && words == 0) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      flags != 0 ? "flags 0x%llx are not known to cddp %s (built for a newer one)"
                                 : "a reserved word is 0x%llx, which cddp %s does not know (built "
                                   "for a newer one)",
                      (unsigned long long)(flags != 0 ? flags : words), cddp_version());
}

cddp_status cddp_tensors_of(const cddp_param *params, size_t count, cddp_tensor *out)
{
    if (count > 0 && (params == NULL || out == NULL)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "tensors_of: %s is NULL",
                          params == NULL ? "params" : "out");
    }
    if (count > PTRDIFF_MAX / sizeof *params) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "tensors_of: %zu params are too many", count);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = (cddp_tensor){.name = params[i].name,
                               .type = params[i].type,
                               .dims = params[i].dims,
                               .data = params[i].data};
        memcpy(out[i].shape, params[i].shape, sizeof out[i].shape);
    }
    return CDDP_OK;
}

size_t cddp_type_bytes(cddp_type type)
{
    switch (type) {
#define CDDPI_TYPE_BYTES(name, value, bytes, text)                                                 \
    case CDDP_##name:                                                                              \
        return bytes;
        CDDP_TYPE_MAP(CDDPI_TYPE_BYTES)
    }
    return 0;
}

const char *cddp_type_name(cddp_type type)
{
    switch (type) {
#define CDDPI_TYPE_TEXT(name, value, bytes, text)                                                  \
    case CDDP_##name:                                                                              \
        return text;
        CDDP_TYPE_MAP(CDDPI_TYPE_TEXT)
    }
    return "?";
}

const char *cddp_op_name(cddp_op op)
{
    switch (op) {
#define CDDPI_OP_TEXT(name, value, text)                                                           \
    case CDDP_OP_##name:                                                                           \
        return text;
        CDDP_OP_MAP(CDDPI_OP_TEXT)
    }
    return "?";
}
