/** @file
 *  status.h - how calls of cddp report success or failure. */
#ifndef CDDP_STATUS_H
#define CDDP_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A symbol that the library exports. */
#define CDDP_API __attribute__((visibility("default")))
/** The same, for functions whose result has to be checked: compilers warn if it is ignored. */
#define CDDP_CHECKED CDDP_API __attribute__((warn_unused_result))

/** Set struct_size, as the first field of an initialiser. All fields that are not named are zero,
 *  which is their default: (cddp_store_options){CDDP_SIZED(cddp_store_options), .url = url}. In C,
 *  and in C++ since C++20; CDDP_..._INIT is for every language.
 *
 *  struct_size tells the library which fields the program was compiled with, so that a program and
 *  a library of different versions fit. Fields that the program does not have are zero. Fields that
 *  the library does not have must be zero: otherwise it returns CDDP_ERR_UNAVAILABLE, and so it
 *  does if a field called `reserved` is not zero. In a struct that the library fills, it writes
 *  only fields that both have, and leaves all other bytes of the program's struct as they are. */
#define CDDP_SIZED(type) .struct_size = sizeof(type)

#ifndef __cplusplus
/** Assert that a struct ends with the field @p last, without padding. A field that a later version
 *  adds could lie in the padding: then struct_size would not tell whether a program has it. */
#define CDDP_NO_TAIL(type, last)                                                                   \
    _Static_assert(sizeof(type) == offsetof(type, last) + sizeof(((type *)0)->last), "no padding")
#else
#define CDDP_NO_TAIL(type, last)                                                                   \
    static_assert(sizeof(type) == offsetof(type, last) + sizeof(((type *)0)->last), "no padding")
#endif

/** All statuses: X(name, value, text). One table, so that no status can lack its text. */
#define CDDP_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(ERR_ARGUMENT, -1, "an argument is outside its range")                                        \
    X(ERR_NO_MEMORY, -2, "memory could not be allocated")                                          \
    X(ERR_PEER, -3, "another rank failed or went away")                                            \
    X(ERR_TIMEOUT, -4, "the deadline passed")                                                      \
    X(ERR_MISMATCH, -5, "ranks disagree about what to do")                                         \
    X(ERR_IO, -6, "a file or a connection failed")                                                 \
    X(ERR_FORMAT, -7, "data from outside is not what it should be")                                \
    X(ERR_CONFIG, -8, "the configuration is wrong")                                                \
    X(ERR_AUTH, -9, "the job's token was refused")                                                 \
    X(ERR_NOT_FOUND, -10, "what was asked for does not exist")                                     \
    X(ERR_STATE, -11, "the call does not fit the object's state")                                  \
    X(ERR_UNAVAILABLE, -12, "this build or machine cannot do it")                                  \
    X(ERR_CLOSED, -13, "the object was closed or its group is broken")                             \
    X(ERR_DEVICE, -14, "a GPU or its libraries failed")
/** Makes one enumerator of cddp_status. */
#define CDDP_STATUS_VALUE(name, value, text) CDDP_##name = value,
/** What a call returns: CDDP_OK, CDDP_ERR_ARGUMENT and so on, one for each row of CDDP_STATUS_MAP.
 */
typedef enum cddp_status { CDDP_STATUS_MAP(CDDP_STATUS_VALUE) } cddp_status;

/** The text of @p status, a static string. A number that is not a status has a text, too. Any
 *  thread. */
CDDP_API const char *cddp_status_text(cddp_status status);

/** What failed in this thread's last failed call: rank, operation, peer and cause; "" if no call
 *  has failed yet. Owned by cddp and valid until this thread's next call of cddp. */
CDDP_API const char *cddp_last_error(void);

/** The library's version, "major.minor.patch"; a static string. Any thread. */
CDDP_API const char *cddp_version(void);

#ifdef __cplusplus
}
#endif
#endif
