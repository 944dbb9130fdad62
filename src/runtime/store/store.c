/* store.c - owns opening and closing a store, and the public calls for one key: it admits one
 * thread at a time, and only the process that opened the store, checks arguments, adds the prefix
 * to keys, and words the store's answers. A backend carries the operations out. */
#include "store/store.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/number.h"
#include "base/types.h"
#include "store/auth.h"
#include "store/store_wire.h"

#include <sodium.h>
#include <stddef.h>

enum { TIMEOUT_MS = 300000 };

static cddp_status open_backend(const char *url, const char *token, int64_t deadline_ns,
                                struct cddpi_store_backend **out)
{
    if (strncmp(url, "tcp://", 6) == 0) {
        return cddpi_store_open_tcp(url + 6, token, deadline_ns, out);
    }
    if (strncmp(url, "file://", 7) == 0) {
        return cddpi_store_open_file(url + 7, token, deadline_ns, out);
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "neither tcp://host:port nor file:///path");
}

/* Convert the options to this version's struct, whatever version the caller was compiled with. */
static cddp_status read_options(const cddp_store_options *options, cddp_store_options *out)
{
    cddp_store_options known = CDDP_STORE_OPTIONS_INIT;

    if (options == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_open: options is NULL");
    }
    CDDPI_TRY(cddpi_struct_read("store options", "CDDP_STORE_OPTIONS_INIT", options, sizeof known,
                                &known));
    CDDPI_TRY(cddpi_reserved_check("store options", &known.reserved, sizeof known.reserved));
    if (known.url == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store: no url");
    }
    if (known.prefix != NULL && strlen(known.prefix) > CDDP_STORE_KEY_BYTES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store %s: the prefix has %zu bytes, more than %d",
                          known.url, strlen(known.prefix), CDDP_STORE_KEY_BYTES);
    }
    if (known.token == NULL) {
        known.token = cddpi_env(CDDPI_ENV_TOKEN);
        known.token = known.token != NULL ? known.token : "";
    }
    known.timeout_ms = known.timeout_ms > 0 ? known.timeout_ms : TIMEOUT_MS;
    *out = known;
    return CDDP_OK;
}

cddp_status cddp_store_open(const cddp_store_options *options, cddp_store **out)
{
    cddp_store_options known = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store;
    bool encrypts_data;
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store: out is NULL");
    }
    CDDPI_TRY(read_options(options, &known));
    status = cddpi_encryption_wanted(&encrypts_data); /* report a wrong CDDP_ENCRYPT early */
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "store %s", known.url);
    }
    if (sodium_init() < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "store %s: libsodium finds no random numbers",
                          known.url);
    }
    store = cddpi_zalloc(sizeof *store);
    CDDPI_TRY_MEMORY(store != NULL, "store %s: no memory", known.url);
    cddpi_handle_init(&store->handle, CDDPI_HANDLE_STORE);
    store->url = cddpi_strdup(known.url);
    if (store->url == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: no memory", known.url);
        goto fail;
    }
    store->timeout_ms = known.timeout_ms;
    if (known.prefix != NULL) {
        store->prefix_bytes = strlen(known.prefix);
        memcpy(store->key, known.prefix, store->prefix_bytes);
    }
    status = open_backend(known.url, known.token, cddpi_deadline_ns(known.timeout_ms),
                          &store->backend);
    if (status != CDDP_OK) {
        status = cddpi_fail_prefix(status, "store %s", known.url);
        goto fail;
    }
    *out = store;
    return CDDP_OK;

fail:
    cddp_store_close(store);
    return status;
}

void cddp_free(void *memory)
{
    cddpi_free(memory);
}

void cddp_store_close(cddp_store *store)
{
    if (store == NULL ||
        !cddpi_handle_enter_last(&store->handle, CDDPI_HANDLE_STORE, "store_close")) {
        return;
    }
    if (store->backend != NULL) {
        store->backend->ops->close(store->backend, !cddpi_handle_is_own(&store->handle));
    }
    cddpi_free(store->url);
    cddpi_handle_release(&store->handle, sizeof *store);
}

cddp_status cddpi_store_complete_key(cddp_store *store, const char *call, const char *key,
                                     size_t least, struct cddpi_slice *out)
{
    size_t bytes = key != NULL ? strlen(key) : 0;

    if (key == NULL || bytes < least || bytes > CDDP_STORE_KEY_BYTES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store %s: %s: a key of %zu bytes, not %zu to %d",
                          store->url, call, bytes, least, CDDP_STORE_KEY_BYTES);
    }
    memcpy(store->key + store->prefix_bytes, key, bytes);
    out->data = store->key;
    out->bytes = store->prefix_bytes + bytes;
    return CDDP_OK;
}

