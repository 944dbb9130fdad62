/* trainer_alone.cpp - a small convolutional network in plain C++ that tells discs, frames and
 * crosses apart: its own layers, backward and SGD. cddp.patch makes it data-parallel. */
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

constexpr int edge = 12;
constexpr int samples = 600;
constexpr int batch = 32;
constexpr int steps = 200;
constexpr int classes = 3;
constexpr int stride = 317; /* no divisor of samples: an order that visits each of them */
constexpr float learning_rate = 0.15f;

using numbers = std::vector<float>;

/* Uniform in [-1, 1). */
class random_numbers
{
  public:
    explicit random_numbers(std::uint64_t seed) : state_(seed)
    {
    }
    float next()
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<float>(state_ >> 40) * 0x1p-23f - 1.0f;
    }

  private:
    std::uint64_t state_;
};

struct image {
    std::array<float, edge * edge> pixels;
    int label;
};

static image draw(int label, random_numbers &random)
{
    image made = {{}, label};
    const float middle_x = 5.5f + 2.0f * random.next();
    const float middle_y = 5.5f + 2.0f * random.next();
    const float radius = 3.0f + random.next();

    for (int y = 0; y < edge; y++) {
        for (int x = 0; x < edge; x++) {
            const float dx = std::fabs(static_cast<float>(x) - middle_x);
            const float dy = std::fabs(static_cast<float>(y) - middle_y);
            const float far = std::max(dx, dy);
            const bool disc = dx * dx + dy * dy < radius * radius;
            const bool frame = far < radius && far > radius - 1.2f;
            const bool cross = far < radius && std::fabs(dx - dy) < 1.0f;
            const bool drawn = label == 0 ? disc : label == 1 ? frame : cross;

            made.pixels[static_cast<std::size_t>(y * edge + x)] = (drawn ? 1.0f : 0.0f) +
                                                                  0.4f * random.next();
        }
    }
    return made;
}

/* What a layer learns, and its gradient. */
struct weights {
    numbers value, grad;

    weights(int count, float scale, random_numbers &random)
        : value(static_cast<std::size_t>(count)), grad(static_cast<std::size_t>(count))
    {
        for (float &one : value) {
            one = scale * random.next();
        }
    }
};

/* Works on one sample at a time; gradients add up until they are cleared. */
class layer
{
  public:
    virtual ~layer() = default;
    virtual void forward(const numbers &in, numbers &out) = 0;
    /* @p in and @p out as at the forward; @p d_in may be left alone by the first layer. */
    virtual void backward(const numbers &in, const numbers &out, const numbers &d_out,
                          numbers &d_in) = 0;
    virtual std::vector<weights *> learnt()
    {
        return {};
    }
};

/* 3 x 3 windows over maps of side x side, then tanh: maps of (side - 2) x (side - 2). */
class convolution : public layer
{
  public:
    convolution(int from, int to, int side, random_numbers &random)
        : from_(from), to_(to), side_(side),
          kernel_(to * from * 9, std::sqrt(3.0f / static_cast<float>(from * 9)), random),
          bias_(to, 0.0f, random)
    {
    }
    void forward(const numbers &in, numbers &out) override
    {
        const int inner = side_ - 2;

        out.assign(static_cast<std::size_t>(to_ * inner * inner), 0.0f);
        for (int o = 0; o < to_; o++) {
            for (int at = 0; at < inner * inner; at++) {
                float sum = bias_.value[index(o)];

                for (int k = 0; k < from_ * 9; k++) {
                    sum += kernel_.value[index(o * from_ * 9 + k)] * in[under(at, k)];
                }
                out[index(o * inner * inner + at)] = std::tanh(sum);
            }
        }
    }
    void backward(const numbers &in, const numbers &out, const numbers &d_out,
                  numbers &d_in) override
    {
        const int inner = side_ - 2;

        d_in.assign(in.size(), 0.0f);
        for (int i = 0; i < to_ * inner * inner; i++) {
            const int o = i / (inner * inner);
            const float d = d_out[index(i)] * (1.0f - out[index(i)] * out[index(i)]);

            bias_.grad[index(o)] += d;
            for (int k = 0; k < from_ * 9; k++) {
                const std::size_t at = under(i % (inner * inner), k);

                kernel_.grad[index(o * from_ * 9 + k)] += d * in[at];
                d_in[at] += d * kernel_.value[index(o * from_ * 9 + k)];
            }
        }
    }
    std::vector<weights *> learnt() override
    {
        return {&kernel_, &bias_};
    }

  private:
    static std::size_t index(int i)
    {
        return static_cast<std::size_t>(i);
    }
    /* Where weight @p k of the window at @p at reads. */
    std::size_t under(int at, int k) const
    {
        const int inner = side_ - 2;
        const int y = at / inner + k % 9 / 3;
        const int x = at % inner + k % 3;

        return index((k / 9 * side_ + y) * side_ + x);
    }

    int from_, to_, side_;
    weights kernel_, bias_;
};

