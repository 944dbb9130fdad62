/** @file
 *  store.hpp - the key-value store (store.h) for C++. */
#ifndef CDDP_CPP_STORE_HPP
#define CDDP_CPP_STORE_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/store.h>

#include <optional>
#include <string_view>
#include <vector>

namespace cddp
{
inline namespace v0_2
{

namespace detail
{

/** Memory that a call of cddp returned. The destructor calls cddp_free(). */
template <class T> class given
{
  public:
    given() = default;
    given(const given &) = delete;
    given &operator=(const given &) = delete;
    ~given()
    {
        cddp_free(memory_);
    }
    /** The pointer that a call of cddp writes. */
    T **out() noexcept
    {
        return &memory_;
    }
    /** The memory; NULL if there is none. */
    T *get() const noexcept
    {
        return memory_;
    }

  private:
    T *memory_ = nullptr;
};

} // namespace detail

/** A connection to the store, or the open file. Values are any bytes, held in strings. */
class store
{
  public:
    /** Connect with the options @p how, which start out as options(). */
    explicit store(const cddp_store_options &how)
    {
        cddp_store *made = nullptr;

        check(cddp_store_open(&how, &made));
        handle_ = std::shared_ptr<cddp_store>(made, cddp_store_close);
    }
    /** Use @p handle without owning it. This object keeps the group @p keeps, which owns it, alive.
     */
    store(cddp_store *handle, const std::shared_ptr<cddp_group> &keeps) : handle_(keeps, handle)
    {
    }
    /** Afterwards, @p other may only be destroyed or assigned to. */
    store(store &&other) noexcept = default;
    /** Closes the store that this object had before. */
    store &operator=(store &&other) noexcept = default;
    store(const store &) = delete;
    store &operator=(const store &) = delete;
    ~store() = default;

    /** The default options. */
    static cddp_store_options options()
    {
        cddp_store_options how = CDDP_STORE_OPTIONS_INIT;

        return how;
    }
    /** The C handle; this object still owns it. */
    cddp_store *get() const noexcept
    {
        return handle_.get();
    }
    /** Set @p key to @p value. */
    void set(const std::string &key, std::string_view value)
    {
        check(cddp_store_set(get(), key.c_str(), value.data(), value.size()));
    }
    /** Wait until @p key exists, and return its value. @p timeout_ms 0: the store's time limit. */
    std::string get(const std::string &key, std::uint32_t timeout_ms = 0)
    {
        detail::given<void> value;
        std::size_t bytes = 0;

        check(cddp_store_get(get(), key.c_str(), timeout_ms, value.out(), &bytes));
        return text(value, bytes);
    }
    /** Like get(), but without waiting: empty if @p key does not exist. */
    std::optional<std::string> try_get(const std::string &key)
    {
        detail::given<void> value;
        std::size_t bytes = 0;
        cddp_status status = cddp_store_try_get(get(), key.c_str(), value.out(), &bytes);

        if (status == CDDP_ERR_NOT_FOUND) {
            return std::nullopt;
        }
        check(status);
        return text(value, bytes);
    }
    /** Add @p amount to the number in @p key, and return the sum. */
    std::int64_t add(const std::string &key, std::int64_t amount)
    {
        std::int64_t sum = 0;

        check(cddp_store_add(get(), key.c_str(), amount, &sum));
        return sum;
    }
    /** Set @p key to @p desired if its value is @p expected. Returns whether it was set, and the
     *  value afterwards. */
    std::pair<bool, std::string> compare_set(const std::string &key, std::string_view expected,
                                             std::string_view desired)
    {
        detail::given<void> value;
        std::size_t bytes = 0;
        bool swapped = false;

        check(cddp_store_compare_set(get(), key.c_str(), expected.data(), expected.size(),
                                     desired.data(), desired.size(), &swapped, value.out(),
                                     &bytes));
        return {swapped, text(value, bytes)};
    }
    /** Wait until all @p keys exist. */
    void wait(const std::vector<std::string> &keys, std::uint32_t timeout_ms = 0)
    {
        std::vector<const char *> names;

        for (const std::string &key : keys) {
            names.push_back(key.c_str());
        }
        check(cddp_store_wait(get(), names.data(), names.size(), timeout_ms));
    }
    /** Delete @p key. Returns whether it existed. */
    bool erase(const std::string &key)
    {
        bool existed = false;

        check(cddp_store_delete(get(), key.c_str(), &existed));
        return existed;
    }
    /** The keys that begin with @p start, sorted. */
    std::vector<std::string> list(const std::string &start = "")
    {
        detail::given<char *> keys;
        std::size_t count = 0;

        check(cddp_store_list(get(), start.c_str(), keys.out(), &count));
        return std::vector<std::string>(keys.get(), keys.get() + count);
    }

  private:
    static std::string text(const detail::given<void> &value, std::size_t bytes)
    {
        return value.get() == nullptr ? std::string()
                                      : std::string(static_cast<char *>(value.get()), bytes);
    }

    std::shared_ptr<cddp_store> handle_;
};

} // namespace v0_2
} // namespace cddp

#endif
