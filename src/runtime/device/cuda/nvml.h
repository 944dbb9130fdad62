/* nvml.h - what is asked of NVML about a card. These calls may never return: card_health.c makes
 * them in threads of their own, one at a time for a card. */
#ifndef CDDPI_CUDA_NVML_H
#define CDDPI_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

struct cddpi_device_meters;

typedef struct nvmlDevice_st *nvml_device;
typedef struct nvmlEventSet_st *nvml_event_set;

enum { NVML_LINKS = 18, NVML_XIDS = 8 };

/* A card, and what was already so when it was first asked about. */
struct cuda_nvml_card {
    nvml_device device;
    unsigned long long memory_errors;
    bool has_bad_row; /* one that could not be replaced */
    unsigned links;   /* a bit for each link that was active */
    unsigned long long recoveries[NVML_LINKS];
    nvml_event_set events;    /* NULL: Xid errors are not known */
    unsigned xids[NVML_XIDS]; /* the first different ones */
    int xid_count;
};

/** Whether NVML can be used; @p out_why: the reason if not. */
bool cuda_nvml_ready(const char **out_why);
/** Fill in @p out, which is zeroed, for the card at @p pci. With @p since_reset, what was wrong
 *  before counts too: memory errors since the card's last reset, and a row that cannot be replaced.
 * False if NVML cannot be used, or does not know the card. */
bool cuda_nvml_begin(const char *pci, bool since_reset, struct cuda_nvml_card *out);
void cuda_nvml_end(struct cuda_nvml_card *card);
/** Write what a reset of the card would cure, as a list; "" if nothing is wrong. */
void cuda_nvml_worn(const struct cuda_nvml_card *card, char *out, size_t bytes);
/** Write all that is wrong. Returns whether the card itself is ill: computing on it would fail
 *  again. A program's own errors, and what a card mends by itself, are not that. */
bool cuda_nvml_faults(struct cuda_nvml_card *card, unsigned wait_ms, char *out, size_t bytes);

/** nvml_meters.c: measure. False: the card, or this NVML, cannot measure anything. */
bool cuda_nvml_measure(const struct cuda_nvml_card *card, struct cddpi_device_meters *out);
/** A function of NVML, which is ready; NULL: this version does not have it. */
void *cuda_nvml_symbol(const char *name);

#endif
