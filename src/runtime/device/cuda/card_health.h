/* card_health.h - what NVML knows to be wrong with a card. No call waits longer than some seconds
 * for it, since a driver in trouble may not answer. Any thread may make these calls. */
#ifndef CDDPI_CUDA_CARD_HEALTH_H
#define CDDPI_CUDA_CARD_HEALTH_H

#include <stdbool.h>
#include <stddef.h>

struct cddpi_device_meters;
struct cuda_card;

enum { CUDA_CARD_TEXT_BYTES = 800 };

/** Whether NVML can be used. If not, @p why (of CUDA_CARD_TEXT_BYTES) gets the reason. */
bool cuda_card_nvml(char *why);
/** Watch the card at @p pci ("0000:17:00.0"): its errors count from now on; with @p since_reset,
 *  memory errors since the card's last reset. @p worn (of CUDA_CARD_TEXT_BYTES) gets what a reset
 * of the card would cure, in the form of cuda_card_faults(). Close the result with
 * cuda_card_close(). NULL: NVML cannot be used, or does not know the card. */
struct cuda_card *cuda_card_watch(const char *pci, bool since_reset, char *worn);
/** Accepts NULL. No other thread may use the card any more. */
void cuda_card_close(struct cuda_card *card);
/** The number of active NVLinks. @p card may be NULL. */
int cuda_card_links(const struct cuda_card *card);
/** Write what is wrong to @p out (of CUDA_CARD_TEXT_BYTES): "NVML reports Xid 79 (the card has
 * fallen off the bus), NVLink 3 down"; "" if nothing is, or @p card is NULL. @p wait_ms: how long
 * to wait for a first Xid, which may come a little later than the error that it causes. Returns
 * whether the card itself is ill: see cuda_nvml_faults(). */
bool cuda_card_faults(struct cuda_card *card, unsigned wait_ms, char *out);
/** What NVML measured last, if it is known. Never waits; begins to measure anew if the last time
 * was a second ago. @p card may be NULL. */
bool cuda_card_meters(struct cuda_card *card, struct cddpi_device_meters *out);

#endif
