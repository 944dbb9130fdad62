/* store_table.h - owns keys and values in memory, what each operation does to them, and which
 * clients wait for which key. The TCP server has one table; each handle of a file store has one
 * that follows the file. One thread at a time may use a table. */
#ifndef CDDPI_STORE_TABLE_H
#define CDDPI_STORE_TABLE_H

#include "store/request.h"

/* Immutable, so that a reply can be sent from it while the key already has another value. */
struct cddpi_table_value {
    size_t references;
    size_t bytes;
    uint8_t data[];
};

/** A copy of @p bytes bytes with one reference. NULL: no memory. */
struct cddpi_table_value *cddpi_value_create(const void *data, size_t bytes);
/** Accepts NULL. */
void cddpi_value_release(struct cddpi_table_value *value);

/* Waits for one key. It is a member of a larger struct, the client's. `entry` is NULL while it does
 * not wait. */
struct cddpi_waiter {
    struct cddpi_entry *entry;
    struct cddpi_waiter *next;
    struct cddpi_waiter *previous;
};

/* What an operation would change. */
struct cddpi_effect {
    enum { CDDPI_EFFECT_NONE, CDDPI_EFFECT_SET, CDDPI_EFFECT_DELETE } kind;
    struct cddpi_slice key;          /* borrowed from the request */
    struct cddpi_table_value *value; /* SET: a reference that cddpi_effect_fini() releases */
};
void cddpi_effect_fini(struct cddpi_effect *effect);

/* What an operation answers: like struct cddpi_store_reply, with a reference to the value. */
struct cddpi_table_outcome {
    cddp_status status;
    bool flag;
    struct cddpi_table_value *value; /* may be NULL */
};

struct cddpi_table;

/** NULL: no memory. */
struct cddpi_table *cddpi_table_create(void);
/** No waiter may be left in @p table. Accepts NULL. */
void cddpi_table_destroy(struct cddpi_table *table);

/** Compute what @p request (not WAIT) answers and what it would change, without changing anything.
 *  GET does not wait: it answers NOT_FOUND. */
void cddpi_table_decide(struct cddpi_table *table, const struct cddpi_store_request *request,
                        struct cddpi_effect *effect, struct cddpi_table_outcome *outcome);

/** Apply @p effect. False: out of memory, and nothing has changed.
 *  @param out_woken  The waiters of a key that now exists, linked by `next`. May be NULL if the
 *                    table never has waiters. */
bool cddpi_table_commit(struct cddpi_table *table, const struct cddpi_effect *effect,
                        struct cddpi_waiter **out_woken);

/** Delete all keys that begin with @p start. Waiters go on waiting. */
void cddpi_table_forget(struct cddpi_table *table, struct cddpi_slice start);

/** Find the first key at or after *cursor that does not exist, and move the cursor there. False:
 *  all exist. */
bool cddpi_table_first_missing(struct cddpi_table *table, struct cddpi_slice keys, size_t *cursor,
                               struct cddpi_slice *out);

/** What the error text of a timeout needs: how many of @p keys are missing (u32), then the first
 *  few missing keys in the encoding "keys" (store_wire.h). NULL: no memory. */
struct cddpi_table_value *cddpi_table_missing(struct cddpi_table *table, struct cddpi_slice keys);

/** The number of deletes so far. If it has changed, a search for several keys must begin again. */
uint64_t cddpi_table_deletes(const struct cddpi_table *table);

/** Make @p waiter wait for @p key, which does not exist. False: no memory. */
bool cddpi_table_park(struct cddpi_table *table, struct cddpi_slice key,
                      struct cddpi_waiter *waiter);
/** Stop waiting. Accepts a waiter that does not wait. */
void cddpi_table_unpark(struct cddpi_table *table, struct cddpi_waiter *waiter);

#endif
