/* message.c - encodes and decodes the messages of message.h. */
#include "store/message.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define MAGIC UINT64_C(0x316e757270646463) /* "cddprun1" */

static cddp_status append(struct cddpi_wire_buffer *out, const void *data, size_t bytes)
{
    if (!cddpi_buffer_reserve(out, bytes)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a message");
    }
    cddpi_buffer_append(out, data, bytes);
    return CDDP_OK;
}

static cddp_status append_number(struct cddpi_wire_buffer *out, int64_t number)
{
    uint8_t bytes[8];

    cddpi_put_u64(bytes, (uint64_t)number);
    return append(out, bytes, sizeof bytes);
}

/* The text of @p field in @p object. */
static const char *text_of(const struct cddpi_field *field, const void *object)
{
    const char *member = (const char *)object + field->at;

    return field->type == CDDPI_FIELD_STRING ? *(const char *const *)(const void *)member : member;
}

static bool is_list(const struct cddpi_field *field)
{
    return field->type == CDDPI_FIELD_LIST || field->type == CDDPI_FIELD_ROWS;
}

/* The number of @p field in @p object; for a list, its length. */
static int64_t number_of(const struct cddpi_field *field, const void *object)
{
    const char *member = (const char *)object + (is_list(field) ? field->length_at : field->at);

    switch (is_list(field) ? sizeof(int) : field->bytes) {
    case 1:
        return *(const uint8_t *)member;
    case 2:
        return *(const uint16_t *)(const void *)member;
    case 4:
        return field->low < 0 ? *(const int32_t *)(const void *)member
                              : (int64_t) * (const uint32_t *)(const void *)member;
    default:
        return *(const int64_t *)(const void *)member;
    }
}

static void set_number(const struct cddpi_field *field, int64_t number, void *object)
{
    char *member = (char *)object + (is_list(field) ? field->length_at : field->at);

    switch (is_list(field) ? sizeof(int) : field->bytes) {
    case 1:
        *(uint8_t *)member = (uint8_t)number;
        break;
    case 2:
        *(uint16_t *)(void *)member = (uint16_t)number;
        break;
    case 4:
        *(uint32_t *)(void *)member = (uint32_t)number;
        break;
    default:
        *(int64_t *)(void *)member = number;
        break;
    }
}

/* Element @p i of a list. */
static void *element_of(const struct cddpi_field *field, const void *object, int64_t i)
{
    const char *member = (const char *)object + field->at;
    char *list = field->type == CDDPI_FIELD_LIST ? *(char *const *)(const void *)member
                                                 : (char *)member;

    return list + (size_t)i * field->bytes;
}

static cddp_status encode_text(const struct cddpi_field *field, const void *object,
                               struct cddpi_wire_buffer *out)
{
    const char *text = text_of(field, object);
    size_t length = strlen(text);

    if (length >= field->bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "a text of %zu bytes is too long: it may have %zu",
                          length, field->bytes - 1);
    }
    CDDPI_TRY(append_number(out, (int64_t)length));
    return append(out, text, length);
}

static cddp_status encode_fields(const struct cddpi_field *fields, const void *object,
                                 struct cddpi_wire_buffer *out)
{
    for (const struct cddpi_field *field = fields; field->type != CDDPI_FIELD_END; field++) {
        int64_t number;

        if (field->type == CDDPI_FIELD_TEXT || field->type == CDDPI_FIELD_STRING) {
            CDDPI_TRY(encode_text(field, object, out));
            continue;
        }
        if (field->type == CDDPI_FIELD_BYTES) {
            CDDPI_TRY(append(out, (const char *)object + field->at, field->bytes));
            continue;
        }
        number = number_of(field, object);
        if (number < field->low || number > field->high) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%lld is not from %lld to %lld", (long long)number,
                              (long long)field->low, (long long)field->high);
        }
        CDDPI_TRY(append_number(out, number));
        for (int64_t i = 0; is_list(field) && i < number; i++) {
            CDDPI_TRY(encode_fields(field->element, element_of(field, object, i), out));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_message_encode(const struct cddpi_message_form *form, const void *object,
                                 struct cddpi_wire_buffer *out)
{
    uint8_t head[CDDPI_MESSAGE_HEAD_BYTES];
    size_t begin = out->bytes;
    size_t body_bytes;

    cddpi_greeting_put(MAGIC, CDDPI_MESSAGE_VERSION, head);
    cddpi_put_u32(head + 12, form->kind);
    cddpi_put_u64(head + 16, 0);
    CDDPI_TRY(append(out, head, sizeof head));
    CDDPI_TRY(encode_fields(form->fields, object, out));
    body_bytes = out->bytes - begin - sizeof head;
    if (body_bytes > form->most_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "they have more than %zu bytes", form->most_bytes);
    }
    cddpi_put_u64(out->data + begin + 16, body_bytes);
    return CDDP_OK;
}

