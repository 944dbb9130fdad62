/* card_health.c - asks NVML about cards, in threads that may hang without holding up the asking
 * one. */
#include "device/cuda/card_health.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "device/cuda/nvml.h"
#include "device/device.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum {
    ANSWER_MS = 3000, /* how long to wait for an answer */
    METERS_MS = 1000, /* least time between two measurements */
    STALE_MS = 30000, /* an older one is unknown: NVML does not answer any more */
    LIST_BYTES = CUDA_CARD_TEXT_BYTES - 16
};

#define SILENT "NVML does not answer"

struct cuda_card {
    _Atomic int users;   /* its owner, and the questions about it */
    _Atomic bool silent; /* NVML did not answer in time; until it does, nobody asks again */
    _Atomic bool waited; /* for an Xid that comes after CUDA's error */
    char pci[32];
    bool since_reset;
    pthread_mutex_t mutex; /* one question at a time */
    struct cuda_nvml_card nvml;
    pthread_mutex_t meters_mutex; /* guards what follows */
    struct cddpi_device_meters meters;
    int64_t asked_ns, measured_ns; /* 0: never */
    bool is_measuring;             /* a question is under way */
};

/* A question to NVML. A thread of its own answers it, since a call may never return: the asking
 * thread goes on after some time, and whoever is last frees. */
struct card_question {
    void (*task)(struct card_question *question);
    struct cuda_card *card; /* NULL: no card */
    unsigned wait_ms;
    bool known;  /* the answer: NVML, or the card, can be used */
    bool is_ill; /* and the card has failed */
    char text[CUDA_CARD_TEXT_BYTES];
    _Atomic bool done;
    _Atomic int users;
};

static void drop_card(struct cuda_card *card)
{
    if (card != NULL && atomic_fetch_sub(&card->users, 1) == 1) {
        pthread_mutex_destroy(&card->mutex);
        pthread_mutex_destroy(&card->meters_mutex);
        cddpi_free(card);
    }
}

static void drop_question(struct card_question *question)
{
    if (atomic_fetch_sub(&question->users, 1) == 1) {
        drop_card(question->card);
        cddpi_free(question);
    }
}

static void *answer(void *argument)
{
    struct card_question *question = argument;

    question->task(question);
    if (question->card != NULL) {
        atomic_store(&question->card->silent, false); /* late, but it answers */
    }
    atomic_store(&question->done, true);
    drop_question(question);
    return NULL;
}

/* Signals are for the threads of the program. */
static bool start_thread(struct card_question *question)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    bool started;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, NULL, answer, question) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        (void)pthread_detach(thread);
    }
    return started;
}

/* Begin to answer a question, which has @p users. NULL: that is not possible. */
static struct card_question *begin(struct cuda_card *card,
                                   void (*task)(struct card_question *question), unsigned wait_ms,
                                   int users)
{
    struct card_question *question = cddpi_zalloc(sizeof *question);

    if (question == NULL) {
        return NULL;
    }
    if (card != NULL) {
        atomic_fetch_add(&card->users, 1);
    }
    question->task = task;
    question->card = card;
    question->wait_ms = wait_ms;
    atomic_store(&question->users, users);
    if (!start_thread(question)) {
        atomic_store(&question->users, 1);
        drop_question(question);
        return NULL;
    }
    return question;
}

/* Ask, and copy the answer's text to @p out. Returns whether NVML, or the card, can be used.
 * @p out_ill: whether the card has failed; or NULL. */
static bool ask(struct cuda_card *card, void (*task)(struct card_question *question),
                unsigned wait_ms, char *out, bool *out_ill)
{
    struct card_question *question = begin(card, task, wait_ms, 2);
    int64_t deadline_ns = cddpi_deadline_ns(wait_ms + ANSWER_MS);
    const struct timespec pause = {0, 200000};
    bool done;
    bool known;

    out[0] = '\0';
    if (question == NULL) {
        return false;
    }
    while (!atomic_load(&question->done) && cddpi_now_ns() < deadline_ns) {
        nanosleep(&pause, NULL);
    }
    done = atomic_load(&question->done);
    known = done && question->known;
    if (out_ill != NULL) {
        *out_ill = done && question->is_ill;
    }
    if (done) {
        snprintf(out, CUDA_CARD_TEXT_BYTES, "%s", question->text);
    } else {
        snprintf(out, CUDA_CARD_TEXT_BYTES, SILENT);
        if (card != NULL) {
            atomic_store(&card->silent, true);
        }
    }
    drop_question(question);
    return known;
}

/* --- the questions --- */

static void find_nvml(struct card_question *question)
{
    const char *why;

    question->known = cuda_nvml_ready(&why);
    snprintf(question->text, sizeof question->text, "%s", question->known ? "" : why);
}

