/* dropout.cu - owns dropout with the random numbers of the CPU
 * (kernels/cpu/per_isa/dropout_loops.c). Backward draws them again instead of saving them.
 *
 * One read and one write: 2 x 48 MiB for 32768 x 768 of bf16, 21 us at 4.8 TB/s. Four elements need
 * one Philox4x32-10, about 80 instructions, 20 of them wide multiplications. On an H200 (132 SMs x
 * 128 lanes at 1.7 GHz) these 25 million elements take about 20 us. So arithmetic and memory take
 * equally long; they overlap, because a thread draws while its vector is in flight. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256 };
const size_t MOST_SAMPLES = 65535; /* limit of a grid's y dimension */

struct stream_words {
    uint32_t key0, key1, purpose, index;
};

/* Philox4x32-10 (base/philox.h). */
__device__ __forceinline__ uint4 philox(const stream_words &stream, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter;
    uint32_t c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = stream.purpose;
    uint32_t c3 = stream.index;
    uint32_t k0 = stream.key0;
    uint32_t k1 = stream.key1;

    CDDPI_UNROLL
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ __forceinline__ stream_words load_stream(const uint32_t *streams, size_t sample)
{
    const uint32_t *s = streams + 4 * sample;

    return {s[0], s[1], s[2], s[3]};
}

__device__ __forceinline__ float kept(float x, uint32_t word, uint32_t threshold, float scale)
{
    return word >= threshold ? x * scale : 0.0f;
}

/* For samples that consist of whole vectors. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    drop_vectors(const uint32_t *streams, uint32_t threshold, float scale, const T *x,
                 size_t samples, size_t elements, T *out)
{
    constexpr int N = packed<T>::N;
    size_t v = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (v >= elements / N) {
        return;
    }
    for (size_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
        size_t at = sample * elements + v * N;
        uint4 words = load_words(x + at);
        stream_words stream = load_stream(streams, sample);
        uint4 random[N / 4];
        float element[N];

        CDDPI_UNROLL
        for (int i = 0; i < N / 4; i++) {
            random[i] = philox(stream, (uint64_t)v * (N / 4) + (uint64_t)i);
        }
        packed<T>::unpack(words, element);
        CDDPI_UNROLL
        for (int i = 0; i < N / 4; i++) {
            element[4 * i] = kept(element[4 * i], random[i].x, threshold, scale);
            element[4 * i + 1] = kept(element[4 * i + 1], random[i].y, threshold, scale);
            element[4 * i + 2] = kept(element[4 * i + 2], random[i].z, threshold, scale);
            element[4 * i + 3] = kept(element[4 * i + 3], random[i].w, threshold, scale);
        }
        store_words(out + at, packed<T>::pack(element));
    }
}

/* For any number of samples: a thread handles the four elements of one counter. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    drop_fours(const uint32_t *streams, uint32_t threshold, float scale, const T *x, size_t samples,
               size_t elements, T *out)
{
    size_t counter = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (size_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
        uint4 random = philox(load_stream(streams, sample), counter);
        const uint32_t word[4] = {random.x, random.y, random.z, random.w};

        CDDPI_UNROLL
        for (int i = 0; i < 4; i++) {
            size_t e = counter * 4 + (size_t)i;
            size_t at = sample * elements + e;

            if (e < elements) {
                out[at] = from_float<T>(kept(to_float(x[at]), word[i], threshold, scale));
            }
        }
    }
}

template <class T>
cddp_status dropout_as(cddpi_device *device, const uint32_t *streams, uint32_t threshold,
                       float scale, const void *x, size_t samples, size_t elements, void *out)
{
    constexpr size_t N = packed<T>::N;
    bool vectors = elements % N == 0;
    size_t threads = cddpi_ceil(elements, vectors ? N : 4);
    unsigned block = threads < BLOCK ? (unsigned)cddpi_ceil(threads, CDDPI_WARP) * CDDPI_WARP
                                     : (unsigned)BLOCK;
    dim3 grid((unsigned)cddpi_ceil(threads, block),
              (unsigned)(samples < MOST_SAMPLES ? samples : MOST_SAMPLES));
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    const T *from = static_cast<const T *>(x);
    T *to = static_cast<T *>(out);
    cudaError_t error = vectors ? CDDPI_LAUNCH((drop_vectors<T>), grid, block, 0, stream, streams,
                                               threshold, scale, from, samples, elements, to)
                                : CDDPI_LAUNCH((drop_fours<T>), grid, block, 0, stream, streams,
                                               threshold, scale, from, samples, elements, to);

    return CDDPI_STARTED(device, "dropout", error);
}

cddp_status dropout(cddpi_device *device, cddp_type type, const uint32_t *streams,
                    uint32_t threshold, float scale, const void *x, size_t samples, size_t elements,
                    void *out)
{
    if (samples == 0 || elements == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, dropout_as, device, streams, threshold, scale, x, samples, elements,
                         out);
}
} // namespace

void cddpi_cuda_fill_dropout(struct cddpi_cuda_kernels *out)
{
    out->dropout = dropout;
}
