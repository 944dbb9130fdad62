/** @file
 *  group.hpp - process groups and their collectives (group.h) for C++. */
#ifndef CDDP_CPP_GROUP_HPP
#define CDDP_CPP_GROUP_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/group.h>

#include <optional>

namespace cddp
{
inline namespace v0_2
{

/** Memory from cddp_group_alloc(), which keeps its group alive. Every rank releases its blocks in
 *  the same order. */
template <class T> class memory
{
  public:
    /** Allocate @p count numbers. @p flags as for cddp_group_alloc(). */
    memory(std::shared_ptr<cddp_group> group, std::size_t count, std::uint32_t flags)
        : group_(std::move(group)), count_(count)
    {
        void *made = nullptr;

        if (count > SIZE_MAX / sizeof(T)) {
            throw error(CDDP_ERR_ARGUMENT, "memory: the size of so many numbers is no size");
        }
        check(cddp_group_alloc(group_.get(), count * sizeof(T), flags, &made));
        data_ = static_cast<T *>(made);
    }
    /** Afterwards, @p other is empty. */
    memory(memory &&other) noexcept
        : group_(std::move(other.group_)), data_(std::exchange(other.data_, nullptr)),
          count_(std::exchange(other.count_, 0))
    {
    }
    /** Releases the block that this object owned before. */
    memory &operator=(memory other) noexcept
    {
        std::swap(group_, other.group_);
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~memory()
    {
        if (data_ != nullptr) {
            cddp_group_free(group_.get(), data_);
        }
    }
    /** The first number. */
    T *data() const noexcept
    {
        return data_;
    }
    /** How many numbers. */
    std::size_t size() const noexcept
    {
        return count_;
    }

  private:
    std::shared_ptr<cddp_group> group_;
    T *data_ = nullptr;
    std::size_t count_ = 0;
};

/** The ranks that train together. Objects made from a group (ddp, memory) keep its C handle alive,
 *  so objects may be destroyed in any order. The last parameter of a collective is as in C: without
 *  it, the call waits; with it, the call returns at once, and the work handle tells when the
 *  operation is done. */
class group
{
  public:
    /** Join the group that the launcher describes. */
    group() : group(options())
    {
    }
    /** Join with the options @p how, which start out as options(). */
    explicit group(const cddp_group_options &how) : group(create(&how))
    {
    }
    /** Join the processes that @p by connects. */
    group(const cddp_bootstrap &by, const cddp_group_options &how)
    {
        cddp_group *made = nullptr;

        check(cddp_group_create_by(&by, &how, &made));
        own(made);
    }
    /** Take ownership of a C handle, such as one from cddp_group_create_from_mpi(). */
    explicit group(cddp_group *handle)
    {
        own(handle);
    }
    /** The default options. */
    static cddp_group_options options()
    {
        cddp_group_options how = CDDP_GROUP_OPTIONS_INIT;

        return how;
    }
    /** Afterwards, @p other may only be destroyed or assigned to. */
    group(group &&other) noexcept = default;
    /** The group that this object had is left, once no other object keeps it alive. */
    group &operator=(group &&other) noexcept = default;
    group(const group &) = delete;
    group &operator=(const group &) = delete;
    ~group() = default;

    /** The C handle; this object still owns it. */
    cddp_group *get() const noexcept
    {
        return handle_.get();
    }
    /** The C handle, shared with objects that must not outlive it. */
    const std::shared_ptr<cddp_group> &share() const noexcept
    {
        return handle_;
    }
    /** What the group is now, in one piece. */
    cddp_group_info info() const
    {
        cddp_group_info now = CDDP_GROUP_INFO_INIT;

        check(cddp_group_get_info(get(), &now));
        return now;
    }
    /** This process's rank. */
    int rank() const
    {
        return cddp_group_rank(get());
    }
    /** How many ranks there are. */
    int world_size() const
    {
        return cddp_group_world_size(get());
    }
    /** This process's rank on its machine. */
    int local_rank() const
    {
        return info().local_rank;
    }
    /** How many ranks of the group are on this machine. */
    int local_world_size() const
    {
        return info().local_world_size;
    }
    /** The generation of the job in which the group was created. */
    std::uint32_t generation() const
    {
        return info().generation;
    }
    /** The time limit of each collective. */
    std::uint32_t timeout_ms() const
    {
        return info().timeout_ms;
    }
    /** The name of the backend. */
    std::string backend() const
    {
        return info().backend;
    }
    /** The number of the device; -1: the CPU. */
    int device() const
    {
        return info().device;
    }
    /** The compute stream, a cudaStream_t. */
    void *stream() const
    {
        return info().stream;
    }
    /** Set the time limit of operations that start from now on; 0: the default. */
    void set_timeout(std::uint32_t timeout_ms)
    {
        check(cddp_group_set_timeout(get(), timeout_ms));
    }
    /** The rank here of rank @p rank in @p part; -1: it is not in this group. */
    int translate(const group &part, int rank) const
    {
        return cddp_group_translate(part.get(), rank, get());
    }
    /** Make @p stream the compute stream. */
    void set_stream(void *stream)
    {
        check(cddp_group_set_stream(get(), stream));
    }
    /** A new group of the ranks with the same @p color; empty if @p color is negative. Collective.
     */
    std::optional<group> split(int color, int key)
    {
        cddp_group *part = nullptr;

        check(cddp_group_split(get(), color, key, &part));
        return part == nullptr ? std::nullopt : std::optional<group>(group(part));
    }
    /** Break the group on every rank. Any thread. */
    void abort(const std::string &reason)
    {
        cddp_group_abort(get(), reason.c_str());
    }
    /** Allocate @p count numbers, zeroed, in memory that the backend reduces fastest, or with
     *  CDDP_ALLOC_HOST in CPU memory. Collective. */
    template <class T> memory<T> alloc(std::size_t count, std::uint32_t flags = 0)
    {
        return memory<T>(handle_, count, flags);
    }

    /** Reduce @p data in place. */
    template <class D> void all_reduce(D &&data, cddp_op op = CDDP_OP_SUM, work *started = nullptr)
    {
        all_reduce(detail::view(data), detail::view(std::forward<D>(data)), op, started);
    }
    /** out[i] = op over all ranks of in[i]. */
    template <class I, class O>
    void all_reduce(I &&in, O &&out, cddp_op op, work *started = nullptr)
    {
        auto [from, to] = pair("all_reduce", std::forward<I>(in), std::forward<O>(out), 1, 1);

        call(started, cddp_all_reduce, from.data(), to.data(), from.size(), type(to), op);
    }
    /** Replace @p data by its mean over ranks, weighted by each rank's @p weight. */
    template <class D> void all_reduce_weighted(D &&data, double weight, work *started = nullptr)
    {
        auto all = detail::view(std::forward<D>(data));

        call(started, cddp_all_reduce_weighted, all.data(), all.data(), all.size(), type(all),
             weight);
    }
    /** Like all_reduce(), but only rank @p root gets the result. On other ranks, @p out may be
     *  empty. */
    template <class I, class O>
    void reduce(I &&in, O &&out, cddp_op op, int root, work *started = nullptr)
    {
        auto [from, to] = pair("reduce", std::forward<I>(in), std::forward<O>(out), 1,
                               rank() == root ? 1 : 0);

        call(started, cddp_reduce, from.data(), to.data(), from.size(), type(to), op, root);
    }
    /** Copy the @p data of rank @p root to every rank's @p data. */
    template <class D> void broadcast(D &&data, int root, work *started = nullptr)
    {
        auto all = detail::view(std::forward<D>(data));

        call(started, cddp_broadcast, all.data(), all.size(), type(all), root);
    }
    /** Gather every rank's @p in, in rank order: @p out is world_size times as long as @p in. */
    template <class I, class O> void all_gather(I &&in, O &&out, work *started = nullptr)
    {
        auto [from, to] = pair("all_gather", std::forward<I>(in), std::forward<O>(out), 1,
                               world_size());

        call(started, cddp_all_gather, from.data(), to.data(), from.size(), type(to));
    }
    /** Reduce @p in, and give each rank its block: @p in is world_size times as long as @p out. */
    template <class I, class O>
    void reduce_scatter(I &&in, O &&out, cddp_op op, work *started = nullptr)
    {
        auto [from, to] = pair("reduce_scatter", std::forward<I>(in), std::forward<O>(out),
                               world_size(), 1);

        call(started, cddp_reduce_scatter, from.data(), to.data(), to.size(), type(to), op);
    }
    /** Like reduce_scatter(), with the weighted mean of all_reduce_weighted(). */
    template <class I, class O>
    void reduce_scatter_weighted(I &&in, O &&out, double weight, work *started = nullptr)
    {
        auto [from, to] = pair("reduce_scatter", std::forward<I>(in), std::forward<O>(out),
                               world_size(), 1);

        call(started, cddp_reduce_scatter_weighted, from.data(), to.data(), to.size(), type(to),
             weight);
    }
    /** Gather every rank's @p in on rank @p root, where @p out is world_size times as long. On
     *  other ranks, @p out may be empty. */
    template <class I, class O> void gather(I &&in, O &&out, int root, work *started = nullptr)
    {
        auto [from, to] = pair("gather", std::forward<I>(in), std::forward<O>(out), 1,
                               rank() == root ? world_size() : 0);

        call(started, cddp_gather, from.data(), to.data(), from.size(), type(to), root);
    }
    /** Give each rank its block of the @p in of rank @p root, where it is world_size times as long
     *  as @p out. On other ranks, @p in may be empty. */
    template <class I, class O> void scatter(I &&in, O &&out, int root, work *started = nullptr)
    {
        auto [from, to] = pair("scatter", std::forward<I>(in), std::forward<O>(out),
                               rank() == root ? world_size() : 0, 1);

        call(started, cddp_scatter, from.data(), to.data(), to.size(), type(to), root);
    }
    /** Block r of @p in goes to rank r. */
    template <class I, class O> void all_to_all(I &&in, O &&out, work *started = nullptr)
    {
        auto [from, to] = pair("all_to_all", std::forward<I>(in), std::forward<O>(out), 1, 1);

        if (from.size() % static_cast<std::size_t>(world_size()) != 0) {
            throw error(CDDP_ERR_ARGUMENT, "all_to_all: the ranks' blocks are not equally long");
        }
        call(started, cddp_all_to_all, from.data(), to.data(),
             from.size() / static_cast<std::size_t>(world_size()), type(to));
    }
    /** Send @p data to rank @p to. */
    template <class D> void send(D &&data, int to, work *started = nullptr)
    {
        auto all = detail::view(std::forward<D>(data));

        call(started, cddp_send, all.data(), all.size(), type(all), to);
    }
    /** Receive @p data from rank @p from. */
    template <class D> void recv(D &&data, int from, work *started = nullptr)
    {
        auto all = detail::view(std::forward<D>(data));

        call(started, cddp_recv, all.data(), all.size(), type(all), from);
    }
    /** Wait until every rank has called this function. */
    void barrier(work *started = nullptr)
    {
        call(started, cddp_barrier);
    }

  private:
    void own(cddp_group *handle)
    {
        handle_ = std::shared_ptr<cddp_group>(handle, cddp_group_destroy);
    }
    static cddp_group *create(const cddp_group_options *how)
    {
        cddp_group *made = nullptr;

        check(cddp_group_create(how, &made));
        return made;
    }
    template <class T> static constexpr cddp_type type(span<T>)
    {
        return type_of<T>();
    }
    /* Both as spans. Their lengths must be in the ratio in_parts : out_parts. A side with 0 parts
     * may have any length and is not used. */
    template <class I, class O>
    static auto pair(const char *what, I &&in, O &&out, int in_parts, int out_parts)
    {
        auto from = detail::view(std::forward<I>(in));
        auto to = detail::view(std::forward<O>(out));

        static_assert(
            std::is_same_v<std::remove_cv_t<std::remove_reference_t<decltype(*from.data())>>,
                           std::remove_reference_t<decltype(*to.data())>>,
            "in and out hold numbers of different types");
        if (in_parts > 0 && out_parts > 0 &&
            (from.size() * static_cast<std::size_t>(out_parts) !=
             to.size() * static_cast<std::size_t>(in_parts))) {
            throw error(CDDP_ERR_ARGUMENT, std::string(what) + ": in has " +
                                               std::to_string(from.size()) + " numbers, out " +
                                               std::to_string(to.size()) + ", of which " +
                                               std::to_string(in_parts) + " to " +
                                               std::to_string(out_parts) + " are needed");
        }
        return std::pair(from, to);
    }
    template <class F, class... A> void call(work *started, F function, A... arguments)
    {
        cddp_work *handle = nullptr;

        check(function(get(), arguments..., started == nullptr ? nullptr : &handle));
        if (started != nullptr) {
            started->reset(handle);
        }
    }

    std::shared_ptr<cddp_group> handle_;
};

} // namespace v0_2
} // namespace cddp

#endif
