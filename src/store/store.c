/* store.c - what the public calls do: checks arguments, puts the prefix in front of keys, words
 * what the store answers. A backend does the operations. */
#include "store/store.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/number.h"
#include "base/struct_size.h"
#include "store/request.h"
#include "store/wire.h"

#include <sodium.h>
#include <stddef.h>
#include <stdio.h>

enum { TIMEOUT_MS = 300000, NAMES_BYTES = 1024, KEY_TEXT_BYTES = 128 };

struct cddp_store {
    struct cddpi_handle handle;
    struct cddpi_store_backend *backend;
    char *url;
    size_t prefix_bytes;
    uint32_t timeout_ms;
    /* the prefix, and behind it room for a key: where complete keys are made */
    uint8_t key[CDDPI_STORE_FULL_KEY_BYTES];
};

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

/* The options as this version knows them, whatever the caller was compiled against. */
static cddp_status read_options(const cddp_store_options *options, cddp_store_options *out)
{
    cddp_store_options known = CDDP_STORE_OPTIONS_INIT;
    size_t least = offsetof(cddp_store_options, timeout_ms) + sizeof known.timeout_ms;

    cddp_status status;

    if (options == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_open: options is NULL");
    }
    status = cddpi_struct_read("store options", "CDDP_STORE_OPTIONS_INIT", options, sizeof known,
                               least, &known);
    if (status != CDDP_OK) {
        return status;
    }
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
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store: out is NULL");
    }
    status = read_options(options, &known);
    if (status != CDDP_OK) {
        return status;
    }
    if (sodium_init() < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "store %s: libsodium finds no random numbers",
                          known.url);
    }
    store = cddpi_zalloc(sizeof *store);
    if (store == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: no memory", known.url);
    }
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

/* @p key with the prefix in front, valid until the next call. */
static cddp_status complete_key(cddp_store *store, const char *call, const char *key, size_t least,
                                struct cddpi_slice *out)
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

/* Whether @p status is an answer to @p op whose meaning the caller knows. */
static bool is_answer(enum cddpi_store_op op, cddp_status status)
{
    return status == CDDP_OK || (status == CDDP_ERR_NOT_FOUND && op == CDDPI_STORE_TRY_GET) ||
           (status == CDDP_ERR_TIMEOUT && (op == CDDPI_STORE_GET || op == CDDPI_STORE_WAIT));
}

/* Word every other answer as a failure. */
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

/* Let the backend do @p request; @p key is for the text only. With CDDP_OK, NOT_FOUND (TRY_GET) and
 * a TIMEOUT of the store itself (GET and WAIT), @p out is the answer; its data is the caller's,
 * except with NOT_FOUND. */
static cddp_status perform(cddp_store *store, const char *call, const char *key,
                           const struct cddpi_store_request *request, uint32_t timeout_ms,
                           struct cddpi_store_reply *out)
{
    struct cddpi_store_reply reply = {.status = CDDP_OK};
    cddp_status status;

    status = store->backend->ops->perform(
        store->backend, request, cddpi_deadline_ns(timeout_ms > 0 ? timeout_ms : store->timeout_ms),
        &reply);
    if (status != CDDP_OK) {
        /* to callers a TIMEOUT without an answer is one with an empty answer */
        memset(out, 0, sizeof *out);
        return cddpi_fail_prefix(status, "store %s: %s \"%s\"", store->url, call, key);
    }
    status = is_answer(request->op, reply.status) ? reply.status
                                                  : word_answer(store, call, key, reply.status);
    if (status != CDDP_OK && status != CDDP_ERR_TIMEOUT) { /* no other carries data */
        cddpi_free(reply.data);
        reply.data = NULL;
    }
    *out = reply;
    return status;
}

/* Give the caller the value; an empty one still gets memory with a NUL byte. */
static cddp_status hand_over(const cddp_store *store, struct cddpi_store_reply *reply, void **out,
                             size_t *out_bytes)
{
    if (reply->data == NULL) {
        reply->data = cddpi_zalloc(1);
        if (reply->data == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: no memory", store->url);
        }
    }
    *out = reply->data;
    if (out_bytes != NULL) {
        *out_bytes = reply->bytes;
    }
    return CDDP_OK;
}

