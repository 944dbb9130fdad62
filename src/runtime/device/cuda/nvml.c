/* nvml.c - asks NVML what is wrong with a card: Xid errors (the driver's list of everything that
 * can fail), errors of its memory, NVLinks that went down.
 *
 * NVML is part of the driver and is opened at run time. What is used of its interface is declared
 * here, since its header may be missing where the module is built. The driver reports Xid errors
 * only to those who have registered for them before. */
#include "device/cuda/nvml.h"

#include "base/error.h"
#include "kernels/cuda/library.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

enum {
    NVML_SUCCESS = 0,
    NVML_GPU_IS_LOST = 15,
    NVML_UNCORRECTED = 1,
    NVML_VOLATILE = 0, /* since the card's last reset */
    NVML_XID = 8,
    NVML_LINK_RECOVERIES = 1,
    NVML_EVENTS = 64
};

/* member, symbol, parameters */
#define NVML_FUNCTIONS(X)                                                                          \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(handle, nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, nvml_device *out))               \
    X(set_create, nvmlEventSetCreate, (nvml_event_set * out))                                      \
    X(set_free, nvmlEventSetFree, (nvml_event_set set))                                            \
    X(register_events, nvmlDeviceRegisterEvents,                                                   \
      (nvml_device device, unsigned long long types, nvml_event_set set))                          \
    X(set_wait, nvmlEventSetWait_v2,                                                               \
      (nvml_event_set set, struct nvml_event * out, unsigned timeout_ms))                          \
    X(memory_errors, nvmlDeviceGetTotalEccErrors,                                                  \
      (nvml_device device, int type, int counter, unsigned long long *out))                        \
    X(rows, nvmlDeviceGetRemappedRows,                                                             \
      (nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,          \
       unsigned *failed))                                                                          \
    X(link_state, nvmlDeviceGetNvLinkState, (nvml_device device, unsigned link, int *out_active))  \
    X(link_errors, nvmlDeviceGetNvLinkErrorCounter,                                                \
      (nvml_device device, unsigned link, int counter, unsigned long long *out))

#define NVML_MEMBER(member, symbol, parameters) int(*member) parameters;

static struct {
    NVML_FUNCTIONS(NVML_MEMBER)
    void *library;
    bool usable;
    char why[256];
} nvml;

static void open_nvml(void)
{
    int result;

    if (cuda_nvml_open(&nvml.library) != CDDP_OK) {
        snprintf(nvml.why, sizeof nvml.why, "%s", cddp_last_error());
        return;
    }
#define NVML_LOOK_UP(member, symbol, parameters)                                                   \
    *(void **)&nvml.member = cuda_library_symbol(nvml.library, #symbol);                           \
    if (nvml.member == NULL) {                                                                     \
        snprintf(nvml.why, sizeof nvml.why, "it has no " #symbol);                                 \
        return;                                                                                    \
    }
    NVML_FUNCTIONS(NVML_LOOK_UP)
    result = nvml.init();
    nvml.usable = result == NVML_SUCCESS;
    snprintf(nvml.why, sizeof nvml.why, "nvmlInit: error %d", result);
}

bool cuda_nvml_ready(const char **out_why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, open_nvml);
    *out_why = nvml.why;
    return nvml.usable;
}

void *cuda_nvml_symbol(const char *name)
{
    return cuda_library_symbol(nvml.library, name);
}

/* 0 where the card does not count them. */
static unsigned long long memory_errors_of(const struct cuda_nvml_card *card)
{
    unsigned long long count = 0;

    return nvml.memory_errors(card->device, NVML_UNCORRECTED, NVML_VOLATILE, &count) == NVML_SUCCESS
               ? count
               : 0;
}

/* Whether a row of the card's memory is bad and could not be replaced. */
static bool has_bad_row(const struct cuda_nvml_card *card)
{
    unsigned corrected;
    unsigned uncorrected;
    unsigned pending;
    unsigned failed = 0;

    return nvml.rows(card->device, &corrected, &uncorrected, &pending, &failed) == NVML_SUCCESS &&
           failed != 0;
}

static bool link_is_active(const struct cuda_nvml_card *card, unsigned link)
{
    int active = 0;

    return nvml.link_state(card->device, link, &active) == NVML_SUCCESS && active != 0;
}

static unsigned long long recoveries_of(const struct cuda_nvml_card *card, unsigned link)
{
    unsigned long long count = 0;

    return nvml.link_errors(card->device, link, NVML_LINK_RECOVERIES, &count) == NVML_SUCCESS
               ? count
               : 0;
}

static void register_for_xids(struct cuda_nvml_card *card)
{
    if (nvml.set_create(&card->events) != NVML_SUCCESS) {
        card->events = NULL;
    } else if (nvml.register_events(card->device, NVML_XID, card->events) != NVML_SUCCESS) {
        (void)nvml.set_free(card->events);
        card->events = NULL;
    }
}

bool cuda_nvml_begin(const char *pci, bool since_reset, struct cuda_nvml_card *out)
{
    const char *why;

    if (!cuda_nvml_ready(&why) || nvml.handle(pci, &out->device) != NVML_SUCCESS) {
        return false;
    }
    out->memory_errors = since_reset ? 0 : memory_errors_of(out);
    out->has_bad_row = !since_reset && has_bad_row(out);
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        if (link_is_active(out, link)) {
            out->links |= 1U << link;
            out->recoveries[link] = recoveries_of(out, link);
        }
    }
    register_for_xids(out);
    return true;
}

void cuda_nvml_end(struct cuda_nvml_card *card)
{
    if (card->events != NULL) {
        (void)nvml.set_free(card->events);
    }
}

/* --- the text --- */

