/* keys.c - owns the calls for several keys: waiting for all of them, and listing them. */
#include "store/store.h"

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
        CDDPI_TRY(cddpi_store_complete_key(store, "wait", keys[i], 1, &key));
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

cddp_status cddp_store_wait(cddp_store *store, const char *const *keys, size_t count,
                            uint32_t timeout_ms)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_WAIT};
    struct cddpi_store_reply reply;
    struct cddpi_wire_buffer block = {0};
    cddp_status status;

    ENTER_STORE(store, "store_wait");
    if (keys == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_wait: keys is NULL");
    }
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

/* Copy @p from and a NUL to @p to; returns the byte after the NUL. */
static char *put_text(char *to, struct cddpi_slice from)
{
    if (from.bytes > 0) {
        memcpy(to, from.data, from.bytes);
    }
    to[from.bytes] = '\0';
    return to + from.bytes + 1;
}

/* Read the next key of a LIST's answer and, if it has values, the key's value. */
static bool next_item(struct cddpi_slice from, bool has_values, size_t *cursor,
                      struct cddpi_slice *key, struct cddpi_slice *value)
{
    return has_values ? cddpi_pairs_next(from, cursor, key, value)
                      : cddpi_keys_next(from, cursor, key);
}

/* Parse a LIST's answer into one block, NULL if it is empty: pairs if it has values, else pointers
 * to keys; then their texts, without the prefix. */
static cddp_status make_items(const cddp_store *store, struct cddpi_slice from, bool has_values,
                              void **out, size_t *out_count)
{
    size_t item_bytes = has_values ? sizeof(struct cddpi_store_pair) : sizeof(char *);
    struct cddpi_slice key = {NULL, 0};
    struct cddpi_slice value = {NULL, 0};
    size_t cursor = 0;
    size_t count = 0;
    size_t bytes = 0;
    char *text;

    while (next_item(from, has_values, &cursor, &key, &value) && key.bytes >= store->prefix_bytes) {
        bytes += key.bytes - store->prefix_bytes + 1 + (has_values ? value.bytes + 1 : 0);
        count++;
    }
    if (cursor != from.bytes) {
        return cddpi_fail(CDDP_ERR_IO, "store %s: list: the answer is malformed", store->url);
    }
    *out = count > 0 ? cddpi_zalloc(count * item_bytes + bytes) : NULL;
    if (count > 0 && *out == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "store %s: list: no memory for %zu keys", store->url,
                          count);
    }
    *out_count = count;
    if (count == 0) {
        return CDDP_OK;
    }
    text = (char *)*out + count * item_bytes;
    cursor = 0;
    for (size_t i = 0; i < count && next_item(from, has_values, &cursor, &key, &value); i++) {
        char *name = text;

        key.data += store->prefix_bytes;
        key.bytes -= store->prefix_bytes;
        text = put_text(text, key);
        if (has_values) {
            ((struct cddpi_store_pair *)*out)[i] = (struct cddpi_store_pair){name, text,
                                                                             value.bytes};
            text = put_text(text, value);
        } else {
            ((char **)*out)[i] = name;
        }
    }
    return CDDP_OK;
}

/* Get the keys that begin with @p start, and their values if @p has_values. */
static cddp_status list(cddp_store *store, const char *start, bool has_values, void **out,
                        size_t *out_count)
{
    struct cddpi_store_request request = {.op = CDDPI_STORE_LIST, .want_value = has_values};
    struct cddpi_store_reply reply;
    cddp_status status;

    start = start != NULL ? start : "";
    CDDPI_TRY(cddpi_store_complete_key(store, "list", start, 0, &request.key));
    CDDPI_TRY(cddpi_store_perform(store, "list", start, &request, 0, &reply));
    status = make_items(store, (struct cddpi_slice){reply.data, reply.bytes}, has_values, out,
                        out_count);
    cddpi_free(reply.data);
    return status;
}

cddp_status cddp_store_list(cddp_store *store, const char *start, char ***out, size_t *out_count)
{
    void *room = NULL;

    ENTER_STORE(store, "store_list");
    if (out == NULL || out_count == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "store_list: %s is NULL",
                          out == NULL ? "out" : "out_count");
    }
    CDDPI_TRY(list(store, start, false, &room, out_count));
    *out = room;
    return CDDP_OK;
}

cddp_status cddpi_store_list_values(cddp_store *store, const char *start,
                                    struct cddpi_store_pair **out, size_t *out_count)
{
    void *room = NULL;

    CDDPI_TRY(list(store, start, true, &room, out_count));
    *out = room;
    return CDDP_OK;
}
