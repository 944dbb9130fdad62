/* store_table.h - keys and values in memory, what each operation does to them, and which clients
 * wait for which key. The TCP server has one table; each handle of a file store has one that
 * follows the file. Only one thread may use a table. */
#ifndef CDDPI_STORE_TABLE_H
#define CDDPI_STORE_TABLE_H

#include "store/request.h"

/* Never changed once made, so that a reply can be sent from it while the key gets another value. */
struct cddpi_table_value {
    size_t references;
    size_t bytes;
    uint8_t data[];
};

/** A copy of @p bytes bytes with one reference, or NULL without memory. */
struct cddpi_table_value *cddpi_value_create(const void *data, size_t bytes);
struct cddpi_table_value *cddpi_value_ref(struct cddpi_table_value *value);
/** NULL is accepted. */
void cddpi_value_release(struct cddpi_table_value *value);

/* A client that waits for one key; part of its owner. `entry` is NULL while it does not wait. */
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

/* What it answers; as struct cddpi_store_reply, with a reference to the value. */
struct cddpi_table_outcome {
    cddp_status status;
    bool flag;
    struct cddpi_table_value *value; /* may be NULL */
};

struct cddpi_table;

/** NULL without memory. */
struct cddpi_table *cddpi_table_create(void);
/** Nobody may wait any more. NULL is accepted. */
void cddpi_table_destroy(struct cddpi_table *table);

/** Work out what @p request (not WAIT) answers and would change, without changing it. GET does not
 *  wait: it answers NOT_FOUND. */
void cddpi_table_decide(struct cddpi_table *table, const struct cddpi_store_request *request,
                        struct cddpi_effect *effect, struct cddpi_table_outcome *outcome);

/** Carry out @p effect. False: out of memory, and nothing has changed.
 *  @param out_woken  The waiters of a key that has appeared, linked by `next`; may be NULL if
 *                    nothing ever waits. */
bool cddpi_table_commit(struct cddpi_table *table, const struct cddpi_effect *effect,
                        struct cddpi_waiter **out_woken);

/** Find the first key at or after *cursor that does not exist, and leave the cursor there. False:
 * all exist. */
bool cddpi_table_first_missing(struct cddpi_table *table, struct cddpi_slice keys, size_t *cursor,
                               struct cddpi_slice *out);

/** For the text of a timeout: how many of @p keys are missing as u32, and the first few of them as
 *  keys. NULL without memory. */
struct cddpi_table_value *cddpi_table_missing(struct cddpi_table *table, struct cddpi_slice keys);

/** Grows with each delete: a search through several keys begins again if it has changed. */
uint64_t cddpi_table_deletes(const struct cddpi_table *table);

/** Let @p waiter wait for @p key, which does not exist. False without memory. */
bool cddpi_table_park(struct cddpi_table *table, struct cddpi_slice key,
                      struct cddpi_waiter *waiter);
/** Also for one that does not wait. */
void cddpi_table_unpark(struct cddpi_table *table, struct cddpi_waiter *waiter);

#endif