static cddp_status check_value(const cddp_store *store, const char *call, const char *key,
                               const void *value, size_t bytes)
{
    if (bytes > CDDP_STORE_VALUE_BYTES || (value == NULL && bytes > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "store %s: %s \"%s\": a value of %zu bytes at %p; at most %d", store->url,
                          call, key, bytes, value, CDDP_STORE_VALUE_BYTES);
    }
    return CDDP_OK;
}

/* Whether @p status is an answer to @p op that the calling function handles itself. */
static bool is_answer(enum cddpi_store_op op, cddp_status status)
{
    return status == CDDP_OK || (status == CDDP_ERR_NOT_FOUND && op == CDDPI_STORE_TRY_GET) ||
           (status == CDDP_ERR_TIMEOUT && (op == CDDPI_STORE_GET || op == CDDPI_STORE_WAIT));
}

/* Fail with a text for any other answer. */
static cddp_status word_answer(const cddp_store *store, const char *call, const char *key,
                               cddp_status status)
{
    switch (status) {
    case CDDP_ERR_FORMAT:
        return cddpi_fail(status, "store %s: %s \"%s\": its value is not a whole number",
                          store->url, call, key);
    case CDDP_ERR_ARGUMENT:
        return cddpi_fail(status, "store %s: %s \"%s\": the sum does not fit into 64 bits",
                          store->url, call, key);
    case CDDP_ERR_UNAVAILABLE:
        return cddpi_fail(status, "store %s: %s \"%s\": more than %d bytes to list", store->url,
                          call, key, CDDPI_STORE_LIST_BYTES);
    case CDDP_ERR_NO_MEMORY:
        return cddpi_fail(status, "store %s: %s \"%s\": the store has no memory left", store->url,
                          call, key);
    default:
        return cddpi_fail(CDDP_ERR_IO, "store %s: %s \"%s\": status %d from the store", store->url,
                          call, key, (int)status);
    }
}

cddp_status cddpi_store_perform(cddp_store *store, const char *call, const char *key,
                                const struct cddpi_store_request *request, uint32_t timeout_ms,
                                struct cddpi_store_reply *out)
{
    struct cddpi_store_reply reply = {.status = CDDP_OK};
    cddp_status status;

    status = store->backend->ops->perform(
        store->backend, request, cddpi_deadline_ns(timeout_ms > 0 ? timeout_ms : store->timeout_ms),
        &reply);
    if (status != CDDP_OK) {
        /* if the store did not answer in time, callers see a TIMEOUT with an empty answer */
        memset(out, 0, sizeof *out);
        return cddpi_fail_prefix(status, "store %s: %s \"%s\"", store->url, call, key);
    }
    status = is_answer(request->op, reply.status) ? reply.status
                                                  : word_answer(store, call, key, reply.status);
    if (status != CDDP_OK && status != CDDP_ERR_TIMEOUT) { /* the others have no data */
        cddpi_free(reply.data);
        reply.data = NULL;
    }
    *out = reply;
    return status;
}

/* Hand the value to the caller. An empty value, too, gets memory with a NUL byte. */
static cddp_status hand_over(const cddp_store *store, struct cddpi_store_reply *reply, void **out,
                             size_t *out_bytes)
{
    if (reply->data == NULL) {
        reply->data = cddpi_zalloc(1);
        CDDPI_TRY_MEMORY(reply->data != NULL, "store %s: no memory", store->url);
    }
    *out = reply->data;
    if (out_bytes != NULL) {
        *out_bytes = reply->bytes;
    }
    return CDDP_OK;
}

cddp_status cddp_store_set(cddp_store *store, const char *key, const void *value, size_t bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_SET, .value = {value, bytes}};
    struct cddpi_store_reply reply;

    ENTER_STORE(store, "store_set");
    CDDPI_TRY(cddpi_store_complete_key(store, "set", key, 1, &request.key));
    CDDPI_TRY(check_value(store, "set", key, value, bytes));
    CDDPI_TRY(cddpi_store_perform(store, "set", key, &request, 0, &reply));
    cddpi_free(reply.data);
    return CDDP_OK;
}

void cddpi_store_set_timeout(cddp_store *store, uint32_t timeout_ms)
{
    store->timeout_ms = timeout_ms;
}

