/* store_table.c - owns keys, values and lists of waiters, and implements each operation. */
#include "store/store_table.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "store/store_wire.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 64, MISSING_NAMED = 8, NUMBER_BYTES = 24 };

/* A key. It exists in the table while it has a value or waiters. */
struct cddpi_entry {
    struct cddpi_entry *next; /* in its bucket */
    struct cddpi_table_value *value;
    struct cddpi_waiter *waiters;
    uint64_t hash;
    size_t key_bytes;
    uint8_t key[];
};

struct cddpi_table {
    struct cddpi_entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t entry_count;
    uint64_t deletes;
    uint8_t hash_key[crypto_shorthash_KEYBYTES];
};

struct cddpi_table_value *cddpi_value_create(const void *data, size_t bytes)
{
    struct cddpi_table_value *value = cddpi_realloc(NULL, sizeof *value + bytes);

    if (value != NULL) {
        value->references = 1;
        value->bytes = bytes;
        if (bytes > 0 && data != NULL) {
            memcpy(value->data, data, bytes);
        }
    }
    return value;
}

static struct cddpi_table_value *ref_value(struct cddpi_table_value *value)
{
    value->references++;
    return value;
}

void cddpi_value_release(struct cddpi_table_value *value)
{
    if (value != NULL && --value->references == 0) {
        cddpi_free(value);
    }
}

void cddpi_effect_fini(struct cddpi_effect *effect)
{
    cddpi_value_release(effect->value);
    memset(effect, 0, sizeof *effect);
}

struct cddpi_table *cddpi_table_create(void)
{
    struct cddpi_table *table = cddpi_zalloc(sizeof *table);

    if (table == NULL) {
        return NULL;
    }
    table->bucket_count = FIRST_BUCKETS;
    table->buckets = cddpi_zalloc_array(table->bucket_count, sizeof *table->buckets);
    if (table->buckets == NULL) {
        cddpi_free(table);
        return NULL;
    }
    crypto_shorthash_keygen(table->hash_key);
    return table;
}

void cddpi_table_destroy(struct cddpi_table *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->bucket_count; i++) {
        struct cddpi_entry *entry = table->buckets[i];

        while (entry != NULL) {
            struct cddpi_entry *next = entry->next;

            cddpi_value_release(entry->value);
            cddpi_free(entry);
            entry = next;
        }
    }
    cddpi_free(table->buckets);
    cddpi_free(table);
}

static uint64_t hash_of(const struct cddpi_table *table, struct cddpi_slice key)
{
    uint8_t hash[crypto_shorthash_BYTES];

    crypto_shorthash(hash, key.data, key.bytes, table->hash_key);
    return cddpi_get_u64(hash);
}

/* The link in the key's bucket that points to its entry, or the last link (NULL) if there is none.
 */