/* The mean over 2 x 2 of each map. */
class pooling : public layer
{
  public:
    explicit pooling(int side) : side_(side)
    {
    }
    void forward(const numbers &in, numbers &out) override
    {
        out.assign(in.size() / 4, 0.0f);
        for (std::size_t i = 0; i < in.size(); i++) {
            out[above(i)] += 0.25f * in[i];
        }
    }
    void backward(const numbers &in, const numbers &, const numbers &d_out, numbers &d_in) override
    {
        d_in.resize(in.size());
        for (std::size_t i = 0; i < in.size(); i++) {
            d_in[i] = 0.25f * d_out[above(i)];
        }
    }

  private:
    std::size_t above(std::size_t i) const
    {
        const auto side = static_cast<std::size_t>(side_);

        return (i / side / side * (side / 2) + i / side % side / 2) * (side / 2) + i % side / 2;
    }

    int side_;
};

class dense : public layer
{
  public:
    dense(int from, int to, random_numbers &random)
        : weight_(from * to, std::sqrt(3.0f / static_cast<float>(from)), random),
          bias_(to, 0.0f, random)
    {
    }
    void forward(const numbers &in, numbers &out) override
    {
        out = bias_.value;
        for (std::size_t i = 0; i < weight_.value.size(); i++) {
            out[i / in.size()] += weight_.value[i] * in[i % in.size()];
        }
    }
    void backward(const numbers &in, const numbers &, const numbers &d_out, numbers &d_in) override
    {
        d_in.assign(in.size(), 0.0f);
        for (std::size_t o = 0; o < d_out.size(); o++) {
            bias_.grad[o] += d_out[o];
        }
        for (std::size_t i = 0; i < weight_.value.size(); i++) {
            weight_.grad[i] += d_out[i / in.size()] * in[i % in.size()];
            d_in[i % in.size()] += d_out[i / in.size()] * weight_.value[i];
        }
    }
    std::vector<weights *> learnt() override
    {
        return {&weight_, &bias_};
    }

  private:
    weights weight_, bias_;
};

class network
{
  public:
    explicit network(random_numbers &random)
    {
        layers_.push_back(std::make_unique<convolution>(1, 6, edge, random));
        layers_.push_back(std::make_unique<pooling>(edge - 2));
        layers_.push_back(std::make_unique<convolution>(6, 8, 5, random));
        layers_.push_back(std::make_unique<dense>(8 * 3 * 3, classes, random));
    }
    /* Every weight, the first layer's first. */
    std::vector<weights *> learnt()
    {
        std::vector<weights *> all;

        for (const auto &one : layers_) {
            for (weights *part : one->learnt()) {
                all.push_back(part);
            }
        }
        return all;
    }
    /* Gradients of the mean loss over samples [first, first + count) of the endless sequence;
     * returns the sum of their losses. */
    double learn(const std::vector<image> &images, std::uint64_t first, int count)
    {
        double loss = 0;

        for (weights *part : learnt()) {
            std::fill(part->grad.begin(), part->grad.end(), 0.0f);
        }
        for (int n = 0; n < count; n++) {
            const auto at = (first + static_cast<std::uint64_t>(n)) * stride % samples;

            loss += learn_one(images[at], static_cast<float>(count));
        }
        return loss;
    }

  private:
    double learn_one(const image &image, float count)
    {
        std::vector<numbers> held(layers_.size() + 1);
        numbers d, below;
        float sum = 0;

        held[0].assign(image.pixels.begin(), image.pixels.end());
        for (std::size_t l = 0; l < layers_.size(); l++) {
            layers_[l]->forward(held[l], held[l + 1]);
        }
        d = held.back(); /* softmax, then the cross-entropy's derivative */
        for (float &one : d) {
            one = std::exp(one);
            sum += one;
        }
        for (float &one : d) {
            one /= sum;
        }
        const double loss = -std::log(
            static_cast<double>(d[static_cast<std::size_t>(image.label)]));
        d[static_cast<std::size_t>(image.label)] -= 1.0f;
        for (float &one : d) {
            one /= count;
        }
        for (std::size_t l = layers_.size(); l-- > 0;) {
            layers_[l]->backward(held[l], held[l + 1], d, below);
            std::swap(d, below);
        }
        return loss;
    }

    std::vector<std::unique_ptr<layer>> layers_;
};

/* FNV-1a over all weights: equal bits, equal sums. */
static std::uint64_t checksum(network &net)
{
    std::uint64_t hash = 14695981039346656037u;

    for (const weights *part : net.learnt()) {
        const auto *bytes = reinterpret_cast<const unsigned char *>(part->value.data());

        for (std::size_t i = 0; i < part->value.size() * sizeof(float); i++) {
            hash = (hash ^ bytes[i]) * 1099511628211u;
        }
    }
    return hash;
}

int main()
{
    random_numbers random(1);
    std::vector<image> images;
    network net(random);

    for (int i = 0; i < samples; i++) {
        images.push_back(draw(i % classes, random));
    }
    for (int step = 0; step < steps; step++) {
        auto first = static_cast<std::uint64_t>(step) * batch;
        int count = batch;
        double loss = net.learn(images, first, count);

        for (weights *part : net.learnt()) {
            for (std::size_t i = 0; i < part->value.size(); i++) {
                part->value[i] -= learning_rate * part->grad[i];
            }
        }
        if (step % 20 == 0 || step == steps - 1) {
            std::printf("step %d loss %.9g\n", step, loss / batch);
        }
    }
    std::printf("weights %016llx\n", static_cast<unsigned long long>(checksum(net)));
    return 0;
}