cddp_status cddpi_store_last_word(cddp_store *store, const char *key, const void *value,
                                  size_t bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_LAST_WORD, .value = {value, bytes}};
    struct cddpi_store_reply reply;

    CDDPI_TRY(cddpi_store_complete_key(store, "last word", key, 1, &request.key));
    if (bytes > CDDPI_STORE_LAST_WORD_BYTES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store %s: a last word of %zu bytes; at most %d",
                          store->url, bytes, CDDPI_STORE_LAST_WORD_BYTES);
    }
    if (strncmp(store->url, "tcp://", 6) != 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "store %s: a last word is for a store with a connection", store->url);
    }
    CDDPI_TRY(cddpi_store_perform(store, "last word", key, &request, 0, &reply));
    cddpi_free(reply.data);
    return CDDP_OK;
}

cddp_status cddp_store_get(cddp_store *store, const char *key, uint32_t timeout_ms, void **out,
                           size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_GET};
    struct cddpi_store_reply reply;
    cddp_status status;

    ENTER_STORE(store, "store_get");
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_get: out is NULL");
    }
    CDDPI_TRY(cddpi_store_complete_key(store, "get", key, 1, &request.key));
    status = cddpi_store_perform(store, "get", key, &request, timeout_ms, &reply);
    if (status == CDDP_OK) {
        return hand_over(store, &reply, out, out_bytes);
    }
    if (status == CDDP_ERR_TIMEOUT && reply.status == CDDP_ERR_TIMEOUT) {
        cddpi_free(reply.data);
        return cddpi_fail(status, "store %s: get \"%s\": the key did not appear within %u ms",
                          store->url, key, timeout_ms > 0 ? timeout_ms : store->timeout_ms);
    }
    return status;
}

cddp_status cddp_store_try_get(cddp_store *store, const char *key, void **out, size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_TRY_GET};
    struct cddpi_store_reply reply;
    cddp_status status;

    ENTER_STORE(store, "store_try_get");
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_try_get: out is NULL");
    }
    CDDPI_TRY(cddpi_store_complete_key(store, "try_get", key, 1, &request.key));
    status = cddpi_store_perform(store, "try_get", key, &request, 0, &reply);
    if (status == CDDP_OK) {
        return hand_over(store, &reply, out, out_bytes);
    }
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(status, "store %s: try_get \"%s\": no such key", store->url, key);
    }
    return status;
}

cddp_status cddp_store_add(cddp_store *store, const char *key, int64_t amount, int64_t *out)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_ADD, .amount = amount};
    struct cddpi_store_reply reply;
    int64_t sum;
    cddp_status status = CDDP_OK;

    ENTER_STORE(store, "store_add");
    CDDPI_TRY(cddpi_store_complete_key(store, "add", key, 1, &request.key));
    CDDPI_TRY(cddpi_store_perform(store, "add", key, &request, 0, &reply));
    if (!cddpi_parse_integer((const char *)reply.data, INT64_MIN, INT64_MAX, &sum)) {
        status = cddpi_fail(CDDP_ERR_IO, "store %s: add \"%s\": the answer is not a number",
                            store->url, key);
    } else if (out != NULL) {
        *out = sum;
    }
    cddpi_free(reply.data);
    return status;
}

cddp_status cddp_store_compare_set(cddp_store *store, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   bool *out_swapped, void **out, size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_COMPARE_SET,
                                          .want_value = out != NULL,
                                          .expected = {expected, expected_bytes},
                                          .value = {desired, desired_bytes}};
    struct cddpi_store_reply reply;

    ENTER_STORE(store, "store_compare_set");
    CDDPI_TRY(cddpi_store_complete_key(store, "compare_set", key, 1, &request.key));
    CDDPI_TRY(check_value(store, "compare_set", key, expected, expected_bytes));
    CDDPI_TRY(check_value(store, "compare_set", key, desired, desired_bytes));
    CDDPI_TRY(cddpi_store_perform(store, "compare_set", key, &request, 0, &reply));
    if (out != NULL) {
        CDDPI_TRY(hand_over(store, &reply, out, out_bytes));
    } else {
        cddpi_free(reply.data);
    }
    if (out_swapped != NULL) {
        *out_swapped = reply.flag;
    }
    return CDDP_OK;
}

cddp_status cddp_store_delete(cddp_store *store, const char *key, bool *out_existed)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_DELETE};
    struct cddpi_store_reply reply;

    ENTER_STORE(store, "store_delete");
    CDDPI_TRY(cddpi_store_complete_key(store, "delete", key, 1, &request.key));
    CDDPI_TRY(cddpi_store_perform(store, "delete", key, &request, 0, &reply));
    cddpi_free(reply.data);
    if (out_existed != NULL) {
        *out_existed = reply.flag;
    }
    return CDDP_OK;
}