cddp_status cddpi_store_set(cddp_store *store, const char *key, const void *value, size_t bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_SET, .value = {value, bytes}};
    struct cddpi_store_reply reply;
    cddp_status status = complete_key(store, "set", key, 1, &request.key);

    if (status == CDDP_OK) {
        status = check_value(store, "set", key, value, bytes);
    }
    if (status == CDDP_OK) {
        status = perform(store, "set", key, &request, 0, &reply);
    }
    if (status == CDDP_OK) {
        cddpi_free(reply.data);
    }
    return status;
}

cddp_status cddpi_store_get(cddp_store *store, const char *key, uint32_t timeout_ms, void **out,
                            size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_GET};
    struct cddpi_store_reply reply;
    cddp_status status = complete_key(store, "get", key, 1, &request.key);

    if (status != CDDP_OK) {
        return status;
    }
    status = perform(store, "get", key, &request, timeout_ms, &reply);
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

cddp_status cddpi_store_try_get(cddp_store *store, const char *key, void **out, size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_TRY_GET};
    struct cddpi_store_reply reply;
    cddp_status status = complete_key(store, "try_get", key, 1, &request.key);

    if (status != CDDP_OK) {
        return status;
    }
    status = perform(store, "try_get", key, &request, 0, &reply);
    if (status == CDDP_OK) {
        return hand_over(store, &reply, out, out_bytes);
    }
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(status, "store %s: try_get \"%s\": no such key", store->url, key);
    }
    return status;
}

cddp_status cddpi_store_add(cddp_store *store, const char *key, int64_t amount, int64_t *out)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_ADD, .amount = amount};
    struct cddpi_store_reply reply;
    int64_t sum;
    cddp_status status = complete_key(store, "add", key, 1, &request.key);

    if (status != CDDP_OK) {
        return status;
    }
    status = perform(store, "add", key, &request, 0, &reply);
    if (status != CDDP_OK) {
        return status;
    }
    if (!cddpi_parse_integer((const char *)reply.data, INT64_MIN, INT64_MAX, &sum)) {
        status = cddpi_fail(CDDP_ERR_IO, "store %s: add \"%s\": the answer is not a number",
                            store->url, key);
    } else if (out != NULL) {
        *out = sum;
    }
    cddpi_free(reply.data);
    return status;
}

cddp_status cddpi_store_compare_set(cddp_store *store, const char *key, const void *expected,
                                    size_t expected_bytes, const void *desired,
                                    size_t desired_bytes, bool *out_swapped, void **out,
                                    size_t *out_bytes)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_COMPARE_SET,
                                          .want_value = out != NULL,
                                          .expected = {expected, expected_bytes},
                                          .value = {desired, desired_bytes}};
    struct cddpi_store_reply reply;
    cddp_status status = complete_key(store, "compare_set", key, 1, &request.key);

    if (status == CDDP_OK) {
        status = check_value(store, "compare_set", key, expected, expected_bytes);
    }
    if (status == CDDP_OK) {
        status = check_value(store, "compare_set", key, desired, desired_bytes);
    }
    if (status == CDDP_OK) {
        status = perform(store, "compare_set", key, &request, 0, &reply);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (out != NULL) {
        status = hand_over(store, &reply, out, out_bytes);
    } else {
        cddpi_free(reply.data);
    }
    if (status == CDDP_OK && out_swapped != NULL) {
        *out_swapped = reply.flag;
    }
    return status;
}

cddp_status cddpi_store_delete(cddp_store *store, const char *key, bool *out_existed)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_DELETE};
    struct cddpi_store_reply reply;
    cddp_status status = complete_key(store, "delete", key, 1, &request.key);

    if (status == CDDP_OK) {
        status = perform(store, "delete", key, &request, 0, &reply);
    }
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_free(reply.data);
    if (out_existed != NULL) {
        *out_existed = reply.flag;
    }
    return CDDP_OK;
}

/* All @p keys, with the prefix, in one block. */
static cddp_status pack_keys(cddp_store *store, const char *const *keys, size_t count,
                             struct cddpi_buffer *out)
{
    struct cddpi_slice key = {NULL, 0};
    uint8_t length[2];

