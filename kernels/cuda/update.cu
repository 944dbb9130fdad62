/* update.cu - owns tables of tensors, and the optimizers' update of all of them.
 *
 * An update is limited by memory. AdamW reads parameter, gradient and two moments, and writes all
 * but the gradient, and a 16-bit copy: 30 bytes for each element. So GPT-2 124M moves 3.73 GB,
 * which takes 0.78 ms at the 4.8 TB/s of an H200; 90 % of that is the target. A thread has four
 * loads of 16 bytes in flight; the two blocks of 512 threads on a multiprocessor have 64 KiB in
 * flight, more than the 25 KiB that its share of bandwidth times latency requires.
 *
 * Each element's arithmetic is that of kernels/cpu/per_isa/optim_loops.c, operation by operation,
 * and compiled without contraction (--fmad=false), so both give the same bits. */
#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/tensors.cuh"

namespace
{

enum { THREADS = 512 };

enum kind { SGD, SGD_MOMENTUM, SGD_NESTEROV, ADAMW };

/* The parameters of an update, in the form of kernels. */
struct step {
    const double *lr;
    double weight_decay;
    double beta1, beta2;
    float momentum;
    float beta1_left, beta2_kept, beta2_left, epsilon;
    float grad_scale;
    const float *device_scale;
    const int32_t *skip;
};

/* The parameters of an update for one tensor. */
struct rule {
    float lr, momentum, weight_decay;             /* sgd */
    float keep, step_size, correction2;           /* adamw ... */
    float beta1_left, beta2, beta2_left, epsilon; /* ... */
    float grad_scale;
};

__device__ bool is_skipped(const step &step)
{
    return step.skip != nullptr && *step.skip != 0;
}

/* The same as cddpi_power() of src/trainer/optim/lr_schedule.c, with the same bits. */
__device__ double power(double base, int64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

/* Count this update, with one thread for each tensor. */
__global__ void count_steps(step step, const tensor_entry *entries, tensor_scalars *scalars,
                            unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= count || is_skipped(step)) {
        return;
    }
    int64_t t = *entries[i].steps + 1;

    *entries[i].steps = t;
    scalars[i].step_size = (float)(*step.lr / (1.0 - power(step.beta1, t)));
    scalars[i].correction2 = (float)sqrt(1.0 - power(step.beta2, t));
}

__device__ rule rule_of(const step &step, const tensor_entry &entry, const tensor_scalars &scalars)
{
    double lr = *step.lr;
    rule rule;

    rule.lr = (float)lr;
    rule.momentum = step.momentum;
    rule.weight_decay = entry.decays ? (float)step.weight_decay : 0.0f;
    rule.keep = entry.decays ? (float)(1.0 - lr * step.weight_decay) : 1.0f;
    rule.step_size = scalars.step_size;
    rule.correction2 = scalars.correction2;
    rule.beta1_left = step.beta1_left;
    rule.beta2 = step.beta2_kept;
    rule.beta2_left = step.beta2_left;
    rule.epsilon = step.epsilon;
    rule.grad_scale = step.grad_scale;
    if (step.device_scale != nullptr) {
        rule.grad_scale *= *step.device_scale;
    }
    return rule;
}

template <kind KIND>
__device__ inline void update_one(const rule &s, float &p, float g, float &m, float &v)
{
    if (KIND == ADAMW) {
        float d = g * s.grad_scale;
        float first = m + (d - m) * s.beta1_left;
        float second = v * s.beta2 + s.beta2_left * d * d;
        float scale = sqrtf(second) / s.correction2 + s.epsilon;

        m = first;
        v = second;
        p = p * s.keep - s.step_size * first / scale;
    } else {
        float d = g * s.grad_scale + s.weight_decay * p;

        if (KIND != SGD) {
            float b = s.momentum * m + d;

            m = b;
            d = KIND == SGD_NESTEROV ? d + s.momentum * b : b;
        }
        p = p - s.lr * d;
    }
}

/* The addresses of a piece. */
template <class COPY> struct update_place {
    float *p;
    const float *g;
    float *m, *v;
    COPY *copy;
};

template <kind KIND, class COPY>
__device__ void update_scalar(const rule &rule, const update_place<COPY> &at, size_t i)
{
    float p = at.p[i];
    float m = KIND != SGD ? at.m[i] : 0;
    float v = KIND == ADAMW ? at.v[i] : 0;

    update_one<KIND>(rule, p, at.g[i], m, v);
    at.p[i] = p;
    if (KIND != SGD) {
        at.m[i] = m;
    }
    if (KIND == ADAMW) {
        at.v[i] = v;
    }
    if (at.copy != nullptr) {
        at.copy[i] = number<COPY>::store(p);
    }
}

/* Four elements from @p i on, a multiple of four; all pointers are aligned. */
template <kind KIND, class COPY>
__device__ void update_packed(const rule &rule, const update_place<COPY> &at, size_t i)
{
    struct alignas(4 * sizeof(COPY)) copies {
        COPY at[4];
    };
    typedef pack<float> four;
    four p = *(const four *)(at.p + i);
    four g = *(const four *)(at.g + i);
    four m = {};
    four v = {};
    copies copy;

    if (KIND != SGD) {
        m = *(const four *)(at.m + i);
    }
    if (KIND == ADAMW) {
        v = *(const four *)(at.v + i);
    }
    CDDPI_UNROLL
    for (int k = 0; k < 4; k++) {
        update_one<KIND>(rule, p.at[k], g.at[k], m.at[k], v.at[k]);
        copy.at[k] = number<COPY>::store(p.at[k]);
    }
    *(four *)(at.p + i) = p;
    if (KIND != SGD) {
        *(four *)(at.m + i) = m;
    }
    if (KIND == ADAMW) {
        *(four *)(at.v + i) = v;
    }
    if (at.copy != nullptr) {
        *(copies *)(at.copy + i) = copy;
    }
}

template <kind KIND, class COPY>
__global__ void __launch_bounds__(THREADS)
    update_piece(step step, const tensor_entry *entries, const tensor_scalars *scalars,
                 const tensor_piece *pieces)
{
    tensor_piece piece = pieces[blockIdx.x];
    const tensor_entry &entry = entries[piece.tensor];
    size_t first = (size_t)piece.index * CDDPI_PIECE;
    size_t left = entry.count - first;
    size_t n = left < CDDPI_PIECE ? left : CDDPI_PIECE;
    size_t packed = entry.packed ? n / 4 * 4 : 0;

    if (is_skipped(step)) {
        return;
    }
    rule rule = rule_of(step, entry, scalars[piece.tensor]);
    update_place<COPY> at = {entry.param + first, entry.grad + first,
                             KIND != SGD ? entry.first + first : nullptr,
                             KIND == ADAMW ? entry.second + first : nullptr,
                             entry.copy != nullptr ? (COPY *)entry.copy + first : nullptr};

    for (size_t i = (size_t)threadIdx.x * 4; i < packed; i += THREADS * 4) {
        update_packed<KIND>(rule, at, i);
    }
    for (size_t i = packed + threadIdx.x; i < n; i += THREADS) {
        update_scalar<KIND>(rule, at, i);
    }
}

template <kind KIND, class COPY>
cudaError_t launch_update(const step &step, const cddpi_cuda_tensors &tensors, cudaStream_t stream)
{
    tensor_table table = tensor_table_at(tensors.table, tensors.slots, tensors.pieces);

    if (KIND == ADAMW) {
        cudaError_t error = CDDPI_LAUNCH(count_steps, blocks_for(tensors.slots, 256, 1), 256, 0,
                                         stream, step, table.entries, table.scalars,
                                         (unsigned)tensors.slots);

        if (error != cudaSuccess) {
            return error;
        }
    }
    return CDDPI_LAUNCH((update_piece<KIND, COPY>), (unsigned)tensors.pieces, THREADS, 0, stream,
                        step, table.entries, table.scalars, table.pieces);
}

template <class COPY>
cudaError_t launch_kind(const cddpi_cuda_update &update, const step &step,
                        const cddpi_cuda_tensors &tensors, cudaStream_t stream)
{
    if (update.adamw) {
        return launch_update<ADAMW, COPY>(step, tensors, stream);
    }
    if (update.momentum == 0) {
        return launch_update<SGD, COPY>(step, tensors, stream);
    }
    return update.nesterov ? launch_update<SGD_NESTEROV, COPY>(step, tensors, stream)
                           : launch_update<SGD_MOMENTUM, COPY>(step, tensors, stream);
}

cddp_status update(struct cddpi_device *device, const struct cddpi_cuda_update *update,
                   const struct cddpi_cuda_tensors *tensors)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error;
    step step = {update->lr,           update->weight_decay,         update->beta1,
                 update->beta2,        (float)update->momentum,      (float)(1.0 - update->beta1),
                 (float)update->beta2, (float)(1.0 - update->beta2), (float)update->epsilon,
                 update->grad_scale,   update->device_scale,         update->skip};

