/* types.c - owns the sizes and names of element types and reduction operations. */
#include <cddp/types.h>

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
