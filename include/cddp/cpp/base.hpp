/** @file
 *  base.hpp - what the parts of cddp.hpp share: exceptions, element types, spans, owned handles. */
#ifndef CDDP_CPP_BASE_HPP
#define CDDP_CPP_BASE_HPP

#include <cddp/group.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#if __has_include(<span>) && __cplusplus >= 202002L
#include <span>
#endif

/** The C++ interface of cddp. */
namespace cddp
{
inline namespace v0_2
{

/** The exception of a failed call. what() is the text of cddp_last_error(); the other members are
 *  those of cddp_last_failure(). */
class error : public std::runtime_error
{
  public:
    /** An error with the given status and text; nothing else is known. */
    error(cddp_status status, const std::string &text) : std::runtime_error(text)
    {
        failure_.status = status;
    }
    /** The failure @p failure of a call. */
    explicit error(const cddp_failure &failure)
        : std::runtime_error(failure.text), failure_(failure), operation_(failure.operation)
    {
    }
    /** The kind of failure. */
    cddp_status status() const noexcept
    {
        return failure_.status;
    }
    /** The failure as data. Its texts are valid as long as this error. */
    cddp_failure failure() const noexcept
    {
        cddp_failure out = failure_;

        out.operation = operation_.what();
        out.text = what();
        return out;
    }

  private:
    cddp_failure failure_ = CDDP_FAILURE_INIT;
    std::runtime_error operation_{""}; /* its copies do not throw */
};

/** Throw error unless @p status is CDDP_OK. @p status is that of this thread's last call. */
inline void check(cddp_status status)
{
    if (status != CDDP_OK) {
        cddp_failure failure = CDDP_FAILURE_INIT;

        (void)!cddp_last_failure(&failure);
        failure.status = status;
        throw error(failure);
    }
}

/** A 16-bit floating-point number in IEEE format, as bits. */
struct f16 {
    /** Sign, 5 bits of exponent, 10 of fraction. */
    std::uint16_t bits;
};

/** The upper half of a float, as bits. */
struct bf16 {
    /** Sign, 8 bits of exponent, 7 of fraction. */
    std::uint16_t bits;
};

/** The cddp_type of T, at compile time. char is always u8. */
template <class T> constexpr cddp_type type_of()
{
    using plain = std::remove_cv_t<T>;
    constexpr bool whole = std::is_integral_v<plain> && !std::is_same_v<plain, bool>;

    if constexpr (std::is_same_v<plain, float>) {
        return CDDP_F32;
    } else if constexpr (std::is_same_v<plain, double>) {
        return CDDP_F64;
    } else if constexpr (std::is_same_v<plain, f16>) {
        return CDDP_F16;
    } else if constexpr (std::is_same_v<plain, bf16>) {
        return CDDP_BF16;
    } else if constexpr (std::is_same_v<plain, bool>) {
        return CDDP_BOOL;
    } else if constexpr (std::is_same_v<plain, signed char>) {
        return CDDP_I8;
    } else if constexpr (whole && std::is_signed_v<plain> && sizeof(plain) == 4) {
        return CDDP_I32;
    } else if constexpr (whole && std::is_signed_v<plain> && sizeof(plain) == 8) {
        return CDDP_I64;
    } else {
        static_assert(whole && sizeof(plain) == 1, "cddp has no such element type");
        return CDDP_U8;
    }
}

/** A view of contiguous numbers that somebody else owns, like std::span of C++20. */
template <class T> class span
{
  public:
    /** An empty span. */
    constexpr span() = default;
    /** @p size numbers at @p data. */
    constexpr span(T *data, std::size_t size) : data_(data), size_(size)
    {
    }
    /** The numbers of a vector, an array or another span. */
    template <class C, class = std::enable_if_t<
                           std::is_convertible_v<decltype(std::data(std::declval<C &>())), T *>>>
    constexpr span(C &&from) : data_(std::data(from)), size_(std::size(from))
    {
    }
    /** The first number. */
    constexpr T *data() const
    {
        return data_;
    }
    /** How many numbers. */
    constexpr std::size_t size() const
    {
        return size_;
    }
    /** Number @p index, unchecked. */
    constexpr T &operator[](std::size_t index) const
    {
        return data_[index];
    }
    /** For range-based for. */
    constexpr T *begin() const
    {
        return data_;
    }
    /** For range-based for. */
    constexpr T *end() const
    {
        return data_ + size_;
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** Whether T only refers to numbers of somebody else, so that a temporary T may be passed where
 *  numbers are read or written. Specialise it for other span types. */
template <class T> inline constexpr bool is_view = false;
/** A span is a view. */
template <class T> inline constexpr bool is_view<span<T>> = true;
#ifdef __cpp_lib_span
/** The same for std::span. */
template <class T, std::size_t N> inline constexpr bool is_view<std::span<T, N>> = true;
#endif

/** What the headers use among themselves; it may change in any version. */
namespace detail
{

/** @p from as a span. A single number is a span of size 1. */
template <class C> constexpr auto view(C &&from)
{
    using plain = std::remove_reference_t<C>;

    static_assert(std::is_lvalue_reference_v<C &&> || is_view<std::remove_cv_t<plain>>,
                  "a temporary may end before cddp has read or written it: give it a name");
    if constexpr (std::is_arithmetic_v<plain>) {
        return span<plain>(&from, 1);
    } else {
        return span<std::remove_pointer_t<decltype(std::data(from))>>(from);
    }
}

/** The deleter of owner. */
template <class T, void (*Destroy)(T *)> struct release {
    /** Release @p handle; std::unique_ptr calls it. */
    void operator()(T *handle) const noexcept
    {
        Destroy(handle);
    }
};
/** Owns a C handle: can be moved, but not copied. */
template <class T, void (*Destroy)(T *)> using owner = std::unique_ptr<T, release<T, Destroy>>;

} // namespace detail

/** The handle of an operation that was started. The destructor waits until the operation is done,
 *  at most until the group's deadline, and logs an error that no call has returned: call wait()
 *  first. For memory on a device it does neither. */
class work
{
  public:
    /** Whether the operation is done, without waiting. */
    bool test()
    {
        bool done = false;

        check(cddp_work_test(started(), &done));
        return done;
    }
    /** Order what follows after the operation: on a device, the compute stream waits; otherwise
     *  this thread waits. */
    void wait()
    {
        check(cddp_work_wait(started()));
    }
    /** Block this thread until the operation is done. False: @p timeout_ms have passed, and you may
     *  wait again. */
    bool wait_host(std::uint32_t timeout_ms = CDDP_TIMEOUT_DEFAULT)
    {
        bool done = false;

        check(cddp_work_wait_host(started(), timeout_ms, &done));
        return done;
    }
    /** The C handle; NULL if no operation was started. */
    cddp_work *get() const noexcept
    {
        return handle_.get();
    }
    /** Take ownership of a C handle. */
    void reset(cddp_work *handle) noexcept
    {
        handle_.reset(handle);
    }

  private:
    cddp_work *started() const
    {
        if (handle_ == nullptr) {
            throw error(CDDP_ERR_ARGUMENT, "work: no collective was started with this handle");
        }
        return handle_.get();
    }

    detail::owner<cddp_work, cddp_work_destroy> handle_;
};

} // namespace v0_2
} // namespace cddp

#endif
