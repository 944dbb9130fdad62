/* store.h - a store of either form to test, and handles on it. */
#ifndef CDDP_TESTS_SUPPORT_STORE_H
#define CDDP_TESTS_SUPPORT_STORE_H

#include "base/clock.h"
#include "store/server.h"
#include "support/test.h"

#include <cddp/store.h>

#define TOKEN "the token of the tests"

/* A server or a file, and the parent's own handle, which keeps the file alive. */
struct place {
    bool is_file;
    struct cddpi_store_server *server;
    char *folder;
    char url[512];
    cddp_store *store;
};

cddp_status open_store(const char *url, const char *token, const char *prefix, uint32_t timeout_ms,
                       cddp_store **out);
cddp_status start_server(uint16_t port, const char *token, struct cddpi_store_server **out);

/* *state is "tcp" or "file" before, and a place after. */
int place_set_up(void **state);
int place_tear_down(void **state);

/* A rank's own handle. */
cddp_store *open_place(const struct place *place);
bool last_error_has(const char *text);

/* Wait in vain for @p keys and look for @p text in what is said then. On a machine that stalls the
 * server may be too slow to tell what is missing: then once more. */
bool waits_in_vain(cddp_store *store, const char *const *keys, size_t count, uint32_t timeout_ms,
                   const char *text);

/* Open a store in vain, at last with a deadline that any machine can meet, until @p text is said.
 */
bool opens_in_vain(const char *url, const char *text);

/* The same until opening ends with @p status, whose reason is not final: it is kept to the
 * deadline.
 */
bool is_refused(const char *url, const char *token, cddp_status status, const char *text);

#define PLACE_TEST(form, test)                                                                     \
    {                                                                                              \
        form ": " #test, test, place_set_up, place_tear_down, (char[])                             \
        {                                                                                          \
            form                                                                                   \
        }                                                                                          \
    }

#endif