    for (size_t i = 0; i < count; i++) {
        cddp_status status = complete_key(store, "wait", keys[i], 1, &key);

        if (status != CDDP_OK) {
            return status;
        }
        if (out->bytes + cddpi_keys_bytes(key.bytes) > CDDPI_STORE_KEYS_BYTES) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "store %s: wait: %zu keys of more than %d bytes",
                              store->url, count, CDDPI_STORE_KEYS_BYTES);
        }
        if (!cddpi_buffer_reserve(out, cddpi_keys_bytes(key.bytes))) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: wait: no memory", store->url);
        }
        cddpi_put_u16(length, (uint16_t)key.bytes);
        cddpi_buffer_append(out, length, sizeof length);
        cddpi_buffer_append(out, key.data, key.bytes);
    }
    return CDDP_OK;
}

/* The first keys of @p keys for a text, without the prefix: "a", "b", ... */
static void name_keys(const cddp_store *store, struct cddpi_slice keys, size_t count,
                      char text[NAMES_BYTES])
{
    struct cddpi_slice key;
    size_t cursor = 0;
    size_t named = 0;
    size_t used = 0;

    text[0] = '\0';
    while (used + KEY_TEXT_BYTES + 16 < NAMES_BYTES && cddpi_keys_next(keys, &cursor, &key)) {
        size_t skip = key.bytes > store->prefix_bytes ? store->prefix_bytes : 0;
        size_t bytes = key.bytes - skip;

        used += (size_t)snprintf(
            text + used, NAMES_BYTES - used, "%s\"%.*s%s\"", named > 0 ? ", " : "",
            (int)(bytes < KEY_TEXT_BYTES ? bytes : KEY_TEXT_BYTES), (const char *)key.data + skip,
            bytes > KEY_TEXT_BYTES ? "..." : "");
        named++;
    }
    if (named < count) {
        snprintf(text + used, NAMES_BYTES - used, "%s...", named > 0 ? ", " : "");
    }
}

static cddp_status word_missing(const cddp_store *store, const struct cddpi_store_reply *reply,
                                size_t count, uint32_t timeout_ms)
{
    struct cddpi_slice keys = {NULL, 0};
    char names[NAMES_BYTES];
    size_t missing = count;

    if (reply->bytes >= 4) {
        missing = cddpi_get_u32(reply->data);
        keys.data = reply->data + 4;
        keys.bytes = reply->bytes - 4;
    }
    name_keys(store, keys, missing, names);
    return cddpi_fail(CDDP_ERR_TIMEOUT,
                      "store %s: wait: %zu of %zu keys did not appear within %u ms: %s", store->url,
                      missing, count, timeout_ms, names);
}

cddp_status cddpi_store_wait(cddp_store *store, const char *const *keys, size_t count,
                             uint32_t timeout_ms)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_WAIT};
    struct cddpi_store_reply reply;
    struct cddpi_buffer block = {0};
    cddp_status status;

    if (count == 0) {
        return CDDP_OK;
    }
    status = pack_keys(store, keys, count, &block);
    if (status != CDDP_OK) {
        goto end;
    }
    timeout_ms = timeout_ms > 0 ? timeout_ms : store->timeout_ms;
    request.value.data = block.data;
    request.value.bytes = block.bytes;
    status = perform(store, "wait", keys[0], &request, timeout_ms, &reply);
    if (status == CDDP_OK) {
        cddpi_free(reply.data);
    } else if (status == CDDP_ERR_TIMEOUT && reply.status == CDDP_ERR_TIMEOUT) {
        status = word_missing(store, &reply, count, timeout_ms);
        cddpi_free(reply.data);
    }

end:
    cddpi_buffer_fini(&block);
    return status;
}

