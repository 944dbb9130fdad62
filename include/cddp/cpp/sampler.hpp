/** @file
 *  sampler.hpp - the order of a data set (sampler.h) for C++. */
#ifndef CDDP_CPP_SAMPLER_HPP
#define CDDP_CPP_SAMPLER_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/sampler.h>

#include <vector>

namespace cddp
{
inline namespace v0_2
{

/** The order of one data set. cddp_share_of() needs no handle. */
class sampler
{
  public:
    /** The order of a data set of @p count > 0 samples. */
    sampler(cddp_order order, std::uint64_t count, std::uint64_t seed)
    {
        cddp_sampler *made = nullptr;

        check(cddp_sampler_create(order, count, seed, &made));
        handle_.reset(made);
    }
    /** The C handle; this object still owns it. */
    cddp_sampler *get() const noexcept
    {
        return handle_.get();
    }
    /** Set the epoch. */
    void set_epoch(std::uint64_t epoch)
    {
        check(cddp_sampler_set_epoch(get(), epoch));
    }
    /** The index of the sample at @p position. Throws if there is no such position. */
    std::uint64_t operator[](std::uint64_t position) const
    {
        std::uint64_t index = cddp_sampler_at(get(), position);

        if (index == UINT64_MAX) {
            throw error(CDDP_ERR_ARGUMENT, cddp_last_error());
        }
        return index;
    }
    /** How many samples the data set has. */
    std::uint64_t count() const
    {
        return cddp_sampler_count(get());
    }
    /** The indices that PyTorch's DistributedSampler gives to @p rank. */
    std::vector<std::uint64_t> torch_shard(int rank, int world_size, bool drop_last) const
    {
        std::vector<std::uint64_t> out(cddp_torch_shard_count(count(), world_size, drop_last));

        check(cddp_torch_shard(get(), rank, world_size, drop_last, out.data()));
        return out;
    }

  private:
    detail::owner<cddp_sampler, cddp_sampler_destroy> handle_;
};

} // namespace v0_2
} // namespace cddp

#endif