/* The unread part of a body. */
struct message_reader {
    const uint8_t *at;
    size_t left;
};

static cddp_status fail_format(void)
{
    return cddpi_fail(CDDP_ERR_FORMAT, "it is damaged, or not from cddp 0.2 or later");
}

static cddp_status read_number(struct message_reader *reader, int64_t low, int64_t high,
                               int64_t *out)
{
    int64_t number;

    if (reader->left < 8) {
        return fail_format();
    }
    number = (int64_t)cddpi_get_u64(reader->at);
    reader->at += 8;
    reader->left -= 8;
    if (number < low || number > high) {
        return fail_format();
    }
    *out = number;
    return CDDP_OK;
}

static cddp_status decode_text(const struct cddpi_field *field, struct message_reader *reader,
                               void *object)
{
    char *to = (char *)object + field->at;
    int64_t length = 0;

    CDDPI_TRY(read_number(reader, 0, (int64_t)field->bytes - 1, &length));
    if (reader->left < (size_t)length || memchr(reader->at, '\0', (size_t)length) != NULL) {
        return fail_format();
    }
    if (field->type == CDDPI_FIELD_STRING) {
        char *text = cddpi_zalloc((size_t)length + 1);

        if (text == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %lld bytes", (long long)length);
        }
        *(char **)(void *)to = text;
        to = text;
    }
    memcpy(to, reader->at, (size_t)length); /* zeroed before, so the text ends with a NUL */
    reader->at += length;
    reader->left -= (size_t)length;
    return CDDP_OK;
}

/* Allocate a list of @p length elements. */
static cddp_status make_list(const struct cddpi_field *field, int64_t length, void *object)
{
    void *list = NULL;

    if (field->type == CDDPI_FIELD_LIST && length > 0) {
        list = cddpi_zalloc_array((size_t)length, field->bytes);
        if (list == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a list of %lld",
                              (long long)length);
        }
        *(void **)(void *)((char *)object + field->at) = list;
    }
    return CDDP_OK;
}

