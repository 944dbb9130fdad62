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

/** Memory that cddp gave to the caller, released by cddp_free(). */
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
    /** Where a call writes it. */
    T **out() noexcept
    {
        return &memory_;
    }
    /** What was given, NULL for nothing. */
    T *get() const noexcept
    {
        return memory_;
    }

  private:
    T *memory_ = nullptr;
};

/** A connection to the store, or the open file. Values are any bytes, here in strings. */
class store
{
  public:
    /** Connect as @p how says, which begins as options(). */
    explicit store(const cddp_store_options &how)
    {
        cddp_store *made = nullptr;

        check(cddp_store_open(&how, &made));
        handle_ = std::shared_ptr<cddp_store>(made, cddp_store_close);
    }
    /** Use @p handle, which stays its owner's: @p keeps is held until this store goes. */
    store(cddp_store *handle, const std::shared_ptr<cddp_group> &keeps) : handle_(keeps, handle)
    {
    }
    /** @p other may only be destroyed or assigned to from then on. */
    store(store &&other) noexcept = default;
    /** This one is closed. */
    store &operator=(store &&other) noexcept = default;
    store(const store &) = delete;
    store &operator=(const store &) = delete;
    ~store() = default;

    /** As they are without a word. */
    static cddp_store_options options()
    {
        cddp_store_options how = CDDP_STORE_OPTIONS_INIT;

        return how;
    }
    /** The handle of C, which stays this store's. */
    cddp_store *get() const noexcept
    {
        return handle_.get();
    }
    /** Let @p key hold @p value. */
    void set(const std::string &key, std::string_view value)
    {
        check(cddp_store_set(get(), key.c_str(), value.data(), value.size()));
    }
    /** Wait until @p key exists; 0: as long as the store was opened with. */
    std::string get(const std::string &key, std::uint32_t timeout_ms = 0)
    {
        given<void> value;
        std::size_t bytes = 0;

        check(cddp_store_get(get(), key.c_str(), timeout_ms, value.out(), &bytes));
        return text(value, bytes);
    }
    /** The same without waiting. */
    std::optional<std::string> try_get(const std::string &key)
    {
        given<void> value;
        std::size_t bytes = 0;
        cddp_status status = cddp_store_try_get(get(), key.c_str(), value.out(), &bytes);

        if (status == CDDP_ERR_NOT_FOUND) {
            return std::nullopt;
        }
        check(status);
        return text(value, bytes);
    }
    /** The number in @p key, after @p amount was added. */
    std::int64_t add(const std::string &key, std::int64_t amount)
    {
        std::int64_t sum = 0;

        check(cddp_store_add(get(), key.c_str(), amount, &sum));
        return sum;
    }
    /** Let @p key hold @p desired if it holds @p expected: whether, and what it holds then. */
    std::pair<bool, std::string> compare_set(const std::string &key, std::string_view expected,
                                             std::string_view desired)
    {
        given<void> value;
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
    /** Forget @p key; whether it existed. */
    bool erase(const std::string &key)
    {
        bool existed = false;

        check(cddp_store_delete(get(), key.c_str(), &existed));
        return existed;
    }
    /** The keys that begin with @p start, sorted. */
    std::vector<std::string> list(const std::string &start = "")
    {
        given<char *> keys;
        std::size_t count = 0;

        check(cddp_store_list(get(), start.c_str(), keys.out(), &count));
        return std::vector<std::string>(keys.get(), keys.get() + count);
    }

  private:
    static std::string text(const given<void> &value, std::size_t bytes)
    {
        return value.get() == nullptr ? std::string()
                                      : std::string(static_cast<char *>(value.get()), bytes);
    }

    std::shared_ptr<cddp_store> handle_;
};

} // namespace cddp

#endif
