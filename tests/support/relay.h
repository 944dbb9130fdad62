/* relay.h - somebody on the way between a client and a server: sees all that passes, and can change
 * it. A thread of the test's process. */
#ifndef CDDP_TESTS_SUPPORT_RELAY_H
#define CDDP_TESTS_SUPPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay;

enum relay_way { RELAY_UP, RELAY_DOWN }; /* from the client to the server, and back */

/** One that leads to @p port of loopback, one connection after the other. Release with
 *  relay_free(). */
struct relay *relay_create(uint16_t port);
void relay_free(struct relay *relay);
uint16_t relay_port(const struct relay *relay);

/** Change a byte: the one @p at of each connection from now on. */
void relay_change(struct relay *relay, enum relay_way way, size_t at);
/** Put @p bytes between what passes now and what comes next. */
void relay_inject(struct relay *relay, enum relay_way way, const void *data, size_t bytes);
/** How many bytes have passed, since relay_create(). */
size_t relay_passed(struct relay *relay, enum relay_way way);
/** Whether @p data were among them. */
bool relay_saw(struct relay *relay, const void *data, size_t bytes);
/** Copy what has passed from byte @p at on, at most @p bytes. Returns how many. */
size_t relay_copy(struct relay *relay, enum relay_way way, size_t at, void *out, size_t bytes);

#endif
