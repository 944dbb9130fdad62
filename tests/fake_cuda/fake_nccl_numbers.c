/* fake_nccl_numbers.c - the fake's arithmetic: scalar code with NCCL's roundings. */
#include "fake_cuda/fake_nccl.h"
#include "fake_cuda/fake_numbers.h"

size_t fake_nccl_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

static bool is_whole(ncclDataType_t type)
{
    return type == ncclUint8 || type == ncclInt32 || type == ncclInt64;
}

static double load(const void *data, size_t i, ncclDataType_t type)
{
    switch (type) {
    case ncclFloat16:
        return fake_f16_to_float(((const uint16_t *)data)[i]);
    case ncclBfloat16:
        return fake_bf16_to_float(((const uint16_t *)data)[i]);
    case ncclFloat32:
        return ((const float *)data)[i];
    default:
        return ((const double *)data)[i];
    }
}

static void store(void *data, size_t i, ncclDataType_t type, double value)
{
    switch (type) {
    case ncclFloat16:
        ((uint16_t *)data)[i] = fake_float_to_f16((float)value);
        break;
    case ncclBfloat16:
        ((uint16_t *)data)[i] = fake_float_to_bf16((float)value);
        break;
    case ncclFloat32:
        ((float *)data)[i] = (float)value;
        break;
    default:
        ((double *)data)[i] = value;
    }
}

static uint64_t load_whole(const void *data, size_t i, ncclDataType_t type)
{
    switch (type) {
    case ncclUint8:
        return ((const uint8_t *)data)[i];
    case ncclInt32:
        return (uint64_t)(int64_t)((const int32_t *)data)[i];
    default:
        return ((const uint64_t *)data)[i];
    }
}

static void store_whole(void *data, size_t i, ncclDataType_t type, uint64_t value)
{
    switch (type) {
    case ncclUint8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case ncclInt32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)data)[i] = value;
    }
}

static double combine(ncclRedOp_t op, double a, double b)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return a > b ? a : b;
    case ncclMin:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t combine_whole(ncclRedOp_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return (int64_t)a > (int64_t)b ? a : b;
    case ncclMin:
        return (int64_t)a < (int64_t)b ? a : b;
    default:
        return a + b;
    }
}

void fake_nccl_premultiply(const struct fake_nccl_call *call, void *data, size_t count)
{
    double factor = call->factor != NULL ? load(call->factor, 0, call->type)
                                         : 1.0 / call->comm->size;

    if (call->factor == NULL && (call->op != ncclAvg || is_whole(call->type))) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        store(data, i, call->type, load(data, i, call->type) * factor);
    }
}

void fake_nccl_reduce(const struct fake_nccl_call *call, size_t from, size_t count)
{
    struct fake_nccl_shared *shared = call->comm->shared;

    for (size_t i = 0; i < count; i++) {
        size_t at = from + i;

        if (is_whole(call->type)) {
            uint64_t sum = load_whole(shared->inputs[0], at, call->type);

            for (int r = 1; r < call->comm->size; r++) {
                sum = combine_whole(call->op, sum, load_whole(shared->inputs[r], at, call->type));
            }
            store_whole(call->out, i, call->type, sum);
            continue;
        }
        store(call->out, i, call->type, load(shared->inputs[0], at, call->type));
        for (int r = 1; r < call->comm->size; r++) {
            store(call->out, i, call->type,
                  combine(call->op, load(call->out, i, call->type),
                          load(shared->inputs[r], at, call->type)));
        }
    }
}
