/** @file
 *  types.h - element types, reduction operations, and descriptions of tensors.
 *
 *  Collective: no, all of these. */
#ifndef CDDP_TYPES_H
#define CDDP_TYPES_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The type of an element. The names are those of safetensors. */
typedef enum cddp_type {
    CDDP_F32 = 0,  /**< "f32", 4 bytes */
    CDDP_F64 = 1,  /**< "f64", 8 bytes */
    CDDP_F16 = 2,  /**< "f16", 2 bytes */
    CDDP_BF16 = 3, /**< "bf16", 2 bytes */
    CDDP_I32 = 4,  /**< "i32", 4 bytes */
    CDDP_I64 = 5,  /**< "i64", 8 bytes */
    CDDP_U8 = 6,   /**< "u8", 1 byte */
    CDDP_I8 = 7,   /**< "i8", 1 byte */
    CDDP_BOOL = 8, /**< "bool", 1 byte, which is 0 or 1 */
    CDDP_TYPE_MAX_ENUM_ = 0x7fffffff
} cddp_type;

/** A reduction.
 *
 *  AND, OR and XOR are for integers and bool only. For bool, SUM and MAX are OR, PROD and MIN are
 *  AND, and there is no MEAN.
 *
 *  On a device, all types can be moved, but i8 and bool cannot be reduced, and there are no bitwise
 *  reductions: CDDP_ERR_UNAVAILABLE. */
typedef enum cddp_op {
    CDDP_OP_SUM = 0,  /**< "sum" */
    CDDP_OP_MEAN = 1, /**< "mean": the sum divided by the number of ranks. For floating types, the
                           sum is multiplied by the reciprocal of that number, which is rounded to
                           f32 (to f64 for f64). For integers, it is truncated towards zero. */
    CDDP_OP_MIN = 2,  /**< "min" */
    CDDP_OP_MAX = 3,  /**< "max" */
    CDDP_OP_PROD = 4, /**< "prod": the product */
    CDDP_OP_AND = 5,  /**< "and", bitwise */
    CDDP_OP_OR = 6,   /**< "or", bitwise */
    CDDP_OP_XOR = 7,  /**< "xor", bitwise */
    CDDP_OP_MAX_ENUM_ = 0x7fffffff
} cddp_op;

enum { CDDP_MAX_DIMS = 8 /**< the most dimensions of a tensor */ };

/** A tensor that cddp may write: a parameter or a buffer of a model, or memory to load into. The
 *  caller owns all memory. Callers pass arrays of this struct, so it has no struct_size and keeps
 *  its size: later versions use the reserved words and define more flags. Flags and words that the
 *  library does not know must be 0; otherwise calls return CDDP_ERR_UNAVAILABLE. */
typedef struct cddp_param {
    /** Unique in its list. */
    const char *name;
    /** Type of its elements. */
    cddp_type type;
    /** 0 to CDDP_MAX_DIMS; 0 is a scalar. */
    int dims;
    /** Row-major. */
    int64_t shape[CDDP_MAX_DIMS];
    /** The tensor's values: as many as the product of shape. */
    void *data;
    /** Where backward writes the gradient (see cddp_ddp_create()). Not used elsewhere. */
    void *grad;
    /** CDDP_PARAM_FROZEN, or 0. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /** 0. */
    uint64_t reserved2[2];

} cddp_param;

/** Flags of cddp_param. */
enum {
    /** The parameter has no gradient: it is compared and broadcast, but never reduced. */
    CDDP_PARAM_FROZEN = 1
};

/** A tensor that cddp only reads. Like cddp_param, it keeps its size. */
typedef struct cddp_tensor {
    /** Unique in its list. */
    const char *name;
    /** Type of its elements. */
    cddp_type type;
    /** 0 to CDDP_MAX_DIMS; 0 is a scalar. */
    int dims;
    /** Row-major. */
    int64_t shape[CDDP_MAX_DIMS];
    /** As many elements as the product of shape. */
    const void *data;
    /** 0: there are no flags yet. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /** 0. */
    uint64_t reserved2[2];

} cddp_tensor;

/** Make the list of tensors that describes the values of @p params, for cddp_snapshot_write() and
 *  cddp_safetensors_write(): the same names, types, shapes and memory, but read-only.
 *  CDDP_PARAM_FROZEN is left out. Any thread.
 *  @param out  The caller's array of @p count elements; names and data are borrowed.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_UNAVAILABLE (an unknown flag). */
CDDP_CHECKED cddp_status cddp_tensors_of(const cddp_param *params, size_t count, cddp_tensor *out);

/** Bytes of one element; 0 if @p type is not a cddp_type. Any thread. */
CDDP_API size_t cddp_type_bytes(cddp_type type);

/** "f32", "bf16" ...; "?" if @p type is not a cddp_type. Any thread. */
CDDP_API const char *cddp_type_name(cddp_type type);

/** "sum", "mean" ...; "?" if @p op is not a cddp_op. Any thread. */
CDDP_API const char *cddp_op_name(cddp_op op);

#ifdef __cplusplus
}
#endif
#endif