/* An array of pointers and behind it the texts, in one block. */
static cddp_status make_list(const cddp_store *store, struct cddpi_slice keys, char ***out,
                             size_t *out_count)
{
    struct cddpi_slice key = {NULL, 0};
    size_t cursor = 0;
    size_t count = 0;
    size_t bytes = 0;
    char **list;
    char *text;

    while (cddpi_keys_next(keys, &cursor, &key) && key.bytes >= store->prefix_bytes) {
        bytes += key.bytes - store->prefix_bytes + 1;
        count++;
    }
    if (cursor != keys.bytes) {
        return cddpi_fail(CDDP_ERR_IO, "store %s: list: the answer is malformed", store->url);
    }
    if (count == 0) {
        *out = NULL;
        *out_count = 0;
        return CDDP_OK;
    }
    list = cddpi_zalloc(count * sizeof *list + bytes);
    if (list == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: list: no memory for %zu keys", store->url,
                          count);
    }
    text = (char *)(list + count);
    cursor = 0;
    for (size_t i = 0; i < count && cddpi_keys_next(keys, &cursor, &key); i++) {
        list[i] = text;
        memcpy(text, key.data + store->prefix_bytes, key.bytes - store->prefix_bytes);
        text += key.bytes - store->prefix_bytes + 1;
    }
    *out = list;
    *out_count = count;
    return CDDP_OK;
}

/* Ask for what begins with @p start. */
static cddp_status ask_list(cddp_store *store, const char *start, bool want_value,
                            struct cddpi_store_reply *out)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_LIST, .want_value = want_value};
    cddp_status status;

    start = start != NULL ? start : "";
    status = complete_key(store, "list", start, 0, &request.key);
    return status == CDDP_OK ? perform(store, "list", start, &request, 0, out) : status;
}

cddp_status cddpi_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count)
{
    struct cddpi_store_reply reply;
    cddp_status status = ask_list(store, start, false, &reply);

    if (status == CDDP_OK) {
        status = make_list(store, (struct cddpi_slice){reply.data, reply.bytes}, out, out_count);
        cddpi_free(reply.data);
    }
    return status;
}

/* Copy @p from, and a NUL, to @p to; returns what is behind. */
static char *put_text(char *to, struct cddpi_slice from)
{
    if (from.bytes > 0) {
        memcpy(to, from.data, from.bytes);
    }
    to[from.bytes] = '\0';
    return to + from.bytes + 1;
}

/* An array of pairs and behind it their texts, in one block. */
static cddp_status make_pairs(const cddp_store *store, struct cddpi_slice from,
                              struct cddpi_store_pair **out, size_t *out_count)
{
    struct cddpi_slice key = {NULL, 0};
    struct cddpi_slice value = {NULL, 0};
    struct cddpi_store_pair *pairs;
    size_t cursor = 0;
    size_t count = 0;
    size_t bytes = 0;
    char *text;

    while (cddpi_pairs_next(from, &cursor, &key, &value) && key.bytes >= store->prefix_bytes) {
        bytes += key.bytes - store->prefix_bytes + value.bytes + 2;
        count++;
    }
    if (cursor != from.bytes) {
        return cddpi_fail(CDDP_ERR_IO, "store %s: list: the answer is malformed", store->url);
    }
    *out = NULL;
    *out_count = count;
    if (count == 0) {
        return CDDP_OK;
    }
    pairs = cddpi_zalloc(count * sizeof *pairs + bytes);
    if (pairs == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: list: no memory for %zu keys", store->url,
                          count);
    }
    text = (char *)(pairs + count);
    cursor = 0;
    for (size_t i = 0; i < count && cddpi_pairs_next(from, &cursor, &key, &value); i++) {
        pairs[i].key = text;
        text = put_text(text, (struct cddpi_slice){key.data + store->prefix_bytes,
                                                   key.bytes - store->prefix_bytes});
        pairs[i].value = text;
        pairs[i].bytes = value.bytes;
        text = put_text(text, value);
    }
    *out = pairs;
    return CDDP_OK;
}

cddp_status cddpi_store_list_values(cddp_store *store, const char *start,
                                    struct cddpi_store_pair **out, size_t *out_count)
{
    struct cddpi_store_reply reply;
    cddp_status status = ask_list(store, start, true, &reply);

    if (status == CDDP_OK) {
        status = make_pairs(store, (struct cddpi_slice){reply.data, reply.bytes}, out, out_count);
        cddpi_free(reply.data);
    }
    return status;
}