struct nvml_page {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct nvml_page *page, const char *format,
                                                      ...)
{
    va_list arguments;
    int length;

    if (page->used > 0 && page->used + 2 < page->bytes) {
        memcpy(page->text + page->used, ", ", 3);
        page->used += 2;
    }
    va_start(arguments, format);
    length = vsnprintf(page->text + page->used, page->bytes - page->used, format, arguments);
    va_end(arguments);
    page->used += length > 0 ? (size_t)length : 0;
    page->used = page->used < page->bytes ? page->used : page->bytes - 1;
}

struct nvml_xid {
    unsigned xid;
    bool is_ill; /* the card has failed, and not the program */
    const char *text;
};

/* What NVIDIA's list says, for those that end or hang a run. */
static const struct nvml_xid xids[] = {
    {13, false, " (exception of a kernel, mostly by the program)"},
    {31, false, " (access to memory that is not there, mostly by the program)"},
    {43, false, " (work was stopped, mostly by the program)"},
    {48, true, " (uncorrectable memory error)"},
    {62, true, " (the card's microcontroller has stopped)"},
    {63, false, " (a row of memory is to be replaced)"},
    {64, true, " (a row of memory could not be replaced)"},
    {74, true, " (NVLink)"},
    {79, true, " (the card has fallen off the bus)"},
    {92, false, " (many correctable memory errors)"},
    {94, true, " (memory error, contained: only programs that used it end)"},
    {95, true, " (memory error, not contained: reset the card)"},
    {109, false, " (work could not be stopped in time)"},
    {119, true, " (the card's own processor, GSP, does not answer)"},
    {120, true, " (the card's own processor, GSP, has failed)"},
    {140, true, " (uncorrectable memory error)"},
};

static struct nvml_xid find_xid(unsigned xid)
{
    if (xid >= 144 && xid <= 150) {
        return (struct nvml_xid){xid, true, " (NVLink)"};
    }
    for (size_t i = 0; i < sizeof xids / sizeof xids[0]; i++) {
        if (xids[i].xid == xid) {
            return xids[i];
        }
    }
    return (struct nvml_xid){xid, false, ""};
}

static void keep_xid(struct cuda_nvml_card *card, unsigned xid)
{
    int i = 0;

    while (i < card->xid_count && card->xids[i] != xid) {
        i++;
    }
    /* 45 only says that work was removed after another error, or at a program's end */
    if (i == card->xid_count && i < NVML_XIDS && xid != 45) {
        card->xids[card->xid_count++] = xid;
    }
}

static bool add_xids(struct cuda_nvml_card *card, unsigned wait_ms, struct nvml_page *page)
{
    struct nvml_event event;
    unsigned wait = wait_ms;
    bool is_ill = false;

    for (int i = 0; i < NVML_EVENTS && card->events != NULL; i++) {
        memset(&event, 0, sizeof event);
        if (nvml.set_wait(card->events, &event, wait) != NVML_SUCCESS) {
            break;
        }
        wait = 0;
        if (event.type == NVML_XID) {
            keep_xid(card, (unsigned)event.data);
        }
    }
    for (int i = 0; i < card->xid_count; i++) {
        struct nvml_xid found = find_xid(card->xids[i]);

        add(page, "Xid %u%s", found.xid, found.text);
        is_ill = is_ill || found.is_ill;
    }
    return is_ill;
}

static bool add_errors(const struct cuda_nvml_card *card, struct nvml_page *page)
{
    unsigned long long errors = memory_errors_of(card);

    if (errors > card->memory_errors) {
        unsigned long long more = errors - card->memory_errors;

        add(page, "%llu uncorrectable memory error%s", more, more == 1 ? "" : "s");
    }
    return errors > card->memory_errors;
}

/* @p is_new: a row that could not be replaced counts only if that has happened since
 * cuda_nvml_begin(). */
static bool add_rows(const struct cuda_nvml_card *card, bool is_new, struct nvml_page *page)
{
    unsigned corrected;
    unsigned uncorrected;
    unsigned pending = 0;
    unsigned failed = 0;
    int result = nvml.rows(card->device, &corrected, &uncorrected, &pending, &failed);
    bool is_bad = result == NVML_SUCCESS && failed != 0 && !(is_new && card->has_bad_row);

    if (result == NVML_GPU_IS_LOST) {
        add(page, "a lost card");
    } else if (is_bad) {
        add(page, "a row of memory that could not be replaced");
    } else if (result == NVML_SUCCESS && pending != 0) {
        add(page, "rows of memory that are replaced at the card's next reset");
    }
    return result == NVML_GPU_IS_LOST || is_bad;
}

static void add_links(const struct cuda_nvml_card *card, struct nvml_page *page)
{
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        unsigned long long recoveries;

        if ((card->links >> link & 1) == 0) {
            continue;
        }
        recoveries = recoveries_of(card, link) - card->recoveries[link];
        if (!link_is_active(card, link)) {
            add(page, "NVLink %u down", link);
        } else if (recoveries > 0) {
            add(page, "%llu recover%s of NVLink %u", recoveries, recoveries == 1 ? "y" : "ies",
                link);
        }
    }
}

void cuda_nvml_worn(const struct cuda_nvml_card *card, char *out, size_t bytes)
{
    struct nvml_page page = {out, bytes, 0};

    out[0] = '\0';
    (void)add_rows(card, false, &page);
}

bool cuda_nvml_faults(struct cuda_nvml_card *card, unsigned wait_ms, char *out, size_t bytes)
{
    struct nvml_page page = {out, bytes, 0};
    bool is_ill;

    out[0] = '\0';
    is_ill = add_xids(card, wait_ms, &page);
    is_ill = add_errors(card, &page) || is_ill;
    is_ill = add_rows(card, true, &page) || is_ill;
    add_links(card, &page);
    return is_ill;
}
