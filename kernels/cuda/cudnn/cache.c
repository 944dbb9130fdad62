/* cache.c - owns a device's cuDNN handle and its plans. A model has only a few dozen shapes, so the
 * search for a plan is linear. */
#include "kernels/cuda/cudnn/cudnn_plan.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/cuda/cudnn/cudnn_nodes.h"
#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/library.h"

#include <stdio.h>
#include <string.h>

struct cache_entry {
    struct cddpi_cudnn_key key;
    bool usable;
    struct cddpi_cudnn_plan plan;
    struct cache_entry *next;
};

struct cache {
    struct cddpi_cudnn cudnn;
    cudnnHandle_t handle;        /* NULL: cuDNN is not available */
    cudaStream_t stream;         /* the handle's stream */
    struct cddpi_tuning *tuning; /* NULL: choices are not kept */
    struct cache_entry *entries;
};

static void release(struct cddpi_device *device, void *state)
{
    struct cache *cache = state;

    (void)device;
    while (cache->entries != NULL) {
        struct cache_entry *entry = cache->entries;

        cache->entries = entry->next;
        cddpi_cudnn_plan_fini(&entry->plan);
        cddpi_free(entry);
    }
    cddpi_tuning_close(cache->tuning);
    if (cache->handle != NULL) {
        cache->cudnn.destroy(cache->handle);
    }
    cddpi_free(cache);
}

/* A missing cuDNN is not an error, but makes training slow, so it is logged. */
static void warn_slow(void)
{
    cddpi_log(CDDPI_LOG_WARN, "%s; slower kernels are taken instead", cddp_last_error());
}

/* A mix of libraries that was not requested is an error; a missing cuDNN is not. */
static cddp_status open_library(struct cddpi_device *device, struct cache *cache)
{
    void *library;
    cudnnStatus_t code;
    cddp_status status = cuda_library_open(CUDA_LIBRARY_CUDNN, &library);

    if (status == CDDP_ERR_CONFIG) {
        return status;
    }
    if (status != CDDP_OK || cddpi_cudnn_look_up(device, library, &cache->cudnn) != CDDP_OK) {
        warn_slow();
        return CDDP_OK;
    }
    /* also makes the device this thread's current one */
    cache->stream = cddpi_cuda_compute_stream(device);
    code = cache->cudnn.create(&cache->handle);
    if (code == CUDNN_STATUS_SUCCESS) {
        code = cache->cudnn.set_stream(cache->handle, cache->stream);
    } else {
        cache->handle = NULL;
    }
    if (code != CUDNN_STATUS_SUCCESS) {
        cddpi_cudnn_failed(&cache->cudnn, code, "handle");
        if (cache->handle != NULL) {
            cache->cudnn.destroy(cache->handle);
            cache->handle = NULL;
        }
        warn_slow();
    }
    return CDDP_OK;
}

static cddp_status refuse_capture(struct cddpi_device *device)
{
    return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                     "the first attention or convolution of a shape cannot be captured");
}

static cddp_status get_cache(struct cddpi_device *device, struct cache **out)
{
    struct cddpi_cuda_cache *slot = cddpi_cuda_cache(device, CDDPI_CUDA_CACHE_CUDNN);

    if (slot->state == NULL) {
        struct cache *cache;
        cddp_status status;

        if (cddpi_cuda_capturing(device)) {
            return refuse_capture(device);
        }
        cache = cddpi_zalloc(sizeof *cache);
        if (cache == NULL) {
            return cuda_fail(device, CDDP_ERR_NO_MEMORY, "cuDNN: no memory for %zu bytes",
                             sizeof *cache);
        }
        status = open_library(device, cache);
        if (status != CDDP_OK) {
            cddpi_free(cache);
            return status;
        }
        if (cache->handle != NULL) {
            char version[64];

            snprintf(version, sizeof version, "cuDNN %d", cache->cudnn.version);
            cache->tuning = cddpi_cuda_tuning(device, "cudnn", version);
        }
        *slot = (struct cddpi_cuda_cache){cache, release};
    }
    *out = slot->state;
    return CDDP_OK;
}

static const char *name_of(const struct cddpi_cudnn_key *key)
{
    static const char *const names[] = {
        [CDDPI_CUDNN_ATTENTION] = "attention",
        [CDDPI_CUDNN_ATTENTION_GRAD] = "gradient of attention",
        [CDDPI_CUDNN_CONV + CDDPI_CONV_FORWARD] = "convolution",
        [CDDPI_CUDNN_CONV + CDDPI_CONV_INPUT] = "gradient of a convolution's input",
        [CDDPI_CUDNN_CONV + CDDPI_CONV_WEIGHT] = "gradient of a convolution's filters"};

    return names[key->kind];
}

/* --- choices of earlier processes --- */

/* All that a choice depends on besides the device and the library. Numbers without padding. */
struct cudnn_tuning_key {
    struct cddpi_cudnn_key key;
    int32_t tf32;
};