static struct cddpi_entry **find_link(struct cddpi_table *table, struct cddpi_slice key,
                                      uint64_t hash)
{
    struct cddpi_entry **link = &table->buckets[hash & (table->bucket_count - 1)];

    while (*link != NULL && ((*link)->hash != hash || (*link)->key_bytes != key.bytes ||
                             memcmp((*link)->key, key.data, key.bytes) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

static struct cddpi_table_value *find(struct cddpi_table *table, struct cddpi_slice key)
{
    struct cddpi_entry *entry = *find_link(table, key, hash_of(table, key));

    return entry != NULL ? entry->value : NULL;
}

/* Double the number of buckets. Without memory nothing changes: searching is only slower. */
static void grow(struct cddpi_table *table)
{
    size_t count = table->bucket_count * 2;
    struct cddpi_entry **buckets = cddpi_zalloc_array(count, sizeof *buckets);

    if (buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < table->bucket_count; i++) {
        struct cddpi_entry *entry = table->buckets[i];

        while (entry != NULL) {
            struct cddpi_entry *next = entry->next;

            entry->next = buckets[entry->hash & (count - 1)];
            buckets[entry->hash & (count - 1)] = entry;
            entry = next;
        }
    }
    cddpi_free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = count;
}

static struct cddpi_entry *find_or_add(struct cddpi_table *table, struct cddpi_slice key)
{
    uint64_t hash = hash_of(table, key);
    struct cddpi_entry *entry = *find_link(table, key, hash);
    struct cddpi_entry **bucket;

    if (entry != NULL) {
        return entry;
    }
    entry = cddpi_zalloc(sizeof *entry + key.bytes);
    if (entry == NULL) {
        return NULL;
    }
    entry->hash = hash;
    entry->key_bytes = key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    if (table->entry_count >= table->bucket_count) {
        grow(table);
    }
    bucket = &table->buckets[hash & (table->bucket_count - 1)];
    entry->next = *bucket;
    *bucket = entry;
    table->entry_count++;
    return entry;
}

static void remove_if_unused(struct cddpi_table *table, struct cddpi_entry *entry)
{
    struct cddpi_slice key = {entry->key, entry->key_bytes};
    struct cddpi_entry **link;

    if (entry->value != NULL || entry->waiters != NULL) {
        return;
    }
    link = find_link(table, key, entry->hash);
    *link = entry->next;
    table->entry_count--;
    cddpi_free(entry);
}

static bool same(const struct cddpi_table_value *value, struct cddpi_slice expected)
{
    if (value == NULL) {
        return expected.bytes == 0;
    }
    return value->bytes == expected.bytes &&
           (expected.bytes == 0 || memcmp(value->data, expected.data, expected.bytes) == 0);
}

static cddp_status plan_set(const struct cddpi_store_request *request, const void *data,
                            size_t bytes, struct cddpi_effect *effect)
{
    effect->value = cddpi_value_create(data, bytes);
    if (effect->value == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    effect->kind = CDDPI_EFFECT_SET;
    effect->key = request->key;
    return CDDP_OK;
}

static cddp_status decide_add(struct cddpi_table_value *old,
                              const struct cddpi_store_request *request,
                              struct cddpi_effect *effect, struct cddpi_table_outcome *outcome)
{
    char text[NUMBER_BYTES] = "0";
    int64_t number;

    if (old != NULL) {
        if (old->bytes >= sizeof text) {
            return CDDP_ERR_FORMAT;
        }
        memcpy(text, old->data, old->bytes);
        text[old->bytes] = '\0';
        if (strlen(text) != old->bytes) {
            return CDDP_ERR_FORMAT;
        }
    }
    if (!cddpi_parse_integer(text, INT64_MIN, INT64_MAX, &number)) {
        return CDDP_ERR_FORMAT;
    }
    if (__builtin_add_overflow(number, request->amount, &number)) {
        return CDDP_ERR_ARGUMENT;
    }
    CDDPI_TRY(plan_set(request, text, (size_t)sprintf(text, "%lld", (long long)number), effect));
    outcome->value = ref_value(effect->value);
    return CDDP_OK;
}

static cddp_status decide_compare_set(struct cddpi_table_value *old,
                                      const struct cddpi_store_request *request,
                                      struct cddpi_effect *effect,
                                      struct cddpi_table_outcome *outcome)
{
    struct cddpi_table_value *after = old;

    if (same(old, request->expected)) {
        CDDPI_TRY(plan_set(request, request->value.data, request->value.bytes, effect));
        after = effect->value;
        outcome->flag = true;
    }
    if (request->want_value && after != NULL) {
        outcome->value = ref_value(after);
    }
    return CDDP_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct cddpi_entry *x = *(struct cddpi_entry *const *)a;
    const struct cddpi_entry *y = *(struct cddpi_entry *const *)b;
    size_t bytes = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int order = memcmp(x->key, y->key, bytes);

    return order != 0 ? order : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static bool begins_with(const struct cddpi_entry *entry, struct cddpi_slice start)
{
    return entry->key_bytes >= start.bytes &&
           (start.bytes == 0 || memcmp(entry->key, start.data, start.bytes) == 0);
}

/* Write to @p found the entries that the LIST @p request matches, and compute the answer's length.
 */
static size_t collect(struct cddpi_table *table, const struct cddpi_store_request *request,
                      struct cddpi_entry **found, size_t *out_bytes)
{
    struct cddpi_slice start = request->key;
    size_t count = 0;
    size_t bytes = 0;

    for (size_t i = 0; i < table->bucket_count; i++) {
        for (struct cddpi_entry *entry = table->buckets[i]; entry != NULL; entry = entry->next) {
            if (entry->value != NULL && begins_with(entry, start)) {
                found[count++] = entry;
                bytes += request->want_value
                             ? cddpi_pairs_bytes(entry->key_bytes, entry->value->bytes)
                             : cddpi_keys_bytes(entry->key_bytes);
            }
        }
    }
    *out_bytes = bytes;
    return count;
}

static uint8_t *put_key(uint8_t *to, const void *key, size_t bytes)
{
    cddpi_put_u16(to, (uint16_t)bytes);
    memcpy(to + 2, key, bytes);
    return to + 2 + bytes;
}

static uint8_t *put_value(uint8_t *to, const struct cddpi_table_value *value)
{
    cddpi_put_u32(to, (uint32_t)value->bytes);
    if (value->bytes > 0) {
        memcpy(to + 4, value->data, value->bytes);
    }
    return to + 4 + value->bytes;
}

static cddp_status decide_list(struct cddpi_table *table, const struct cddpi_store_request *request,
                               struct cddpi_table_outcome *outcome)
{
    struct cddpi_entry **found = cddpi_zalloc_array(table->entry_count + 1, sizeof *found);
    cddp_status status = CDDP_ERR_NO_MEMORY;
    size_t count;
    size_t bytes;
    uint8_t *to;

    if (found == NULL) {
        return status;
    }
    count = collect(table, request, found, &bytes);
    if (bytes > CDDPI_STORE_LIST_BYTES) {
        status = CDDP_ERR_UNAVAILABLE;
        goto end;
    }
    outcome->value = cddpi_value_create(NULL, bytes);
    if (outcome->value == NULL) {
        goto end;
    }
    qsort(found, count, sizeof *found, compare_keys);
    to = outcome->value->data;
    for (size_t i = 0; i < count; i++) {
        to = put_key(to, found[i]->key, found[i]->key_bytes);
        to = request->want_value ? put_value(to, found[i]->value) : to;
    }
    status = CDDP_OK;

end:
    cddpi_free(found);
    return status;
}

void cddpi_table_decide(struct cddpi_table *table, const struct cddpi_store_request *request,
                        struct cddpi_effect *effect, struct cddpi_table_outcome *outcome)
{
    struct cddpi_table_value *old = find(table, request->key);

    memset(effect, 0, sizeof *effect);
    memset(outcome, 0, sizeof *outcome);
    switch (request->op) {
    case CDDPI_STORE_SET:
        outcome->status = plan_set(request, request->value.data, request->value.bytes, effect);
        break;
    case CDDPI_STORE_GET:
    case CDDPI_STORE_TRY_GET:
        outcome->status = old != NULL ? CDDP_OK : CDDP_ERR_NOT_FOUND;
        outcome->value = old != NULL ? ref_value(old) : NULL;
        break;
    case CDDPI_STORE_ADD:
        outcome->status = decide_add(old, request, effect, outcome);
        break;
    case CDDPI_STORE_COMPARE_SET:
        outcome->status = decide_compare_set(old, request, effect, outcome);
        break;
    case CDDPI_STORE_DELETE:
        outcome->flag = old != NULL;
        if (old != NULL) {
            effect->kind = CDDPI_EFFECT_DELETE;
            effect->key = request->key;
        }
        break;
    case CDDPI_STORE_LIST:
        outcome->status = decide_list(table, request, outcome);
        break;
    case CDDPI_STORE_WAIT:
    case CDDPI_STORE_CANCEL:
    case CDDPI_STORE_LAST_WORD:
        outcome->status = CDDP_ERR_ARGUMENT; /* not an operation of the table */
        break;
    }
}

static struct cddpi_waiter *take_waiters(struct cddpi_entry *entry)
{
    struct cddpi_waiter *woken = entry->waiters;

    for (struct cddpi_waiter *waiter = woken; waiter != NULL; waiter = waiter->next) {
        waiter->entry = NULL;
    }
    entry->waiters = NULL;
    return woken;
}

bool cddpi_table_commit(struct cddpi_table *table, const struct cddpi_effect *effect,
                        struct cddpi_waiter **out_woken)
{
    struct cddpi_waiter *woken = NULL;
    struct cddpi_entry *entry;

    if (effect->kind == CDDPI_EFFECT_SET) {
        entry = find_or_add(table, effect->key);
        if (entry == NULL) {
            return false;
        }
        cddpi_value_release(entry->value);
        entry->value = ref_value(effect->value);
        woken = take_waiters(entry);
    } else if (effect->kind == CDDPI_EFFECT_DELETE) {
        entry = *find_link(table, effect->key, hash_of(table, effect->key));
        if (entry != NULL) {
            cddpi_value_release(entry->value);
            entry->value = NULL;
            table->deletes++;
            remove_if_unused(table, entry);
        }
    }
    if (out_woken != NULL) {
        *out_woken = woken;
    }
    return true;
}

void cddpi_table_forget(struct cddpi_table *table, struct cddpi_slice start)
{
    for (size_t i = 0; i < table->bucket_count; i++) {
        struct cddpi_entry *entry = table->buckets[i];

        while (entry != NULL) {
            struct cddpi_entry *next = entry->next;

            if (entry->value != NULL && begins_with(entry, start)) {
                cddpi_value_release(entry->value);
                entry->value = NULL;
                table->deletes++;
                remove_if_unused(table, entry);
            }
            entry = next;
        }
    }
}

bool cddpi_table_first_missing(struct cddpi_table *table, struct cddpi_slice keys, size_t *cursor,
                               struct cddpi_slice *out)
{
    struct cddpi_slice key;
    size_t next = *cursor;

    while (cddpi_keys_next(keys, &next, &key)) {
        if (find(table, key) == NULL) {
            *out = key;
            return true;
        }
        *cursor = next;
    }
    return false;
}

struct cddpi_table_value *cddpi_table_missing(struct cddpi_table *table, struct cddpi_slice keys)
{
    struct cddpi_slice named[MISSING_NAMED];
    struct cddpi_slice key;
    struct cddpi_table_value *value;
    size_t cursor = 0;
    size_t bytes = 4;
    uint32_t count = 0;
    uint8_t *to;

    while (cddpi_keys_next(keys, &cursor, &key)) {
        if (find(table, key) == NULL) {
            if (count < MISSING_NAMED) {
                named[count] = key;
                bytes += cddpi_keys_bytes(key.bytes);
            }
            count++;
        }
    }
    value = cddpi_value_create(NULL, bytes);
    if (value != NULL) {
        cddpi_put_u32(value->data, count);
        to = value->data + 4;
        for (uint32_t i = 0; i < count && i < MISSING_NAMED; i++) {
            to = put_key(to, named[i].data, named[i].bytes);
        }
    }
    return value;
}

uint64_t cddpi_table_deletes(const struct cddpi_table *table)
{
    return table->deletes;
}

bool cddpi_table_park(struct cddpi_table *table, struct cddpi_slice key,
                      struct cddpi_waiter *waiter)
{
    struct cddpi_entry *entry = find_or_add(table, key);

    if (entry == NULL) {
        return false;
    }
    waiter->entry = entry;
    waiter->previous = NULL;
    waiter->next = entry->waiters;
    if (waiter->next != NULL) {
        waiter->next->previous = waiter;
    }
    entry->waiters = waiter;
    return true;
}

void cddpi_table_unpark(struct cddpi_table *table, struct cddpi_waiter *waiter)
{
    struct cddpi_entry *entry = waiter->entry;

    if (entry == NULL) {
        return;
    }
    if (waiter->next != NULL) {
        waiter->next->previous = waiter->previous;
    }
    if (waiter->previous != NULL) {
        waiter->previous->next = waiter->next;
    } else {
        entry->waiters = waiter->next;
    }
    waiter->entry = NULL;
    remove_if_unused(table, entry);
}
