/** @file
 *  status.h - how calls of cddp report success or failure. */
#ifndef CDDP_STATUS_H
#define CDDP_STATUS_H

#include <stdbool.h>
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

/** What a call returns. The value says what may be done next; the text of cddp_last_error() is for
 *  people. "Breaks": further calls on the group, or on the cddp_ddp, return CDDP_ERR_BROKEN.
 *
 *  | status          | who has to act                      | breaks            | repeat the call? |
 *  |-----------------|-------------------------------------|-------------------|------------------|
 *  | OK              | -                                   | no                | -                |
 *  | ERR_ARGUMENT    | caller: correct the call            | no (2)            | corrected        |
 *  | ERR_NO_MEMORY   | user: a larger machine or limit     | see is_fatal      | yes, if unbroken |
 *  | ERR_PEER        | see the culprit's failure           | yes               | no               |
 *  | ERR_TIMEOUT     | see the culprit (1)                 | yes (1)           | no (1)           |
 *  | ERR_MISMATCH    | programmer: ranks differ in a call  | yes               | no               |
 *  | ERR_IO          | user: disk, network, permissions    | see is_fatal      | yes, if unbroken |
 *  | ERR_FORMAT      | user: the file or the peer is bad   | see is_fatal      | no               |
 *  | ERR_CONFIG      | user: correct the configuration     | no                | corrected        |
 *  | ERR_AUTH        | user: one token for all ranks       | no                | corrected        |
 *  | ERR_NOT_FOUND   | caller                              | no                | later            |
 *  | ERR_STATE       | caller: correct the order of calls  | no (2)            | in its place     |
 *  | ERR_UNAVAILABLE | user: another build or machine      | no (2)            | no               |
 *  | ERR_CLOSED      | caller: the object was destroyed    | it is gone        | no               |
 *  | ERR_DEVICE      | user: the GPU or its driver         | yes               | no               |
 *  | ERR_BUSY        | caller: another thread is in a call | no                | yes              |
 *  | ERR_INCOMPLETE  | caller: finish the backward first   | cddp_ddp_wait (2) | finished         |
 *  | ERR_BROKEN      | see that text: it failed earlier    | it is broken      | no               |
 *
 *  (1) Of a group or a cddp_ddp. Of a store it breaks nothing: repeat the call.
 *  (2) An error that ends a step (cddp_ddp_wait()) breaks the cddp_ddp, as does a gradient that is
 *      ready twice in a rank's last micro-batch of a step (CDDP_ERR_STATE).
 *  `is_fatal` of cddp_last_failure() always says whether this failure broke anything. */
typedef enum cddp_status {
    CDDP_OK = 0,                /**< success */
    CDDP_ERR_ARGUMENT = -1,     /**< an argument is outside its range */
    CDDP_ERR_NO_MEMORY = -2,    /**< memory could not be allocated */
    CDDP_ERR_PEER = -3,         /**< another rank failed or went away */
    CDDP_ERR_TIMEOUT = -4,      /**< the deadline passed */
    CDDP_ERR_MISMATCH = -5,     /**< ranks disagree about what to do */
    CDDP_ERR_IO = -6,           /**< a file or a connection failed */
    CDDP_ERR_FORMAT = -7,       /**< data from outside is not what it should be */
    CDDP_ERR_CONFIG = -8,       /**< the configuration is wrong */
    CDDP_ERR_AUTH = -9,         /**< the job's token was refused */
    CDDP_ERR_NOT_FOUND = -10,   /**< what was asked for does not exist */
    CDDP_ERR_STATE = -11,       /**< calls came in the wrong order, or in a forked child */
    CDDP_ERR_UNAVAILABLE = -12, /**< this build or machine cannot do it */
    CDDP_ERR_CLOSED = -13,      /**< the object was closed or destroyed */
    CDDP_ERR_DEVICE = -14,      /**< a GPU or its libraries failed */
    CDDP_ERR_BUSY = -15,        /**< another thread is in a call on the object; nothing was done */
    CDDP_ERR_INCOMPLETE = -16,  /**< a backward is not finished, or a parameter got no gradient */
    CDDP_ERR_BROKEN = -17,      /**< an earlier call on the object failed */
    CDDP_STATUS_MAX_ENUM_ = 0x7fffffff
} cddp_status;

/** The text of @p status, a static string. A number that is not a status has a text, too. Any
 *  thread.
 *  Collective: no. */