static struct cudnn_tuning_key tuning_key(const struct cddpi_cudnn_key *key)
{
    return (struct cudnn_tuning_key){*key, cddpi_cuda_tf32()};
}

void cddpi_cudnn_keep(const struct cddpi_cudnn_use *use)
{
    struct cudnn_tuning_key key = tuning_key(use->key);
    struct cddpi_cudnn_config config;

    if (cddpi_cudnn_config_read(use->cudnn, use->plan->config, use->plan->engine, &config)) {
        cddpi_tuning_keep(use->tuning, &key, sizeof key, &config,
                          cddpi_cudnn_config_bytes(&config));
    }
}

void cddpi_cudnn_reject(const struct cddpi_cudnn_use *use)
{
    struct cudnn_tuning_key key = tuning_key(use->key);

    cddpi_tuning_reject(use->tuning, &key, sizeof key);
}

/* With any_order, take an earlier process's choice, or measure. Without it, the choice is always
 * cuDNN's own first one: bits depend on it, so each process must have the same. */
static cddp_status choose(const struct cache *cache, const struct cddpi_cudnn_key *key,
                          const struct cddpi_cudnn_target *target, struct cddpi_cudnn_plan *plan)
{
    struct cudnn_tuning_key stored = tuning_key(key);
    struct cddpi_cudnn_config config;
    size_t bytes = key->any_order != 0 ? cddpi_tuning_find(cache->tuning, &stored, sizeof stored,
                                                           &config, sizeof config)
                                       : 0;

    if (bytes > 0) {
        if (cddpi_cudnn_config_is_whole(&config, bytes) &&
            cddpi_cudnn_plan_restore(plan, target, &config) == CDDP_OK) {
            return CDDP_OK;
        }
        cddpi_tuning_reject(cache->tuning, &stored, sizeof stored);
    }
    return cddpi_cudnn_plan_choose(plan, target);
}

static cddp_status add(struct cddpi_device *device, struct cache *cache,
                       const struct cddpi_cudnn_key *key,
                       void (*build)(struct cddpi_cudnn_graph *graph, const void *shape),
                       const void *shape, struct cache_entry **out)
{
    struct cddpi_cudnn_target target = {
        .handle = cache->handle, .alternatives = key->any_order != 0, .tf32 = cddpi_cuda_tf32()};
    struct cache_entry *entry;
    cddp_status status;

    if (cddpi_cuda_capturing(device)) {
        return refuse_capture(device);
    }
    entry = cddpi_zalloc(sizeof *entry);
    if (entry == NULL) {
        return cuda_fail(device, CDDP_ERR_NO_MEMORY, "cuDNN: no memory for %zu bytes",
                         sizeof *entry);
    }
    entry->key = *key;
    cddpi_cudnn_graph_init(&entry->plan.graph, &cache->cudnn, name_of(key));
    build(&entry->plan.graph, shape);
    status = entry->plan.graph.status; /* not CDDP_OK: cuDNN is not used for this kind of shape */
    if (status == CDDP_OK) {
        status = choose(cache, key, &target, &entry->plan);
        if (status != CDDP_OK) {
            warn_slow();
        } else if (!entry->plan.reproducible && key->any_order == 0) {
            cddpi_log(CDDPI_LOG_WARN,
                      "cuDNN: %s: this device has only engines whose results "
                      "differ from run to run",
                      name_of(key));
        }
    }
    entry->usable = status == CDDP_OK;
    if (!entry->usable) {
        cddpi_cudnn_plan_fini(&entry->plan);
    }
    entry->next = cache->entries;
    cache->entries = entry;
    *out = entry;
    return CDDP_OK;
}

/* The compute stream may have changed since the last call. */
static cddp_status follow_stream(struct cddpi_device *device, struct cache *cache)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;

    if (stream != cache->stream) {
        code = cache->cudnn.set_stream(cache->handle, stream);
    }
    if (code != CUDNN_STATUS_SUCCESS) {
        return cddpi_cudnn_failed(&cache->cudnn, code, "stream of the handle");
    }
    cache->stream = stream;
    return CDDP_OK;
}

cddp_status cddpi_cudnn_find(struct cddpi_device *device, const struct cddpi_cudnn_key *key,
                             void (*build)(struct cddpi_cudnn_graph *graph, const void *shape),
                             const void *shape, struct cddpi_cudnn_use *out)
{
    struct cache *cache = NULL;
    struct cache_entry *entry;

    out->plan = NULL;
    CDDPI_TRY(get_cache(device, &cache));
    if (cache->handle == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(follow_stream(device, cache));
    entry = cache->entries;
    while (entry != NULL && memcmp(&entry->key, key, sizeof *key) != 0) {
        entry = entry->next;
    }
    if (entry == NULL) {
        CDDPI_TRY(add(device, cache, key, build, shape, &entry));
    }
    if (entry->usable && !entry->plan.failed) {
        *out = (struct cddpi_cudnn_use){&cache->cudnn, cache->handle, &entry->plan, &entry->key,
                                        cache->tuning};
    }
    return CDDP_OK;
}
