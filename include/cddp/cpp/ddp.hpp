/** @file
 *  ddp.hpp - one model's gradients (ddp.h) for C++. */
#ifndef CDDP_CPP_DDP_HPP
#define CDDP_CPP_DDP_HPP

#include <cddp/cpp/group.hpp>
#include <cddp/ddp.h>

#include <deque>
#include <type_traits>
#include <vector>

namespace cddp
{
inline namespace v0_2
{

/** The sizes of a tensor's dimensions, row-major; empty for a scalar. */
using shape = std::vector<std::int64_t>;

namespace detail
{

/** Copy @p sizes to @p out, which has room for CDDP_MAX_DIMS, and return the number of elements.
 *  Throws if there are more dimensions, or if a size makes no sense. */
inline std::size_t copy_shape(const std::string &name, const shape &sizes, std::int64_t *out)
{
    std::size_t count = 1;

    if (sizes.size() > CDDP_MAX_DIMS) {
        throw error(CDDP_ERR_ARGUMENT, name + " has " + std::to_string(sizes.size()) +
                                           " dimensions, of which there may be " +
                                           std::to_string(CDDP_MAX_DIMS));
    }
    for (std::size_t d = 0; d < sizes.size(); d++) {
        if (sizes[d] < 0 ||
            (sizes[d] > 0 && count > PTRDIFF_MAX / static_cast<std::size_t>(sizes[d]))) {
            throw error(CDDP_ERR_ARGUMENT, name + " has sizes that no memory has");
        }
        count *= static_cast<std::size_t>(sizes[d]);
        out[d] = sizes[d];
    }
    return count;
}

/** Throw if a tensor's memory has another number of elements than its shape. */
inline void check_count(const std::string &name, std::size_t shaped, std::size_t held)
{
    if (shaped != held) {
        throw error(CDDP_ERR_ARGUMENT, name + " has " + std::to_string(held) +
                                           " numbers, but its "
                                           "shape " +
                                           std::to_string(shaped));
    }
}

} // namespace detail

/** The model to train: its parameters, in the order of their indices, and its buffers. The caller
 *  owns data and gradients, which outlive the ddp object that is made from the model. */
class params
{
  public:
    /** A model without parameters. */
    params() = default;
    /** Can be moved, but not copied: the C structs point to the names. */
    params(params &&) = default;
    /** The same. */
    params &operator=(params &&) = default;
    params(const params &) = delete;
    params &operator=(const params &) = delete;
    ~params() = default;

    /** Add a parameter whose gradient is in memory that cddp allocates: see ddp::grad(). */
    template <class D> params &param(const std::string &name, const shape &sizes, D &&data)
    {
        add(params_, name, sizes, detail::view(std::forward<D>(data)));
        return *this;
    }
    /** Add a parameter, and the memory where backward writes its gradient. */
    template <class D, class G>
    params &param(const std::string &name, const shape &sizes, D &&data, G &&grad)
    {
        auto numbers = detail::view(std::forward<D>(data));
        auto slopes = detail::view(std::forward<G>(grad));

        static_assert(std::is_same_v<decltype(numbers), decltype(slopes)>,
                      "a gradient has its parameter's type");
        detail::check_count("the gradient of " + name, numbers.size(), slopes.size());
        add(params_, name, sizes, numbers).grad = slopes.data();
        return *this;
    }
    /** Add a parameter that is not trained. */
    template <class D> params &frozen(const std::string &name, const shape &sizes, D &&data)
    {
        add(params_, name, sizes, detail::view(std::forward<D>(data))).flags = CDDP_PARAM_FROZEN;
        return *this;
    }
    /** Add a buffer: state without a gradient. */
    template <class D> params &buffer(const std::string &name, const shape &sizes, D &&data)
    {
        add(buffers_, name, sizes, detail::view(std::forward<D>(data)));
        return *this;
    }
    /** The parameters, for the C functions. */
    const std::vector<cddp_param> &list() const
    {
        return params_;
    }
    /** The buffers, for the C functions. */
    const std::vector<cddp_param> &buffers() const
    {
        return buffers_;
    }
    /** How many elements parameter @p index has. */
    std::size_t count(std::size_t index) const
    {
        std::size_t count = 1;

        for (int d = 0; d < params_[index].dims; d++) {
            count *= static_cast<std::size_t>(params_[index].shape[d]);
        }
        return count;
    }

  private:
    template <class T>
    cddp_param &add(std::vector<cddp_param> &to, const std::string &name, const shape &sizes,
                    span<T> data)
    {
        cddp_param made = {};

        detail::check_count(name, detail::copy_shape(name, sizes, made.shape), data.size());
        names_.push_back(name);
        made.name = names_.back().c_str();
        made.type = type_of<T>();
        made.dims = static_cast<int>(sizes.size());
        made.data = data.data();
        to.push_back(made);
        return to.back();
    }

    std::deque<std::string> names_; /* a deque, since its elements do not move */
    std::vector<cddp_param> params_;
    std::vector<cddp_param> buffers_;
};

/** A model's gradients, kept equal across a group. The object keeps the group alive. */
class ddp
{
  public:
    /** The default options. */
    static cddp_ddp_options options()
    {
        cddp_ddp_options how = CDDP_DDP_OPTIONS_INIT;

        return how;
    }
    /** Check that all ranks have the same model, broadcast rank 0's parameters and buffers, and
     *  plan the buckets. Collective. */
    ddp(const group &ranks, const params &what, const cddp_ddp_options &how = options())
        : group_(ranks.share())
    {
        cddp_ddp *made = nullptr;

        check(cddp_ddp_create(group_.get(), what.list().data(), what.list().size(),
                              what.buffers().data(), what.buffers().size(), &how, &made));
        handle_.reset(made);
        for (std::size_t i = 0; i < what.list().size(); i++) {
            types_.push_back(what.list()[i].type);
            counts_.push_back(what.count(i));
        }
    }
    /** The C handle; this object still owns it. */
    cddp_ddp *get() const noexcept
    {
        return handle_.get();
    }
    /** The gradient of parameter @p index. With may_move_grads, its memory may move in the first
     *  wait(): call this again after it. */
    template <class T> span<T> grad(std::size_t index)
    {
        return as<T>(index, index < counts_.size() ? cddp_ddp_grad(get(), index) : nullptr);
    }
    /** How many parameters there are. */
    std::size_t param_count() const noexcept
    {
        return counts_.size();
    }
    /** The name of parameter @p index. */
    std::string param_name(std::size_t index) const
    {
        const char *name = cddp_ddp_param_name(get(), index);

        if (name == nullptr) {
            throw error(CDDP_ERR_ARGUMENT, "there is no parameter " + std::to_string(index));
        }
        return name;
    }
    /** The values of parameter @p index. */
    template <class T> span<T> param(std::size_t index)
    {
        return as<T>(index, index < counts_.size() ? cddp_ddp_param(get(), index) : nullptr);
    }
    /** A step of which this rank has @p samples samples, for begin(). */
    static cddp_step step(std::uint64_t number, std::uint64_t samples)
    {
        cddp_step made = CDDP_STEP_INIT;

        made.number = number;
        made.samples = samples;
        return made;
    }
    /** Begin a backward, before its first gradient is ready. */
    void begin(const cddp_step &what)
    {
        check(cddp_ddp_begin(get(), &what));
    }
    /** Begin the only backward of step @p number, of which this rank has @p samples samples. */
    void begin(std::uint64_t number, std::uint64_t samples)
    {
        begin(step(number, samples));
    }
    /** Backward has finished gradient @p index. */
    void grad_ready(std::size_t index)
    {
        check(cddp_ddp_grad_ready(get(), index));
    }
    /** Backward has finished the gradients of @p count parameters, from @p first on. */
    void grads_ready(std::size_t first, std::size_t count)
    {
        check(cddp_ddp_grads_ready(get(), first, count));
    }
    /** Advance the buckets that have started; does not wait. */
    void progress()
    {
        check(cddp_ddp_progress(get()));
    }
    /** For a rank without a backward in this step: take part in that of the other ranks. True when
     *  no rank had a backward. */
    bool follow()
    {
        bool all = false;

        check(cddp_ddp_follow(get(), &all));
        return all;
    }
    /** Broadcast from rank @p root what @p flags say: CDDP_BROADCAST_PARAMS,
     *  CDDP_BROADCAST_BUFFERS, or both. */
    void broadcast(int root, std::uint32_t flags)
    {
        check(cddp_ddp_broadcast(get(), root, flags));
    }
    /** Save all parameters and buffers to @p path, which rank 0 writes. */
    void save(const std::string &path)
    {
        check(cddp_ddp_save(get(), path.c_str(), nullptr));
    }
    /** Load what save() has saved, on all ranks. */
    void load(const std::string &path)
    {
        check(cddp_ddp_load(get(), path.c_str()));
    }
    /** With shards: copy all parameters, with all ranks' updates, to the memory in the model. */
    void unshard()
    {
        check(cddp_ddp_unshard(get()));
    }
    /** End the backward: after a step's last one, every gradient is the mean over samples. */
    void wait()
    {
        check(cddp_ddp_wait(get()));
    }
    /** With shards: the spans that @p rank updates. */
    span<const cddp_span> spans(int rank) const
    {
        std::size_t count = 0;
        const cddp_span *first = cddp_ddp_spans(get(), rank, &count);

        return {first, count};
    }
    /** With shards: this rank has updated its spans. */
    void params_start()
    {
        check(cddp_ddp_params_start(get()));
    }
    /** With shards: wait until parameter @p index has all ranks' updates. */
    void param_wait(std::size_t index)
    {
        check(cddp_ddp_param_wait(get(), index));
    }
    /** With shards: wait until all parameters have all ranks' updates. */
    void params_wait()
    {
        check(cddp_ddp_params_wait(get()));
    }
    /** The cost of the last synchronised step. */
    cddp_ddp_stats stats() const
    {
        cddp_ddp_stats out = CDDP_DDP_STATS_INIT;

        check(cddp_ddp_get_stats(get(), &out));
        return out;
    }
    /** When bucket @p index of the last synchronised step was reduced. */
    cddp_bucket_stats bucket_stats(std::size_t index) const
    {
        cddp_bucket_stats out = {};

        out.struct_size = sizeof out;
        check(cddp_ddp_get_bucket_stats(get(), index, &out));
        return out;
    }

  private:
    template <class T> span<T> as(std::size_t index, void *data)
    {
        if (data == nullptr || types_[index] != type_of<T>()) {
            throw error(CDDP_ERR_ARGUMENT, "there is no parameter " + std::to_string(index) +
                                               " of this type, or it has no gradient");
        }
        return {static_cast<T *>(data), counts_[index]};
    }

    std::shared_ptr<cddp_group> group_; /* declared first, so it is destroyed last */
    detail::owner<cddp_ddp, cddp_ddp_destroy> handle_;
    std::vector<cddp_type> types_;
    std::vector<std::size_t> counts_;
};

} // namespace v0_2
} // namespace cddp

#endif
