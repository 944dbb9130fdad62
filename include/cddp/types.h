/** @file
 *  types.h - element types and reduction operations. */
#ifndef CDDP_TYPES_H
#define CDDP_TYPES_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All element types: X(name, value, bytes of one element, text); the texts are the names of
 *  safetensors, in lower case. */
#define CDDP_TYPE_MAP(X)                                                                           \
    X(F32, 0, 4, "f32")                                                                            \
    X(F64, 1, 8, "f64")                                                                            \
    X(F16, 2, 2, "f16")                                                                            \
    X(BF16, 3, 2, "bf16")                                                                          \
    X(I32, 4, 4, "i32")                                                                            \
    X(I64, 5, 8, "i64")                                                                            \
    X(U8, 6, 1, "u8")                                                                              \
    X(I8, 7, 1, "i8")                                                                              \
    X(BOOL, 8, 1, "bool")
/** One line of cddp_type. */
#define CDDP_TYPE_VALUE(name, value, bytes, text) CDDP_##name = value,
/** The type of an element: CDDP_F32 and so on, one for each line of CDDP_TYPE_MAP. */
typedef enum cddp_type { CDDP_TYPE_MAP(CDDP_TYPE_VALUE) } cddp_type;

/** All reductions: X(name, value, text). MEAN is the sum divided by the number of ranks (floating
 *  types: times its reciprocal, rounded once to f32, or f64 for f64; integers: truncated towards
 *  zero). AND, OR and XOR are bit by bit, of integers and bool only. Of bool, whose elements are
 *  bytes that are 0 or 1, SUM and MAX are OR, PROD and MIN are AND, and there is no MEAN. A device
 *  reduces neither i8 nor bool, and nothing bit by bit (CDDP_ERR_UNAVAILABLE), but moves all types.
 */
#define CDDP_OP_MAP(X)                                                                             \
    X(SUM, 0, "sum")                                                                               \
    X(MEAN, 1, "mean")                                                                             \
    X(MIN, 2, "min")                                                                               \
    X(MAX, 3, "max")                                                                               \
    X(PROD, 4, "prod")                                                                             \
    X(AND, 5, "and")                                                                               \
    X(OR, 6, "or")                                                                                 \
    X(XOR, 7, "xor")
/** One line of cddp_op. */
#define CDDP_OP_VALUE(name, value, text) CDDP_OP_##name = value,
/** A reduction: CDDP_OP_SUM and so on, one for each line of CDDP_OP_MAP. */
typedef enum cddp_op { CDDP_OP_MAP(CDDP_OP_VALUE) } cddp_op;

/** Bytes of one element; 0 for a number that is no type. Any thread. */
CDDP_API size_t cddp_type_bytes(cddp_type type);

/** "f32", "bf16" ...; "?" for a number that is no type. Any thread. */
CDDP_API const char *cddp_type_name(cddp_type type);

/** "sum", "mean" ...; "?" for a number that is no operation. Any thread. */
CDDP_API const char *cddp_op_name(cddp_op op);

#ifdef __cplusplus
}
#endif
#endif