/* Put the start of the sentence before a list that is not empty. */
static void end_text(struct card_question *question, const char *list)
{
    snprintf(question->text, sizeof question->text, "%s%s", list[0] != '\0' ? "NVML reports " : "",
             list);
}

static void begin_watch(struct card_question *question)
{
    struct cuda_card *card = question->card;
    char list[LIST_BYTES] = "";

    question->known = cuda_nvml_begin(card->pci, card->since_reset, &card->nvml);
    if (question->known) {
        cuda_nvml_worn(&card->nvml, list, sizeof list);
    }
    end_text(question, list);
}

static void find_faults(struct card_question *question)
{
    struct cuda_card *card = question->card;
    char list[LIST_BYTES];

    pthread_mutex_lock(&card->mutex);
    question->is_ill = cuda_nvml_faults(&card->nvml, question->wait_ms, list, sizeof list);
    pthread_mutex_unlock(&card->mutex);
    question->known = true;
    end_text(question, list);
}

static void measure(struct card_question *question)
{
    struct cuda_card *card = question->card;
    struct cddpi_device_meters now;
    bool is_known;

    pthread_mutex_lock(&card->mutex);
    is_known = cuda_nvml_measure(&card->nvml, &now);
    pthread_mutex_unlock(&card->mutex);
    pthread_mutex_lock(&card->meters_mutex);
    if (is_known) {
        now.throttle |= card->measured_ns != 0 ? card->meters.throttle : 0;
        card->meters = now;
        card->measured_ns = cddpi_now_ns();
    }
    card->is_measuring = false;
    pthread_mutex_unlock(&card->meters_mutex);
}

static void end_watch(struct card_question *question)
{
    cuda_nvml_end(&question->card->nvml);
}

/* --- what others call --- */

bool cuda_card_nvml(char *why)
{
    return ask(NULL, find_nvml, 0, why, NULL);
}

struct cuda_card *cuda_card_watch(const char *pci, bool since_reset, char *worn)
{
    struct cuda_card *card = cddpi_zalloc(sizeof *card);

    worn[0] = '\0';
    if (card == NULL || pthread_mutex_init(&card->mutex, NULL) != 0) {
        cddpi_free(card);
        return NULL;
    }
    (void)pthread_mutex_init(&card->meters_mutex, NULL);
    atomic_store(&card->users, 1);
    card->since_reset = since_reset;
    snprintf(card->pci, sizeof card->pci, "%s", pci);
    if (!ask(card, begin_watch, 0, worn, NULL) && !atomic_load(&card->silent)) {
        drop_card(card);
        worn[0] = '\0';
        return NULL;
    }
    return card;
}

void cuda_card_close(struct cuda_card *card)
{
    char text[CUDA_CARD_TEXT_BYTES];

    if (card != NULL && !atomic_load(&card->silent)) {
        (void)ask(card, end_watch, 0, text, NULL);
    }
    drop_card(card);
}

int cuda_card_links(const struct cuda_card *card)
{
    int count = 0;

    for (unsigned link = 0; card != NULL && !atomic_load(&card->silent) && link < NVML_LINKS;
         link++) {
        count += (card->nvml.links >> link & 1) != 0;
    }
    return count;
}

bool cuda_card_faults(struct cuda_card *card, unsigned wait_ms, char *out)
{
    bool is_ill = false;

    out[0] = '\0';
    if (card != NULL && atomic_load(&card->silent)) {
        snprintf(out, CUDA_CARD_TEXT_BYTES, SILENT);
    } else if (card != NULL) {
        bool waits = wait_ms > 0 &&
                     !atomic_exchange(&card->waited, true); /* each call fails then */

        (void)ask(card, find_faults, waits ? wait_ms : 0, out, &is_ill);
    }
    return is_ill;
}

bool cuda_card_meters(struct cuda_card *card, struct cddpi_device_meters *out)
{
    int64_t now_ns = cddpi_now_ns();
    bool is_known;
    bool is_due;

    if (card == NULL) {
        return false;
    }
    pthread_mutex_lock(&card->meters_mutex);
    is_known = card->measured_ns != 0 && now_ns - card->measured_ns < STALE_MS * INT64_C(1000000);
    if (is_known) {
        *out = card->meters;
        card->meters.throttle = 0;
    }
    is_due = !card->is_measuring && !atomic_load(&card->silent) &&
             (card->asked_ns == 0 || now_ns - card->asked_ns >= METERS_MS * INT64_C(1000000));
    if (is_due) {
        card->is_measuring = true;
        card->asked_ns = now_ns;
    }
    pthread_mutex_unlock(&card->meters_mutex);
    if (is_due && begin(card, measure, 0, 1) == NULL) {
        pthread_mutex_lock(&card->meters_mutex);
        card->is_measuring = false;
        pthread_mutex_unlock(&card->meters_mutex);
    }
    return is_known;
}
