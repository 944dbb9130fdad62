/* fake_nvml.c - what a card's driver tells of its health, as fake_cuda.h says. Nothing can be asked
 * before nvmlInit(). */
#include "fake_cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    TIMEOUT = 10,
    XID = 8,
    LINKS = 18,
    METERS = 6
};

/* visible, since they are looked up by name like those of the library */
#pragma GCC visibility push(default)

struct fake_nvml_card {
    unsigned number;
    int asked[5]; /* how often, by what */
};

struct fake_nvml_set {
    const struct fake_nvml_card *card;
    const char *left; /* of the list of errors */
};

struct fake_nvml_memory {
    unsigned long long total, free, used;
};

struct fake_nvml_event {
    struct fake_nvml_card *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct fake_nvml_card **out);
int nvmlEventSetCreate(struct fake_nvml_set **out);
int nvmlEventSetFree(struct fake_nvml_set *set);
int nvmlDeviceRegisterEvents(struct fake_nvml_card *card, unsigned long long types,
                             struct fake_nvml_set *set);
int nvmlEventSetWait_v2(struct fake_nvml_set *set, struct fake_nvml_event *out, unsigned timeout);
int nvmlDeviceGetTotalEccErrors(struct fake_nvml_card *card, int type, int counter,
                                unsigned long long *out);
int nvmlDeviceGetRemappedRows(struct fake_nvml_card *card, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending, unsigned *failed);
int nvmlDeviceGetNvLinkState(struct fake_nvml_card *card, unsigned link, int *out);
int nvmlDeviceGetNvLinkErrorCounter(struct fake_nvml_card *card, unsigned link, int counter,
                                    unsigned long long *out);