CDDP_API const char *cddp_status_text(cddp_status status);

/** The name of @p status as it is written in C, such as "CDDP_ERR_PEER"; a static string. NULL: not
 *  a status. Any thread.
 *  Collective: no. */
CDDP_API const char *cddp_status_name(cddp_status status);

/** What failed in this thread's last failed call: rank, operation, peer and cause; "" if no call
 *  has failed yet. Owned by cddp and valid until this thread's next call of cddp.
 *  Collective: no. */
CDDP_API const char *cddp_last_error(void);

/** A failure as data. Fields that are not known are -1, 0 or "". */
typedef struct cddp_failure {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    cddp_status status; /**< what the call returned; CDDP_OK: nothing has failed yet */
    int rank;           /**< the rank that the text begins with; -1: none */
    int culprit;        /**< the rank of the job whose failure caused this one; after a timeout the
                             rank whose deadline passed first; -1: unknown */
    int error_number;   /**< the errno that caused the failure; 0: none */
    bool is_fatal;      /**< The failure broke the group, or the cddp_ddp, of the call: all
                             further calls on it return CDDP_ERR_BROKEN. */
    const char *operation; /**< the group's operation, such as "all_reduce #12"; "": none */
    const char *text;      /**< cddp_last_error(). Both texts are owned by cddp and valid until this
                                thread's next call. */

} cddp_failure;
CDDP_NO_TAIL(cddp_failure, text);
/** An empty cddp_failure. */
#define CDDP_FAILURE_INIT                                                                          \
    {                                                                                              \
        sizeof(cddp_failure), CDDP_OK, -1, -1, 0, false, NULL, NULL                                \
    }

/** Get this thread's last failure, whose text is cddp_last_error(). A program that decides by what
 *  has failed reads these fields, not the text.
 *  Collective: no.
 *  @param out  Initialised with CDDP_FAILURE_INIT.
 *  @return CDDP_OK, also if nothing has failed; CDDP_ERR_ARGUMENT (struct_size is not set). */
CDDP_CHECKED cddp_status cddp_last_failure(cddp_failure *out);

/** Word a failure of the caller's own, in a function that cddp calls and that returns a status (a
 *  hook, a function that loads samples, ...): `return cddp_fail(CDDP_ERR_IO, "no such image")`. The
 *  call of cddp that fails because of it, in any thread, has @p text in its error text.
 *  Collective: no.
 *  @param status  An error; another number becomes CDDP_ERR_ARGUMENT.
 *  @param text    Copied; NULL: cddp_status_text(). It may contain the text of cddp_last_error().
 *  @return @p status. */
CDDP_CHECKED cddp_status cddp_fail(cddp_status status, const char *text);

/** The version of these headers. Before 1.0, each minor version is an interface of its own. */
#define CDDP_VERSION_MAJOR 0
#define CDDP_VERSION_MINOR 2 /**< see CDDP_VERSION_MAJOR */
#define CDDP_VERSION_PATCH 0 /**< see CDDP_VERSION_MAJOR */
/** The version as a number, for the preprocessor: 200 is 0.2.0, 10203 is 1.2.3. */
#define CDDP_VERSION_NUM                                                                           \
    (CDDP_VERSION_MAJOR * 10000 + CDDP_VERSION_MINOR * 100 + CDDP_VERSION_PATCH)

/** The library's version, "major.minor.patch"; a static string. Any thread.
 *  Collective: no. */
CDDP_API const char *cddp_version(void);

/** The library's version as a number, which may be another one than the headers'
 *  CDDP_VERSION_NUM. Any thread.
 *  Collective: no. */
CDDP_API int cddp_version_number(void);

/** Whether this installation has a feature:
 *
 *  - "cuda": the CUDA module was found and loads; whether there is a GPU is another question
 *  - "nccl": the same, and the module finds NCCL
 *  - "mpi": the MPI module was found and loads, with its MPI
 *  - "tools": cddp-train and its siblings were built with this library
 *  - "images": cddp-train was built with libjpeg and libpng
 *  - "hwloc": cddp-run was built with hwloc
 *
 *  An unknown name is false, so that programs may ask for features of later versions. The first
 *  call for a module loads it. If the result is false, cddp_last_error() says why. Any thread.
 *  Collective: no. */
CDDP_API bool cddp_has(const char *feature);

#ifdef __cplusplus
}
#endif
#endif
