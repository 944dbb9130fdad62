/** @file
 *  loader.hpp - batches that threads load ahead of time (loader.h) for C++. */
#ifndef CDDP_CPP_LOADER_HPP
#define CDDP_CPP_LOADER_HPP

#include <cddp/cpp/group.hpp>
#include <cddp/loader.h>

#include <exception>
#include <functional>
#include <mutex>
#include <optional>

namespace cddp
{
inline namespace v0_2
{

/** This rank's share of a global batch. The loader owns the memory; it is valid until the next call
 *  on the loader. */
class batch
{
  public:
    /** A batch whose samples have @p bytes bytes each. */
    batch(const cddp_batch &of, std::size_t bytes) : of_(of), bytes_(bytes)
    {
    }
    /** The samples, one after another, as numbers of type T. Throws if sizeof(T) does not divide a
     *  sample's size. */
    template <class T> span<const T> data() const
    {
        if (bytes_ % sizeof(T) != 0) {
            throw error(CDDP_ERR_ARGUMENT, "batch: a sample of " + std::to_string(bytes_) +
                                               " bytes is no whole number of elements of " +
                                               std::to_string(sizeof(T)));
        }
        return {static_cast<const T *>(of_.data), of_.count * (bytes_ / sizeof(T))};
    }
    /** The samples' indices in the data set. */
    span<const std::uint64_t> indices() const
    {
        return {of_.indices, of_.count};
    }
    /** How many samples; 0 if this rank has none in this step. */
    std::uint64_t size() const
    {
        return of_.count;
    }
    /** How many samples all ranks have together. */
    std::uint64_t total() const
    {
        return of_.total;
    }
    /** The number of the global batch, from 0 in each epoch. */
    std::uint64_t number() const
    {
        return of_.number;
    }
    /** With options.micro_batches: which of them, among those of all ranks; equal to their number
     *  if this rank has none of this global batch. */
    std::uint64_t micro_batch() const
    {
        return of_.micro_batch;
    }
    /** How many samples this rank has in the global batch, for cddp_step. */
    std::uint64_t samples() const
    {
        return of_.samples;
    }
    /** How long next() waited for samples to be loaded, in nanoseconds. */
    std::uint64_t wait_ns() const
    {
        return of_.wait_ns;
    }

  private:
    cddp_batch of_;
    std::size_t bytes_;
};

/** Batches of one data set, on one rank. */
class loader
{
  public:
    /** Writes sample @p index to @p out. Called by several threads at once; may throw. */
    using make_sample = std::function<void(std::uint64_t index, void *out)>;

    /** The default options. */
    static cddp_loader_options options()
    {
        cddp_loader_options how = CDDP_LOADER_OPTIONS_INIT;

        return how;
    }
    /** This process gets each batch whole. `load`, `state` and `group` of @p how are not used. */
    loader(const cddp_loader_options &how, make_sample make) : loader(nullptr, how, std::move(make))
    {
    }
    /** The ranks of @p among share each batch. The loader keeps the group's C handle alive. */
    loader(const group &among, const cddp_loader_options &how, make_sample make)
        : loader(among.share(), how, std::move(make))
    {
    }
    /** Afterwards, @p other may only be destroyed or assigned to. */
    loader(loader &&other) noexcept = default;
    /** Releases the loader that this object had before. */
    loader &operator=(loader &&other) noexcept
    {
        loader taken(std::move(other)); /* its threads end before the function that they call */

        std::swap(group_, taken.group_);
        std::swap(maker_, taken.maker_);
        std::swap(bytes_, taken.bytes_);
        std::swap(handle_, taken.handle_);
        return *this;
    }
    loader(const loader &) = delete;
    loader &operator=(const loader &) = delete;
    ~loader() = default;

    /** The C handle; this object still owns it. */
    cddp_loader *get() const noexcept
    {
        return handle_.get();
    }
    /** How many global batches an epoch has. */
    std::uint64_t batch_count() const
    {
        return cddp_loader_batch_count(get());
    }
    /** Begin epoch @p epoch at batch @p first. */
    void begin(std::uint64_t epoch, std::uint64_t first = 0)
    {
        maker_->forget();
        check(cddp_loader_begin(get(), epoch, first));
    }
    /** Wait for this rank's share of the next batch; empty at the end of the epoch. If make_sample
     *  has thrown, throws the first such exception of the epoch. */
    std::optional<batch> next()
    {
        cddp_batch out = CDDP_BATCH_INIT;
        cddp_status status = cddp_loader_next(get(), &out);

        if (status != CDDP_OK) {
            maker_->rethrow();
            check(status);
        }
        return out.end ? std::nullopt : std::optional<batch>(batch(out, bytes_));
    }

  private:
    /* The function that the loader's threads call, and the first exception that they caught. */
    class maker
    {
      public:
        explicit maker(make_sample make) : make_(std::move(make))
        {
        }
        /** NULL, which cddp_loader_create() refuses: there is nothing to call. */
        cddp_sample_fn function() const noexcept
        {
            return make_ ? call : nullptr;
        }
        static cddp_status call(void *state, std::uint64_t index, void *out) noexcept
        {
            maker *self = static_cast<maker *>(state);

            try {
                self->make_(index, out);
                return CDDP_OK;
            } catch (const error &failure) {
                self->keep(std::current_exception());
                return cddp_fail(failure.status(), failure.what());
            } catch (...) {
                self->keep(std::current_exception());
                return CDDP_ERR_STATE;
            }
        }
        void forget()
        {
            std::lock_guard<std::mutex> lock(mutex_);

            first_ = nullptr;
        }
        void rethrow()
        {
            std::lock_guard<std::mutex> lock(mutex_);

            if (first_ != nullptr) {
                std::rethrow_exception(std::exchange(first_, nullptr));
            }
        }

      private:
        void keep(std::exception_ptr thrown)
        {
            std::lock_guard<std::mutex> lock(mutex_);

            if (first_ == nullptr) {
                first_ = std::move(thrown);
            }
        }

        make_sample make_;
        std::mutex mutex_;
        std::exception_ptr first_;
    };

    loader(std::shared_ptr<cddp_group> among, cddp_loader_options how, make_sample make)
        : group_(std::move(among)), maker_(std::make_unique<maker>(std::move(make))),
          bytes_(how.sample_bytes)
    {
        cddp_loader *made = nullptr;

        how.group = group_.get();
        how.load = maker_->function();
        how.state = maker_.get();
        check(cddp_loader_create(&how, &made));
        handle_.reset(made);
    }

    std::shared_ptr<cddp_group> group_; /* declared first, so destroyed after the handle */
    std::unique_ptr<maker> maker_;
    std::size_t bytes_;
    detail::owner<cddp_loader, cddp_loader_destroy> handle_;
};

} // namespace v0_2
} // namespace cddp

#endif
