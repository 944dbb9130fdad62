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

/** A tensor's sizes, row-major; empty: a scalar. */
using shape = std::vector<std::int64_t>;

/** How many numbers @p sizes stand for, if they can be copied to @p out of CDDP_MAX_DIMS. */
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

/** Refuse a tensor whose memory has another size than its shape. */
inline void check_count(const std::string &name, std::size_t shaped, std::size_t held)
{
    if (shaped != held) {
        throw error(CDDP_ERR_ARGUMENT, name + " has " + std::to_string(held) +
                                           " numbers, but its "
                                           "shape " +
                                           std::to_string(shaped));
    }
}

/** What is to be trained: parameters in the order of their indices, and buffers. Data and gradients
 *  stay the caller's and outlive the ddp that is made of it. */
class model
{
  public:
    /** A parameter whose gradient lies in cddp's memory: ddp::grad(). */
    template <class D> model &param(const std::string &name, const shape &sizes, D &&data)
    {
        add(params_, name, sizes, view(data));
        return *this;
    }
    /** A parameter and where backward writes its gradient. */
    template <class D, class G>
    model &param(const std::string &name, const shape &sizes, D &&data, G &&grad)
    {
        auto numbers = view(data);
        auto slopes = view(grad);

        static_assert(std::is_same_v<decltype(numbers), decltype(slopes)>,
                      "a gradient has its parameter's type");
        check_count("the gradient of " + name, numbers.size(), slopes.size());
        add(params_, name, sizes, numbers).grad = slopes.data();
        return *this;
    }
    /** A parameter that is not trained. */
    template <class D> model &frozen(const std::string &name, const shape &sizes, D &&data)
    {
        add(params_, name, sizes, view(data)).frozen = true;
        return *this;
    }
    /** State without a gradient. */
    template <class D> model &buffer(const std::string &name, const shape &sizes, D &&data)
    {
        add(buffers_, name, sizes, view(data));
        return *this;
    }
    /** As C has them. */
    const std::vector<cddp_param> &params() const
    {
        return params_;
    }
    /** As C has them. */
    const std::vector<cddp_param> &buffers() const
    {
        return buffers_;
    }
    /** How many numbers parameter @p index has. */
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

        check_count(name, copy_shape(name, sizes, made.shape), data.size());
        names_.push_back(name);
        made.name = names_.back().c_str();
        made.type = type_of<T>();
        made.dims = static_cast<int>(sizes.size());
        made.data = data.data();
        to.push_back(made);
        return to.back();
    }

    std::deque<std::string> names_; /* which do not move */
    std::vector<cddp_param> params_;
    std::vector<cddp_param> buffers_;
};

/** A model's gradients, kept equal across a group, which it keeps. */
class ddp
{
  public:
    /** As they are without a word. */
    static cddp_ddp_options options()
    {
        cddp_ddp_options how = CDDP_DDP_OPTIONS_INIT;

        return how;
    }
    /** Compare manifests, broadcast rank 0's parameters and buffers, plan the buckets. */
    ddp(const group &ranks, const model &what, const cddp_ddp_options &how = options())
        : group_(ranks.share())
    {
        cddp_ddp *made = nullptr;

        check(cddp_ddp_create(group_.get(), what.params().data(), what.params().size(),
                              what.buffers().data(), what.buffers().size(), &how, &made));
        handle_.reset(made);
        for (std::size_t i = 0; i < what.params().size(); i++) {
            types_.push_back(what.params()[i].type);
            counts_.push_back(what.count(i));
        }
    }
    /** The handle of C, which stays this object's. */
    cddp_ddp *get() const noexcept
    {
        return handle_.get();
    }
    /** Where the gradient of parameter @p index lies; ask again after the first wait(). */
    template <class T> span<T> grad(std::size_t index)
    {
        return as<T>(index, index < counts_.size() ? cddp_ddp_grad(get(), index) : nullptr);
    }
    /** Where parameter @p index lies. */
    template <class T> span<T> param(std::size_t index)
    {
        return as<T>(index, index < counts_.size() ? cddp_ddp_param(get(), index) : nullptr);
    }
    /** The coming backward is the mean over @p samples samples. */
    void begin(double samples)
    {
        cddp_step how = CDDP_STEP_INIT;

        how.weight = samples;
        begin(how);
    }
    /** The same of a whole number, as share.count is. */
    template <class T, class = std::enable_if_t<std::is_integral_v<T>>> void begin(T samples)
    {
        begin(static_cast<double>(samples));
    }
    /** The same, as cddp_ddp_begin_samples(). */
    void begin_samples(std::uint64_t samples)
    {
        check(cddp_ddp_begin_samples(get(), samples));
    }
    /** As @p how says. */
    void begin(const cddp_step &how)
    {
        check(cddp_ddp_begin(get(), &how));
    }
    /** The coming backward only accumulates. */
    void begin_no_sync()
    {
        cddp_step how = CDDP_STEP_INIT;

        how.no_sync = true;
        begin(how);
    }
    /** Backward has finished gradient @p index. */
    void grad_ready(std::size_t index)
    {
        check(cddp_ddp_grad_ready(get(), index));
    }
    /** Backward has finished the @p count gradients from @p first on. */
    void grads_ready(std::size_t first, std::size_t count)
    {
        check(cddp_ddp_grads_ready(get(), first, count));
    }
    /** Let what was started move on; does not wait. */
    void progress()
    {
        check(cddp_ddp_progress(get()));
    }
    /** This rank has no more batches: take part in a step of the others. True: all are through. */
    bool join()
    {
        bool all = false;

        check(cddp_ddp_join(get(), &all));
        return all;
    }
    /** Make every rank's parameters, buffers, or both those of @p root. */
    void broadcast(int root, bool params, bool buffers)
    {
        check(cddp_ddp_broadcast(get(), root, params, buffers));
    }
    /** Write the parameters, whole, to the memory that was registered. */
    void unshard()
    {
        check(cddp_ddp_unshard(get()));
    }
    /** Wait until every gradient is the mean over ranks. */
    void wait()
    {
        check(cddp_ddp_wait(get()));
    }
    /** What @p rank updates, with shards. */
    span<const cddp_span> spans(int rank) const
    {
        std::size_t count = 0;
        const cddp_span *first = cddp_ddp_spans(get(), rank, &count);

        return {first, count};
    }
    /** The mean of a piece of a gradient, in the gradient or in @p scratch, with shards. */
    template <class T>
    const T *mean(std::size_t index, std::size_t first, std::size_t count, T *scratch)
    {
        return static_cast<const T *>(cddp_ddp_mean(get(), index, first, count, scratch));
    }
    /** This rank has updated its spans. */
    void updated()
    {
        check(cddp_ddp_updated(get()));
    }
    /** Wait until parameter @p index has all ranks' updates. */
    void param_wait(std::size_t index)
    {
        check(cddp_ddp_param_wait(get(), index));
    }
    /** The same for all. */
    void params_wait()
    {
        check(cddp_ddp_params_wait(get()));
    }
    /** What the last synchronised step cost. */
    cddp_ddp_stats stats() const
    {
        cddp_ddp_stats out = CDDP_DDP_STATS_INIT;

        check(cddp_ddp_get_stats(get(), &out));
        return out;
    }
    /** When bucket @p index of that step was reduced. */
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

    std::shared_ptr<cddp_group> group_; /* declared first, so it goes last */
    owner<cddp_ddp, cddp_ddp_destroy> handle_;
    std::vector<cddp_type> types_;
    std::vector<std::size_t> counts_;
};

} // namespace cddp

#endif