static cddp_status decode_fields(const struct cddpi_field *fields, struct message_reader *reader,
                                 void *object)
{
    for (const struct cddpi_field *field = fields; field->type != CDDPI_FIELD_END; field++) {
        int64_t number = 0;

        if (field->type == CDDPI_FIELD_TEXT || field->type == CDDPI_FIELD_STRING) {
            CDDPI_TRY(decode_text(field, reader, object));
            continue;
        }
        if (field->type == CDDPI_FIELD_BYTES) {
            if (reader->left < field->bytes) {
                return fail_format();
            }
            memcpy((char *)object + field->at, reader->at, field->bytes);
            reader->at += field->bytes;
            reader->left -= field->bytes;
            continue;
        }
        CDDPI_TRY(read_number(reader, field->low, field->high, &number));
        if (is_list(field)) {
            if ((size_t)number > reader->left / 8) { /* each element has a number or a text */
                return fail_format();
            }
            CDDPI_TRY(make_list(field, number, object));
        }
        set_number(field, number, object);
        for (int64_t i = 0; is_list(field) && i < number; i++) {
            CDDPI_TRY(decode_fields(field->element, reader, element_of(field, object, i)));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_message_read_head(const struct cddpi_message_form *form,
                                    const uint8_t head[CDDPI_MESSAGE_HEAD_BYTES],
                                    size_t *out_body_bytes)
{
    uint32_t version = cddpi_get_u32(head + 8);
    uint64_t body_bytes = cddpi_get_u64(head + 16);

    if (cddpi_get_u64(head) != MAGIC) {
        return fail_format();
    }
    if (version != CDDPI_MESSAGE_VERSION) {
        return cddpi_fail(
            CDDP_ERR_MISMATCH,
            "it is from another version of cddp, whose messages have version %u; those "
            "of this one have version %d",
            version, CDDPI_MESSAGE_VERSION);
    }
    if (cddpi_get_u32(head + 12) != form->kind || body_bytes > form->most_bytes) {
        return fail_format();
    }
    *out_body_bytes = (size_t)body_bytes;
    return CDDP_OK;
}

bool cddpi_message_is(const struct cddpi_message_form *form, const uint8_t *data, size_t bytes)
{
    return bytes >= CDDPI_MESSAGE_HEAD_BYTES && cddpi_get_u64(data) == MAGIC &&
           cddpi_get_u32(data + 12) == form->kind;
}

cddp_status cddpi_message_set_first(cddp_store *store, const char *key,
                                    const struct cddpi_message_form *form, const void *object,
                                    bool *out_is_first, void **out_value, size_t *out_bytes)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, cddpi_message_encode(form, object, &message));
    status = out_is_first == NULL
                 ? cddp_store_set(store, key, message.data, message.bytes)
                 : cddp_store_compare_set(store, key, NULL, 0, message.data, message.bytes,
                                          out_is_first, out_value, out_bytes);

out:
    cddpi_buffer_fini(&message);
    return status;
}

cddp_status cddpi_message_set(cddp_store *store, const char *key,
                              const struct cddpi_message_form *form, const void *object)
{
    return cddpi_message_set_first(store, key, form, object, NULL, NULL, NULL);
}

cddp_status cddpi_message_decode(const struct cddpi_message_form *form, const uint8_t *data,
                                 size_t bytes, void *out)
{
    struct message_reader reader = {data, 0};

    memset(out, 0, form->bytes);
    if (bytes < CDDPI_MESSAGE_HEAD_BYTES) {
        return fail_format();
    }
    CDDPI_TRY(cddpi_message_read_head(form, data, &reader.left));
    if (reader.left != bytes - CDDPI_MESSAGE_HEAD_BYTES) {
        return fail_format();
    }
    reader.at += CDDPI_MESSAGE_HEAD_BYTES;
    CDDPI_TRY(decode_fields(form->fields, &reader, out));
    return reader.left == 0 ? CDDP_OK : fail_format();
}

cddp_status cddpi_message_pack(const struct cddpi_message_form *form, const void *object,
                               void *block, size_t bytes)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    cddp_status status = cddpi_message_encode(form, object, &message);

    if (status == CDDP_OK && message.bytes > bytes) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "a message has more than %zu bytes", bytes);
    }
    if (status == CDDP_OK) {
        memset(block, 0, bytes);
        memcpy(block, message.data, message.bytes);
    }
    cddpi_buffer_fini(&message);
    return status;
}

cddp_status cddpi_message_unpack(const struct cddpi_message_form *form, const void *block,
                                 size_t bytes, void *out)
{
    size_t body_bytes = 0;

    memset(out, 0, form->bytes);
    CDDPI_TRY(cddpi_message_read_head(form, block, &body_bytes));
    return body_bytes <= bytes - CDDPI_MESSAGE_HEAD_BYTES
               ? cddpi_message_decode(form, block, CDDPI_MESSAGE_HEAD_BYTES + body_bytes, out)
               : fail_format();
}

static void release_fields(const struct cddpi_field *fields, void *object)
{
    for (const struct cddpi_field *field = fields; field->type != CDDPI_FIELD_END; field++) {
        char **pointer = (char **)(void *)((char *)object + field->at);

        if (field->type == CDDPI_FIELD_LIST && *pointer != NULL) {
            for (int64_t i = 0; i < number_of(field, object); i++) {
                release_fields(field->element, element_of(field, object, i));
            }
            set_number(field, 0, object);
        }
        if (field->type == CDDPI_FIELD_LIST || field->type == CDDPI_FIELD_STRING) {
            cddpi_free(*pointer);
            *pointer = NULL;
        }
    }
}

void cddpi_message_fini(const struct cddpi_message_form *form, void *object)
{
    release_fields(form->fields, object);
}
