/* store_wire.c - owns encoding requests as the bytes of store_wire.h and decoding them. It trusts
 * no byte that it decodes. */
#include "store/store_wire.h"

#include "base/alloc.h"

bool cddpi_buffer_reserve(struct cddpi_wire_buffer *buffer, size_t more)
{
    size_t needed = buffer->bytes + more;
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : 256;
    uint8_t *data;

    if (needed <= buffer->capacity) {
        return true;
    }
    while (capacity < needed) {
        capacity *= 2;
    }
    data = cddpi_realloc(buffer->data, capacity);
    if (data == NULL) {
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void cddpi_buffer_append(struct cddpi_wire_buffer *buffer, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(buffer->data + buffer->bytes, data, bytes);
        buffer->bytes += bytes;
    }
}

void cddpi_buffer_drop(struct cddpi_wire_buffer *buffer, size_t bytes)
{
    enum { KEEP_BYTES = 64 << 10 }; /* a larger buffer is freed once it is empty */

    buffer->bytes -= bytes;
    if (buffer->bytes > 0) {
        memmove(buffer->data, buffer->data + bytes, buffer->bytes);
    } else if (buffer->capacity > KEEP_BYTES) {
        cddpi_buffer_fini(buffer);
    }
}

void cddpi_buffer_fini(struct cddpi_wire_buffer *buffer)
{
    cddpi_free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

void cddpi_wire_put_head(uint8_t to[CDDPI_WIRE_HEAD_BYTES], const struct cddpi_wire_head *head)
{
    cddpi_put_u32(to, head->body_bytes);
    cddpi_put_u32(to + 4, head->id);
    to[8] = head->code;
    to[9] = head->flags;
    cddpi_put_u16(to + 10, 0);
}

void cddpi_wire_get_head(const uint8_t from[CDDPI_WIRE_HEAD_BYTES], struct cddpi_wire_head *out)
{
    out->body_bytes = cddpi_get_u32(from);
    out->id = cddpi_get_u32(from + 4);
    out->code = from[8];
    out->flags = from[9];
}

bool cddpi_wire_body_limit(uint8_t op, size_t *out)
{
    size_t key = cddpi_keys_bytes(CDDPI_STORE_FULL_KEY_BYTES);

    switch ((enum cddpi_store_op)op) {
    case CDDPI_STORE_SET:
        *out = key + CDDP_STORE_VALUE_BYTES;
        return true;
    case CDDPI_STORE_LAST_WORD:
        *out = key + CDDPI_STORE_LAST_WORD_BYTES;
        return true;
    case CDDPI_STORE_GET:
    case CDDPI_STORE_TRY_GET:
    case CDDPI_STORE_DELETE:
    case CDDPI_STORE_LIST:
        *out = key;
        return true;
    case CDDPI_STORE_ADD:
        *out = key + 8;
        return true;
    case CDDPI_STORE_COMPARE_SET:
        *out = key + 4 + 2 * (size_t)CDDP_STORE_VALUE_BYTES;
        return true;
    case CDDPI_STORE_WAIT:
        *out = CDDPI_STORE_KEYS_BYTES;
        return true;
    case CDDPI_STORE_CANCEL:
        *out = 0;
        return true;
    }
    return false;
}

bool cddpi_wire_encode(const struct cddpi_store_request *request, uint32_t id,
                       struct cddpi_wire_buffer *buffer)
{
    struct cddpi_wire_head head = {0, id, (uint8_t)request->op, request->want_value};
    uint8_t bytes[CDDPI_WIRE_HEAD_BYTES];
    uint8_t number[8];
    size_t most = CDDPI_WIRE_HEAD_BYTES + cddpi_keys_bytes(request->key.bytes) + sizeof number +
                  request->value.bytes + request->expected.bytes;
    size_t start = buffer->bytes;

    if (!cddpi_buffer_reserve(buffer, most)) {
        return false;
    }
    cddpi_wire_put_head(bytes, &head);
    cddpi_buffer_append(buffer, bytes, sizeof bytes);
    if (request->op != CDDPI_STORE_WAIT && request->op != CDDPI_STORE_CANCEL) {
        cddpi_put_u16(number, (uint16_t)request->key.bytes);
        cddpi_buffer_append(buffer, number, 2);
        cddpi_buffer_append(buffer, request->key.data, request->key.bytes);
    }
    if (request->op == CDDPI_STORE_ADD) {
        cddpi_put_u64(number, (uint64_t)request->amount);
        cddpi_buffer_append(buffer, number, 8);
    }
    if (request->op == CDDPI_STORE_COMPARE_SET) {
        cddpi_put_u32(number, (uint32_t)request->expected.bytes);
        cddpi_buffer_append(buffer, number, 4);
        cddpi_buffer_append(buffer, request->expected.data, request->expected.bytes);
    }
    cddpi_buffer_append(buffer, request->value.data, request->value.bytes);
    cddpi_put_u32(buffer->data + start, (uint32_t)(buffer->bytes - start - CDDPI_WIRE_HEAD_BYTES));
    return true;
}

static bool keys_are_well_formed(struct cddpi_slice keys)
{
    struct cddpi_slice key;
    size_t cursor = 0;

    while (cddpi_keys_next(keys, &cursor, &key)) {
        if (key.bytes == 0 || key.bytes > CDDPI_STORE_FULL_KEY_BYTES) {
            return false;
        }
    }
    return cursor == keys.bytes && keys.bytes > 0;
}

/* Decode the bytes after the key. */
static bool decode_rest(struct cddpi_slice rest, struct cddpi_store_request *request)
{
    switch (request->op) {
    case CDDPI_STORE_SET:
        request->value = rest;
        break;
    case CDDPI_STORE_LAST_WORD:
        request->value = rest;
        return rest.bytes <= CDDPI_STORE_LAST_WORD_BYTES;
    case CDDPI_STORE_ADD:
        if (rest.bytes != 8) {
            return false;
        }
        request->amount = (int64_t)cddpi_get_u64(rest.data);
        break;
    case CDDPI_STORE_COMPARE_SET:
        if (rest.bytes < 4 || cddpi_get_u32(rest.data) > rest.bytes - 4) {
            return false;
        }
        request->expected.data = rest.data + 4;
        request->expected.bytes = cddpi_get_u32(rest.data);
        request->value.data = request->expected.data + request->expected.bytes;
        request->value.bytes = rest.bytes - 4 - request->expected.bytes;
        break;
    default:
        return rest.bytes == 0;
    }
    return request->value.bytes <= CDDP_STORE_VALUE_BYTES &&
           request->expected.bytes <= CDDP_STORE_VALUE_BYTES;
}

bool cddpi_wire_decode(const struct cddpi_wire_head *head, const uint8_t *body,
                       struct cddpi_store_request *out)
{
    struct cddpi_store_request request = {.op = (enum cddpi_store_op)head->code,
                                          .want_value = head->flags == 1};
    struct cddpi_slice whole = {body, head->body_bytes};
    struct cddpi_slice rest;
    size_t cursor = 0;

    if (request.op == CDDPI_STORE_CANCEL) {
        *out = request;
        return true;
    }
    if (request.op == CDDPI_STORE_WAIT) {
        request.value = whole;
        *out = request;
        return keys_are_well_formed(whole);
    }
    if (!cddpi_keys_next(whole, &cursor, &request.key) ||
        request.key.bytes > CDDPI_STORE_FULL_KEY_BYTES ||
        (request.key.bytes == 0 && request.op != CDDPI_STORE_LIST)) {
        return false;
    }
    rest.data = body + cursor;
    rest.bytes = whole.bytes - cursor;
    if (!decode_rest(rest, &request)) {
        return false;
    }
    *out = request;
    return true;
}