int nvmlDeviceGetMemoryInfo(struct fake_nvml_card *card, struct fake_nvml_memory *out);
int nvmlDeviceGetClockInfo(struct fake_nvml_card *card, int which, unsigned *out);
int nvmlDeviceGetPowerUsage(struct fake_nvml_card *card, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(struct fake_nvml_card *card, unsigned *out);
int nvmlDeviceGetTemperature(struct fake_nvml_card *card, int where, unsigned *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct fake_nvml_card *card, unsigned long long *out);

static struct fake_nvml_card cards[FAKE_MAX_DEVICES];
static bool ready;

static bool has_troubles(const struct fake_nvml_card *card)
{
    const char *only = getenv("CDDP_FAKE_NVML_CARD");

    return only == NULL || atoi(only) < 0 || (unsigned)atoi(only) == card->number;
}

/* The first number of the variable, or the second one after @p first answers. */
static unsigned long long told(struct fake_nvml_card *card, const char *name, int *asked, int first)
{
    const char *text = getenv(name);
    const char *later = text != NULL ? strchr(text, ':') : NULL;

    if (text == NULL || !has_troubles(card)) {
        return 0;
    }
    return strtoull((*asked)++ >= first && later != NULL ? later + 1 : text, NULL, 10);
}

/* As with a driver that waits for a card without an end. */
static void hang_in(const char *call)
{
    const char *text = getenv("CDDP_FAKE_NVML_HANG");

    while (text != NULL && strcmp(text, call) == 0) {
        pause();
    }
}

int nvmlInit_v2(void)
{
    hang_in("init");
    ready = true;
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct fake_nvml_card **out)
{
    unsigned domain;
    unsigned bus;

    if (!ready) {
        return UNINITIALIZED;
    }
    if (sscanf(pci, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > FAKE_MAX_DEVICES) {
        return INVALID_ARGUMENT;
    }
    *out = &cards[bus - 1];
    (*out)->number = bus - 1;
    return OK;
}

int nvmlEventSetCreate(struct fake_nvml_set **out)
{
    *out = fake_zalloc(sizeof **out);
    return OK;
}

int nvmlEventSetFree(struct fake_nvml_set *set)
{
    hang_in("free");
    free(set);
    return OK;
}

int nvmlDeviceRegisterEvents(struct fake_nvml_card *card, unsigned long long types,
                             struct fake_nvml_set *set)
{
    if (types != XID) {
        return INVALID_ARGUMENT;
    }
    set->card = card;
    set->left = has_troubles(card) ? getenv("CDDP_FAKE_NVML_XIDS") : NULL;
    return OK;
}

int nvmlEventSetWait_v2(struct fake_nvml_set *set, struct fake_nvml_event *out, unsigned timeout)
{
    char *end;

    (void)timeout;
    hang_in("wait");
    if (set->card == NULL) {
        return INVALID_ARGUMENT;
    }
    if (set->left == NULL || set->left[0] == '\0') {
        return TIMEOUT;
    }
    memset(out, 0, sizeof *out);
    out->type = XID;
    out->data = strtoull(set->left, &end, 10);
    set->left = *end == ',' ? end + 1 : end;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(struct fake_nvml_card *card, int type, int counter,
                                unsigned long long *out)
{
    if ((type != 0 && type != 1) || counter != 0) {
        return INVALID_ARGUMENT;
    }
    if (type == 0) {
        *out = 7 + card->number;
        return OK;
    }
    *out = told(card, "CDDP_FAKE_NVML_ERRORS", &card->asked[0], 1);
    return OK;
}

int nvmlDeviceGetRemappedRows(struct fake_nvml_card *card, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    unsigned long long state = told(card, "CDDP_FAKE_NVML_ROWS", &card->asked[1], 1);

    *corrected = *uncorrected = (unsigned)state;
    *pending = state == 1;
    *failed = state == 2;
    return OK;
}

int nvmlDeviceGetNvLinkState(struct fake_nvml_card *card, unsigned link, int *out)
{
    if (link >= LINKS) {
        return INVALID_ARGUMENT;
    }
    *out = link < told(card, "CDDP_FAKE_NVML_LINKS", &card->asked[2], LINKS);
    return OK;
}

int nvmlDeviceGetNvLinkErrorCounter(struct fake_nvml_card *card, unsigned link, int counter,
                                    unsigned long long *out)
{
    if (link >= LINKS || counter != 1) {
        return INVALID_ARGUMENT;
    }
    *out = link == 2 ? told(card, "CDDP_FAKE_NVML_RECOVERIES", &card->asked[3], 1) : 0;
    return OK;
}

/* The number at @p place of what is measured, and the card's own number. */
static int measured(const struct fake_nvml_card *card, int place, unsigned *out)
{
    const char *text = getenv("CDDP_FAKE_NVML_METERS");
    unsigned values[METERS] = {0};

    if (text == NULL || sscanf(text, "%u,%u,%u,%u,%u,%u", &values[0], &values[1], &values[2],
                               &values[3], &values[4], &values[5]) <= place) {
        return NOT_SUPPORTED;
    }
    *out = values[place] + card->number;
    return OK;
}

int nvmlDeviceGetMemoryInfo(struct fake_nvml_card *card, struct fake_nvml_memory *out)
{
    unsigned used;
    int result = measured(card, 0, &used);

    hang_in("measure");
    if (result == OK) {
        *out = (struct fake_nvml_memory){.total = 80ULL << 30, .used = (uint64_t)used << 20};
        out->free = out->total - out->used;
    }
    return result;
}

int nvmlDeviceGetClockInfo(struct fake_nvml_card *card, int which, unsigned *out)
{
    return which == 1 || which == 2 ? measured(card, which, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetPowerUsage(struct fake_nvml_card *card, unsigned *out)
{
    int result = measured(card, 3, out);

    if (result == OK) {
        *out *= 1000;
    }
    return result;
}

int nvmlDeviceGetEnforcedPowerLimit(struct fake_nvml_card *card, unsigned *out)
{
    int result = measured(card, 4, out);

    if (result == OK) {
        *out *= 1000;
    }
    return result;
}

int nvmlDeviceGetTemperature(struct fake_nvml_card *card, int where, unsigned *out)
{
    return where == 0 ? measured(card, 5, out) : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct fake_nvml_card *card, unsigned long long *out)
{
    *out = told(card, "CDDP_FAKE_NVML_THROTTLE", &card->asked[4], 1);
    return OK;
}
#pragma GCC visibility pop
