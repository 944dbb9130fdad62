/* keys.c - owns the calls for several keys: waiting for all of them, and listing them. */
#include "store/calls.h"

#include "base/alloc.h"
#include "base/error.h"
#include "store/store_wire.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 1024, KEY_TEXT_BYTES = 128 };

/* Encode all @p keys, each with the prefix, in one block. */
static cddp_status pack_keys(cddp_store *store, const char *const *keys, size_t count,
                             struct cddpi_wire_buffer *out)
{
    struct cddpi_slice key = {NULL, 0};
    uint8_t length[2];

    for (size_t i = 0; i < count; i++) {
        cddp_status status = cddpi_store_complete_key(store, "wait", keys[i], 1, &key);

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

/* Write the first of @p keys, without the prefix, for an error text: "a", "b", ... */
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
    struct cddpi_wire_buffer block = {0};
    cddp_status status;

    if (count == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY_GOTO(end, status, pack_keys(store, keys, count, &block));
    timeout_ms = timeout_ms > 0 ? timeout_ms : store->timeout_ms;
    request.value.data = block.data;
    request.value.bytes = block.bytes;
    status = cddpi_store_perform(store, "wait", keys[0], &request, timeout_ms, &reply);
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

/* Allocate one block for @p count items followed by their texts; NULL if there are no items.
 * @param is_whole  Whether the answer could be parsed to its end; if not, fail. */
static cddp_status make_room(const cddp_store *store, bool is_whole, size_t count,
                             size_t item_bytes, size_t text_bytes, void **out)
{
    *out = NULL;
    if (!is_whole) {
        return cddpi_fail(CDDP_ERR_IO, "store %s: list: the answer is malformed", store->url);
    }
    if (count == 0) {
        return CDDP_OK;
    }
    *out = cddpi_zalloc(count * item_bytes + text_bytes);
    return *out != NULL ? CDDP_OK
                        : cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: list: no memory for %zu keys",
                                     store->url, count);
}

static struct cddpi_slice without_prefix(const cddp_store *store, struct cddpi_slice key)
{
    return (struct cddpi_slice){key.data + store->prefix_bytes, key.bytes - store->prefix_bytes};
}

/* Copy @p from and a NUL to @p to; returns the byte after the NUL. */
static char *put_text(char *to, struct cddpi_slice from)
{
    if (from.bytes > 0) {
        memcpy(to, from.data, from.bytes);
    }
    to[from.bytes] = '\0';
    return to + from.bytes + 1;
}

static cddp_status make_list(const cddp_store *store, struct cddpi_slice keys, char ***out,
                             size_t *out_count)
{
    struct cddpi_slice key = {NULL, 0};
    size_t cursor = 0;
    size_t count = 0;
    size_t bytes = 0;
    void *room;
    char *text;

    while (cddpi_keys_next(keys, &cursor, &key) && key.bytes >= store->prefix_bytes) {
        bytes += key.bytes - store->prefix_bytes + 1;
        count++;
    }
    CDDPI_TRY(make_room(store, cursor == keys.bytes, count, sizeof **out, bytes, &room));
    *out = room;
    *out_count = count;
    if (count == 0) {
        return CDDP_OK;
    }
    text = (char *)(*out + count);
    cursor = 0;
    for (size_t i = 0; i < count && cddpi_keys_next(keys, &cursor, &key); i++) {
        (*out)[i] = text;
        text = put_text(text, without_prefix(store, key));
    }
    return CDDP_OK;
}

/* Request the keys that begin with @p start, and their values if @p want_value. */
static cddp_status ask_list(cddp_store *store, const char *start, bool want_value,
                            struct cddpi_store_reply *out)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_LIST, .want_value = want_value};

    start = start != NULL ? start : "";
    CDDPI_TRY(cddpi_store_complete_key(store, "list", start, 0, &request.key));
    return cddpi_store_perform(store, "list", start, &request, 0, out);
}

cddp_status cddpi_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count)
{
    struct cddpi_store_reply reply;
    cddp_status status;

    CDDPI_TRY(ask_list(store, start, false, &reply));
    status = make_list(store, (struct cddpi_slice){reply.data, reply.bytes}, out, out_count);
    cddpi_free(reply.data);
    return status;
}

static cddp_status make_pairs(const cddp_store *store, struct cddpi_slice from,
                              struct cddpi_store_pair **out, size_t *out_count)
{
    struct cddpi_slice key = {NULL, 0};
    struct cddpi_slice value = {NULL, 0};
    size_t cursor = 0;
    size_t count = 0;
    size_t bytes = 0;
    void *room;
    char *text;

    while (cddpi_pairs_next(from, &cursor, &key, &value) && key.bytes >= store->prefix_bytes) {
        bytes += key.bytes - store->prefix_bytes + value.bytes + 2;
        count++;
    }
    CDDPI_TRY(make_room(store, cursor == from.bytes, count, sizeof **out, bytes, &room));
    *out = room;
    *out_count = count;
    if (count == 0) {
        return CDDP_OK;
    }
    text = (char *)(*out + count);
    cursor = 0;
    for (size_t i = 0; i < count && cddpi_pairs_next(from, &cursor, &key, &value); i++) {
        struct cddpi_store_pair *pair = &(*out)[i];

        pair->key = text;
        text = put_text(text, without_prefix(store, key));
        pair->value = text;
        pair->bytes = value.bytes;
        text = put_text(text, value);
    }
    return CDDP_OK;
}

cddp_status cddpi_store_list_values(cddp_store *store, const char *start,
                                    struct cddpi_store_pair **out, size_t *out_count)
{
    struct cddpi_store_reply reply;
    cddp_status status;

    CDDPI_TRY(ask_list(store, start, true, &reply));
    status = make_pairs(store, (struct cddpi_slice){reply.data, reply.bytes}, out, out_count);
    cddpi_free(reply.data);
    return status;
}
