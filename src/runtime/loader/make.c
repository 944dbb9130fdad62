/* make.c - owns the threads that make samples: each takes the next one there is room for. */
#include "loader/loader.h"

#include <string.h>

static struct cddpi_loader_slot *slot_of(cddp_loader *loader, uint64_t batch)
{
    return &loader->slots[batch % loader->slot_count];
}

/* Whether samples may be taken: of a batch whose slot the caller has given back. */
static bool has_room(const cddp_loader *loader)
{
    /* the last batch that was taken is in use, so it keeps its slot */
    uint64_t kept = loader->taken > loader->first ? loader->taken - 1 : loader->first;

    return loader->begun && loader->next_batch < loader->batches &&
           loader->next_batch - kept < loader->slot_count;
}

void cddpi_loader_open_batch(cddp_loader *loader)
{
    while (has_room(loader) && loader->next_sample == 0) {
        struct cddpi_loader_slot *slot = slot_of(loader, loader->next_batch);

        slot->share = cddpi_loader_share(loader, loader->next_batch);
        slot->missing = slot->share.count;
        slot->failed_at = UINT64_MAX;
        if (slot->missing > 0) {
            pthread_cond_broadcast(&loader->work);
            return;
        }
        loader->next_batch++; /* this rank has no part in it */
    }
    if (has_room(loader)) {
        pthread_cond_broadcast(&loader->work);
    }
}

/* With the mutex: the next sample to make. */
static bool take(cddp_loader *loader, struct cddpi_loader_slot **out_slot, uint64_t *out_sample)
{
    struct cddpi_loader_slot *slot;

    if (!has_room(loader)) {
        return false;
    }
    slot = slot_of(loader, loader->next_batch);
    *out_slot = slot;
    *out_sample = loader->next_sample++;
    if (loader->next_sample == slot->share.count) {
        loader->next_batch++;
        loader->next_sample = 0;
        cddpi_loader_open_batch(loader);
    }
    return true;
}

/* Without the mutex. */
static cddp_status make(cddp_loader *loader, struct cddpi_loader_slot *slot, uint64_t sample)
{
    const cddp_loader_options *options = &loader->options;
    uint64_t position = slot->share.first + sample;
    uint64_t index = cddp_sampler_at(loader->sampler, position);
    cddp_status status;

    slot->indices[sample] = index;
    cddpi_error_clear();
    status = options->load(options->state, index, slot->data + sample * options->sample_bytes);
    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    if (cddpi_last_failure()->status == CDDP_OK) {
        (void)cddpi_fail(status, "%s", cddp_status_text(status));
    }
    return cddpi_fail_prefix(status, "loader: sample %llu, position %llu of epoch %llu",
                             (unsigned long long)index, (unsigned long long)position,
                             (unsigned long long)loader->epoch);
}

/* The loader that this thread makes samples for. */
static _Thread_local const cddp_loader *made_for;

bool cddpi_loader_is_maker(const cddp_loader *loader)
{
    return made_for == loader;
}

/* A sample that a thread makes. */
struct make_making {
    cddp_loader *loader;
    struct cddpi_loader_slot *slot;
    uint64_t sample;
};

/* With the mutex: the sample is made, or failed. */
static void finish(const struct make_making *making, cddp_status status)
{
    cddp_loader *loader = making->loader;
    struct cddpi_loader_slot *slot = making->slot;

    loader->busy--;
    if (status != CDDP_OK && making->sample < slot->failed_at) {
        slot->failed_at = making->sample;
        slot->failure = *cddpi_last_failure();
        slot->failure.status = status;
    }
    if (--slot->missing == 0 || loader->busy == 0) {
        pthread_cond_signal(&loader->made);
    }
}

/* The caller's function has called pthread_exit(), or somebody has cancelled this thread. */
static void thread_ends(void *argument)
{
    const struct make_making *making = argument;
    cddp_status status = cddpi_fail(CDDP_ERR_STATE,
                                    "loader: the function that makes samples ended its thread by "
                                    "pthread_exit(): it has to return");

    pthread_mutex_lock(&making->loader->mutex);
    making->loader->alive--;
    finish(making, status);
    pthread_cond_signal(&making->loader->made);
    pthread_mutex_unlock(&making->loader->mutex);
}

void *cddpi_loader_main(void *argument)
{
    cddp_loader *loader = argument;
    struct make_making making = {.loader = loader};

    made_for = loader;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->stop) {
        cddp_status status;

        if (!take(loader, &making.slot, &making.sample)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);
        pthread_cleanup_push(thread_ends, &making);
        status = make(loader, making.slot, making.sample);
        pthread_cleanup_pop(0);
        pthread_mutex_lock(&loader->mutex);
        finish(&making, status);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}
