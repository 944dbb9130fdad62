/* types.c - owns the sizes and names of element types and reduction operations; reads and fills the
 * caller's structs, whichever version the caller was compiled with. */
#include "base/types.h"

#include "base/error.h"

#include <cddp/types.h>

#include <string.h>

/* No version's struct is larger: what is larger was never set. */
enum { MOST_BYTES = 4096 };

static cddp_status check(const char *name, const char *init, size_t given)
{
    if (given > sizeof given && given <= MOST_BYTES) {
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
                              void *to)
{
    size_t given;

    memcpy(&given, from, sizeof given);
    CDDPI_TRY(check(name, init, given));
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
    CDDPI_TRY(check(name, init, given));
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
        cddp_status status = cddpi_flags_check(params[i].flags & ~(uint32_t)CDDP_PARAM_FROZEN,
                                               CDDPI_RESERVED_OF(&params[i]));

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "tensors_of: param %zu (%s)", i,
                                     params[i].name != NULL ? params[i].name : "NULL");
        }
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
    case CDDP_F64:
    case CDDP_I64:
        return 8;
    case CDDP_F32:
    case CDDP_I32:
        return 4;
    case CDDP_F16:
    case CDDP_BF16:
        return 2;
    case CDDP_U8:
    case CDDP_I8:
    case CDDP_BOOL:
        return 1;
    case CDDP_TYPE_MAX_ENUM_:
        break;
    }
    return 0;
}

const char *cddp_type_name(cddp_type type)
{
    switch (type) {
    case CDDP_F32:
        return "f32";
    case CDDP_F64:
        return "f64";
    case CDDP_F16:
        return "f16";
    case CDDP_BF16:
        return "bf16";
    case CDDP_I32:
        return "i32";
    case CDDP_I64:
        return "i64";
    case CDDP_U8:
        return "u8";
    case CDDP_I8:
        return "i8";
    case CDDP_BOOL:
        return "bool";
    case CDDP_TYPE_MAX_ENUM_:
        break;
    }
    return "?";
}

const char *cddp_op_name(cddp_op op)
{
    switch (op) {
    case CDDP_OP_SUM:
        return "sum";
    case CDDP_OP_MEAN:
        return "mean";
    case CDDP_OP_MIN:
        return "min";
    case CDDP_OP_MAX:
        return "max";
    case CDDP_OP_PROD:
        return "prod";
    case CDDP_OP_AND:
        return "and";
    case CDDP_OP_OR:
        return "or";
    case CDDP_OP_XOR:
        return "xor";
    case CDDP_OP_MAX_ENUM_:
        break;
    }
    return "?";
}