    if (tensors->pieces == 0) {
        return CDDP_OK;
    }
    switch (update->copy_type) {
    case CDDP_BF16:
        error = launch_kind<__nv_bfloat16>(*update, step, *tensors, stream);
        break;
    case CDDP_F16:
        error = launch_kind<__half>(*update, step, *tensors, stream);
        break;
    case CDDP_F32:
        error = launch_kind<float>(*update, step, *tensors, stream);
        break;
    default:
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "update: copies cannot be of type %d",
                         (int)update->copy_type);
    }
    return cddpi_cuda_status(device, error, "update", __FILE__, __LINE__);
}

size_t pieces_of(const struct cddpi_cuda_slot *slots, size_t count)
{
    size_t pieces = 0;

    for (size_t i = 0; i < count; i++) {
        pieces += (slots[i].count + CDDPI_PIECE - 1) / CDDPI_PIECE;
    }
    return pieces;
}

size_t tensors_bytes(const struct cddpi_cuda_slot *slots, size_t count)
{
    return tensor_table_at(nullptr, count, pieces_of(slots, count)).bytes;
}

void fill_table(const tensor_table &table, const struct cddpi_cuda_slot *slots, size_t count)
{
    size_t next = 0;

    for (size_t i = 0; i < count; i++) {
        const struct cddpi_cuda_slot *slot = &slots[i];
        bool packed = packs(slot->param) && packs(slot->grad) && packs(slot->first) &&
                      packs(slot->second) && packs((const char *)slot->copy);

        table.entries[i] = {slot->param, slot->grad,  slot->first,  slot->second, slot->copy,
                            slot->steps, slot->count, slot->decays, packed};
        table.scalars[i] = {};
        for (size_t at = 0; at < slot->count; at += CDDPI_PIECE) {
            table.pieces[next++] = {(uint32_t)i, (uint32_t)(at / CDDPI_PIECE)};
        }
    }
    if (next > 0) {
        *table.squares = {};
    }
}

