/** @file
 *  recovery.hpp - state that outlives ranks (recovery.h) for C++. */
#ifndef CDDP_CPP_RECOVERY_HPP
#define CDDP_CPP_RECOVERY_HPP

#include <cddp/cpp/ddp.hpp>
#include <cddp/recovery.h>

#include <exception>
#include <functional>
#include <new>

namespace cddp
{
inline namespace v0_2
{

/** The state of a training loop. The object keeps the group alive, but not what is registered: that
 *  stays where it is until the object is destroyed.
 *
 *      cddp::recovery state(group);
 *      state.add(ddp).add("momentum", momentum);
 *      std::uint64_t step = 0;
 *      for (; state.step(step) != CDDP_RECOVERY_STOP && step < steps; step++) {
 *          (forward, backward, update)
 *      }
 *      (save a checkpoint) */
class recovery
{
  public:
    /** Writes this rank's bytes of a part of the state to @p to. May throw: then no more states are
     *  kept, and the loop goes on. */
    using save_function = std::function<void(span<unsigned char> to)>;
    /** Reads what one rank has saved. Called once for each of the @p parts ranks that the job had
     *  then, in order. May throw: then step() throws on all ranks. */
    using load_function = std::function<void(span<const unsigned char> from, int part, int parts)>;

    /** The default options. */
    static cddp_recovery_options options()
    {
        cddp_recovery_options how = CDDP_RECOVERY_OPTIONS_INIT;

        return how;
    }
    /** Begin to register the state of a loop. All ranks register the same, in the same order. */
    explicit recovery(const group &ranks, const cddp_recovery_options &how = options())
        : group_(ranks.share())
    {
        cddp_recovery *made = nullptr;

        check(cddp_recovery_create(group_.get(), &how, &made));
        handle_.reset(made);
    }
    /** The C handle; this object still owns it. */
    cddp_recovery *get() const noexcept
    {
        return handle_.get();
    }
    /** Register a number, or numbers of any type that can be copied as bytes. All ranks have all of
     *  them, with the same values. */
    template <class D> recovery &add(const std::string &name, D &&data)
    {
        return add_array(name, detail::view(std::forward<D>(data)), 0, 0);
    }
    /** Register this rank's part of @p total numbers of which each rank has others: @p data are
     *  those from number @p first on. */
    template <class D>
    recovery &add_part(const std::string &name, D &&data, std::uint64_t first, std::uint64_t total)
    {
        if (total == 0) {
            throw error(CDDP_ERR_ARGUMENT, "recovery: " + name + " is a part of 0 numbers");
        }
        return add_array(name, detail::view(std::forward<D>(data)), first, total);
    }
    /** Register the parameters of @p model that are not frozen, and its buffers. With a sharded
     *  optimizer the parameters are in its memory, so it is destroyed after this object. */
    recovery &add(const ddp &model)
    {
        check(cddp_recovery_add_ddp(get(), model.get()));
        return *this;
    }
    /** Register a part of the state that functions write and read: @p bytes bytes of each rank.
     * They call no function of cddp. */
    recovery &add(const std::string &name, std::uint64_t bytes, save_function save,
                  load_function load)
    {
        cddp_recovery_callbacks made = CDDP_RECOVERY_CALLBACKS_INIT;
        cddp_status status;

        calls_.push_back(
            std::make_unique<functions>(functions{bytes, std::move(save), std::move(load)}));
        made.name = name.c_str();
        made.bytes = bytes;
        made.save = calls_.back()->save ? functions::call_save : nullptr;
        made.load = calls_.back()->load ? functions::call_load : nullptr;
        made.state = calls_.back().get();
        status = cddp_recovery_add_callbacks(get(), &made);
        if (status != CDDP_OK) {
            calls_.pop_back();
        }
        check(status);
        return *this;
    }
    /** A step begins, after @p done steps. Tells what the loop does next; with
     *  CDDP_RECOVERY_REPLACED, @p done becomes that of the state. Collective. */
    cddp_recovery_action step(std::uint64_t &done)
    {
        cddp_recovery_action next = CDDP_RECOVERY_GO_ON;

        check(cddp_recovery_step(get(), &done, &next));
        return next;
    }
    /** The loop fails, and its state may be the cause: the job goes on from its checkpoint. */
    void refuse()
    {
        check(cddp_recovery_refuse(get()));
    }
    /** What was kept so far. */
    cddp_recovery_info info() const
    {
        cddp_recovery_info out = CDDP_RECOVERY_INFO_INIT;

        check(cddp_recovery_get_info(get(), &out));
        return out;
    }

  private:
    /* The functions of a part, as C calls them. */
    struct functions {
        std::uint64_t bytes;
        save_function save;
        load_function load;

        static cddp_status call_save(void *state, void *to) noexcept
        {
            const auto *self = static_cast<const functions *>(state);

            try {
                self->save({static_cast<unsigned char *>(to), self->bytes});
                return CDDP_OK;
            } catch (...) {
                return caught();
            }
        }
        static cddp_status call_load(void *state, const void *from, int part, int parts) noexcept
        {
            const auto *self = static_cast<const functions *>(state);

            try {
                self->load({static_cast<const unsigned char *>(from), self->bytes}, part, parts);
                return CDDP_OK;
            } catch (...) {
                return caught();
            }
        }
        /* The exception that was caught, as a status and its text. */
        static cddp_status caught() noexcept
        {
            try {
                throw;
            } catch (const error &failure) {
                return cddp_fail(failure.status(), failure.what());
            } catch (const std::bad_alloc &failure) {
                return cddp_fail(CDDP_ERR_NO_MEMORY, failure.what());
            } catch (const std::exception &failure) {
                return cddp_fail(CDDP_ERR_STATE, failure.what());
            } catch (...) {
                return cddp_fail(CDDP_ERR_STATE, "an exception that is no std::exception");
            }
        }
    };

    template <class T>
    recovery &add_array(const std::string &name, span<T> data, std::uint64_t first,
                        std::uint64_t total)
    {
        cddp_recovery_array made = CDDP_RECOVERY_ARRAY_INIT;

        static_assert(!std::is_const_v<T>, "a state that is restored is written to");
        static_assert(std::is_trivially_copyable_v<T>, "a state is copied as bytes");
        if (first > UINT64_MAX / sizeof(T) || total > UINT64_MAX / sizeof(T)) {
            throw error(CDDP_ERR_ARGUMENT, "recovery: " + name + " has too many numbers");
        }
        made.name = name.c_str();
        made.data = data.data();
        made.bytes = data.size() * sizeof(T);
        made.first_byte = first * sizeof(T);
        made.total_bytes = total * sizeof(T);
        check(cddp_recovery_add(get(), &made));
        return *this;
    }

    std::shared_ptr<cddp_group> group_;
    std::vector<std::unique_ptr<functions>> calls_;
    detail::owner<cddp_recovery, cddp_recovery_destroy> handle_;
};

/** Stay in this process as a rank of the job's next generation, after @p why: CDDP_OK (asked to
 *  stop) or the status() of an error. Objects of the generation before are destroyed by then.
 * False: the process exits, and cddp_last_error() says why. */
inline bool rejoin(cddp_status why)
{
    return cddp_recovery_rejoin(why) == CDDP_OK;
}

} // namespace v0_2
} // namespace cddp

#endif
