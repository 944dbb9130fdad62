/** @file
 *  checkpoint.hpp - safetensors files and snapshots (checkpoint.h) for C++. */
#ifndef CDDP_CPP_CHECKPOINT_HPP
#define CDDP_CPP_CHECKPOINT_HPP

#include <cddp/checkpoint.h>
#include <cddp/cpp/ddp.hpp>
#include <cddp/cpp/store.hpp>

#include <map>

namespace cddp
{
inline namespace v0_2
{

/** Named tensors in the caller's memory, to write or to load into. */
class tensors
{
  public:
    /** No tensors. */
    tensors() = default;
    /** Can be moved, but not copied: the C structs point to the names. */
    tensors(tensors &&) = default;
    /** The same. */
    tensors &operator=(tensors &&) = default;
    tensors(const tensors &) = delete;
    tensors &operator=(const tensors &) = delete;
    ~tensors() = default;

    /** Add a tensor; its memory is not copied. */
    template <class D> tensors &add(const std::string &name, const shape &sizes, D &&data)
    {
        auto numbers = detail::view(std::forward<D>(data));
        using number = std::remove_reference_t<decltype(*numbers.data())>;
        cddp_param made = {};

        detail::check_count(name, detail::copy_shape(name, sizes, made.shape), numbers.size());
        names_.push_back(name);
        made.name = names_.back().c_str();
        made.type = type_of<number>();
        made.dims = static_cast<int>(sizes.size());
        if constexpr (!std::is_const_v<number>) {
            made.data = numbers.data();
            writable_.push_back(made);
        }
        list_.emplace_back();
        check(cddp_tensors_of(&made, 1, &list_.back()));
        list_.back().data = numbers.data();
        return *this;
    }
    /** The tensors, for the C functions. */
    const std::vector<cddp_tensor> &list() const
    {
        return list_;
    }
    /** The same for functions that write to the tensors. Throws if one of them is const. */
    const std::vector<cddp_param> &writable() const
    {
        if (writable_.size() < list_.size()) {
            throw error(CDDP_ERR_ARGUMENT, "tensors to load into are const");
        }
        return writable_;
    }

  private:
    std::deque<std::string> names_; /* a deque, since its elements do not move */
    std::vector<cddp_tensor> list_;
    std::vector<cddp_param> writable_; /* those that are not const */
};

/** An open safetensors file, which owns the memory of its tensors. */
class safetensors
{
  public:
    /** Map @p path, and check its whole structure. */
    explicit safetensors(const std::string &path)
    {
        cddp_safetensors *made = nullptr;

        check(cddp_safetensors_open(path.c_str(), &made));
        handle_.reset(made);
    }
    /** The C handle; this object still owns it. */
    cddp_safetensors *get() const noexcept
    {
        return handle_.get();
    }
    /** How many tensors. */
    std::size_t size() const
    {
        return cddp_safetensors_count(get());
    }
    /** Tensor @p index in file order. */
    const cddp_tensor &operator[](std::size_t index) const
    {
        const cddp_tensor *found = cddp_safetensors_at(get(), index);

        if (found == nullptr) {
            throw error(CDDP_ERR_NOT_FOUND, "there is no tensor " + std::to_string(index));
        }
        return *found;
    }
    /** The tensor called @p name; NULL if there is none. */
    const cddp_tensor *find(const std::string &name) const
    {
        return cddp_safetensors_find(get(), name.c_str());
    }
    /** The value of @p key in the metadata, if it exists. */
    std::optional<std::string> metadata(const std::string &key) const
    {
        const char *value = cddp_safetensors_metadata(get(), key.c_str());

        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }
    /** Write @p what to @p path, atomically. */
    static void write(const std::string &path, const tensors &what,
                      const std::map<std::string, std::string> &metadata = {})
    {
        std::vector<const char *> pairs;

        for (const auto &[key, value] : metadata) {
            pairs.push_back(key.c_str());
            pairs.push_back(value.c_str());
        }
        pairs.push_back(nullptr);
        check(cddp_safetensors_write(path.c_str(), what.list().data(), what.list().size(),
                                     pairs.data()));
    }
    /** Copy the tensors of @p path into the memory of @p into, all or none. */
    static void load(const std::string &path, const tensors &into)
    {
        check(cddp_safetensors_load(path.c_str(), into.writable().data(), into.writable().size()));
    }

  private:
    detail::owner<cddp_safetensors, cddp_safetensors_close> handle_;
};

/** Snapshots: directories that hold the state of a training run at one step. */
namespace snapshot
{

/** A snapshot that a thread of cddp writes. The destructor waits until it is written, and logs an
 *  error that no call has returned: call wait() first. */
class saving
{
  public:
    /** Take ownership of a C handle. */
    explicit saving(cddp_saving *handle) : handle_(handle)
    {
    }
    /** Whether the snapshot is written, without waiting. Throws if writing has failed. */
    bool test()
    {
        bool done = false;

        check(cddp_saving_test(get(), &done));
        return done;
    }
    /** Wait until the snapshot is written. Throws if writing has failed. */
    void wait()
    {
        check(cddp_saving_wait(get()));
    }
    /** The C handle; this object still owns it. */
    cddp_saving *get() const noexcept
    {
        return handle_.get();
    }

  private:
    detail::owner<cddp_saving, cddp_saving_destroy> handle_;
};

} // namespace snapshot

namespace detail
{

/** Call cddp_snapshot_write(). */
inline void write_to(const std::string &dir, std::uint64_t step, const tensors &model,
                     const tensors &optimizer, const std::string &state_json, std::uint32_t keep,
                     cddp_saving **out)
{
    cddp_snapshot what = CDDP_SNAPSHOT_INIT;
    cddp_snapshot_options how = CDDP_SNAPSHOT_OPTIONS_INIT;

    how.keep = keep;

    what.step = step;
    what.model = model.list().data();
    what.model_count = model.list().size();
    what.optimizer = optimizer.list().data();
    what.optimizer_count = optimizer.list().size();
    what.state_json = state_json.c_str();
    check(cddp_snapshot_write(dir.c_str(), &what, &how, out));
}

} // namespace detail

namespace snapshot
{

/** Write a snapshot below @p dir, and keep only the newest @p keep snapshots; 0: keep all. */
inline void write(const std::string &dir, std::uint64_t step, const tensors &model,
                  const tensors &optimizer, const std::string &state_json, std::uint32_t keep = 0)
{
    detail::write_to(dir, step, model, optimizer, state_json, keep, nullptr);
}

/** Like write(), in a thread of cddp. The tensors are copied before the call returns. */
inline saving start(const std::string &dir, std::uint64_t step, const tensors &model,
                    const tensors &optimizer, const std::string &state_json, std::uint32_t keep = 0)
{
    cddp_saving *started = nullptr;

    detail::write_to(dir, step, model, optimizer, state_json, keep, &started);
    return saving(started);
}

/** The result of find() and recover(). */
struct found {
    /** Path of the newest complete snapshot. */
    std::string path;
    /** A line for each newer snapshot that was skipped, with the reason. */
    std::string skipped;
};

} // namespace snapshot

namespace detail
{

/** Call cddp_snapshot_find() or cddp_snapshot_recover(). Empty if no snapshot is complete. */
inline std::optional<snapshot::found> look(cddp_status (*how)(const char *, char **, char **),
                                           const std::string &dir)
{
    detail::given<char> path;
    detail::given<char> skipped;
    cddp_status status = how(dir.c_str(), path.out(), skipped.out());

    if (status == CDDP_ERR_NOT_FOUND) {
        return std::nullopt;
    }
    check(status);
    return snapshot::found{path.get(), skipped.get() == nullptr ? "" : skipped.get()};
}

} // namespace detail

namespace snapshot
{

/** Find the newest complete snapshot below @p dir. */
inline std::optional<found> find(const std::string &dir)
{
    return detail::look(cddp_snapshot_find, dir);
}

/** Like find(), for the process that will write below @p dir: also removes files of crashed
 *  writers. */
inline std::optional<found> recover(const std::string &dir)
{
    return detail::look(cddp_snapshot_recover, dir);
}

/** The state and the step of the snapshot at @p path. */
inline std::pair<std::string, std::uint64_t> read_state(const std::string &path)
{
    detail::given<char> json;
    std::uint64_t step = 0;

    check(cddp_snapshot_read_state(path.c_str(), json.out(), &step));
    return {json.get(), step};
}

/** Load the tensors of @p model and @p optimizer: both or neither. */
inline void load(const std::string &path, const tensors &model, const tensors &optimizer)
{
    check(cddp_snapshot_load(path.c_str(), model.writable().data(), model.writable().size(),
                             optimizer.writable().data(), optimizer.writable().size()));
}

} // namespace snapshot

} // namespace v0_2
} // namespace cddp

#endif