cddp_status upload(struct cddpi_device *device, const void *from, void *to, size_t bytes)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);

    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(stream);
    }
    return cddpi_cuda_status(device, error, "copy of a table of tensors", __FILE__, __LINE__);
}

cddp_status tensors(struct cddpi_device *device, const struct cddpi_cuda_slot *slots, size_t count,
                    void *table, struct cddpi_cuda_tensors *out)
{
    struct cddpi_cuda_tensors made = {table, count, pieces_of(slots, count)};
    tensor_table host;
    void *memory;
    cddp_status status;

    if (cddpi_cuda_capturing(device)) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "update: a table of tensors cannot be captured");
    }
    if (count > 65536 || made.pieces > INT32_MAX) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
                         "update: %zu tensors in %zu pieces are too many", count, made.pieces);
    }
    for (size_t i = 0; i < count; i++) {
        if (slots[i].count == 0 || slots[i].param == nullptr || slots[i].grad == nullptr) {
            return cuda_fail(device, CDDP_ERR_ARGUMENT, "update: tensor %zu of %zu has no %s", i,
                             count,
                             slots[i].count == 0         ? "elements"
                             : slots[i].param == nullptr ? "parameter"
                                                         : "gradient");
        }
    }
    if (count > 0) {
        status = cddpi_cuda_pin(device, tensors_bytes(slots, count), &memory);
        if (status != CDDP_OK) {
            return status;
        }
        host = tensor_table_at(memory, count, made.pieces);
        fill_table(host, slots, count);
        status = upload(device, memory, table, host.bytes);
        cddpi_cuda_unpin(device, memory);
        if (status != CDDP_OK) {
            return status;
        }
    }
    *out = made;
    return CDDP_OK;
}

} // namespace

void cddpi_cuda_fill_update(struct cddpi_cuda_kernels *out)
{
    out->tensors = tensors;
    out->tensors_bytes = tensors_bytes;
    out->update = update;
}
