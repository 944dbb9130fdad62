/* batch.c - owns what happens to a sample between the dataset and the model: images are cropped,
 * flipped and normalised, image files are decoded first, sequences of tokens are copied, and
 * numbers become float32. It also owns how batches are split: into micro-batches of one size and a
 * rest, equally many on every rank. */
#include "data/batch.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/numbers.h"

#include <math.h>
#include <stdio.h>

enum { CACHE_LINE_BYTES = 64, FETCH_BYTES = 4096 };
enum { MOST_BROKEN = 100 }; /* at most this many consecutive broken files are replaced */

/* The number of micro-batches that each rank gets of a batch of @p count samples. It is the same on
 * all ranks, so that the collectives of each micro-batch match; a rank's last ones may be empty. */
static uint64_t micro_batches_of(const struct cddpi_micro_batch_schedule *schedule, uint64_t count)
{
    uint64_t largest = cddp_share_of(0, count, 0, schedule->world_size).count;

    if (schedule->by_position) {
        return cddp_share_of(0, (count - 1) / schedule->micro_batch_size + 1, 0,
                             schedule->world_size)
            .count;
    }
    return largest > schedule->micro_batch_size ? (largest - 1) / schedule->micro_batch_size + 1
                                                : 1;
}

static cddp_status check_schedule(const struct cddpi_micro_batch_schedule *schedule,
                                  uint64_t samples)
{
    uint64_t order;

    if (schedule->sampler == NULL || schedule->batch == 0 || schedule->world_size < 1 ||
        schedule->rank < 0 || schedule->rank >= schedule->world_size) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: batches of %llu samples cannot be divided for rank %d of %d ranks",
            (unsigned long long)schedule->batch, schedule->rank, schedule->world_size);
    }
    order = cddp_sampler_count(schedule->sampler);
    if (order > samples || schedule->first > schedule->end || schedule->end > order) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader: positions %llu to %llu are outside an order of %llu samples, or "
                          "that is longer than the dataset of %llu",
                          (unsigned long long)schedule->first, (unsigned long long)schedule->end,
                          (unsigned long long)order, (unsigned long long)samples);
    }
    return CDDP_OK;
}

cddp_status cddpi_micro_batch_schedule_plan(struct cddpi_micro_batch_schedule *schedule,
                                            uint64_t samples)
{
    uint64_t positions, left;

    CDDPI_TRY(check_schedule(schedule, samples));
    positions = schedule->end - schedule->first;
    left = positions % schedule->batch;
    schedule->micro_batches = micro_batches_of(
        schedule, positions < schedule->batch ? positions : schedule->batch);
    schedule->count = positions / schedule->batch * schedule->micro_batches +
                      (left > 0 ? micro_batches_of(schedule, left) : 0);
    return CDDP_OK;
}

/* The positions of the batch that micro-batch @p number belongs to. */
static cddp_share batch_of(const struct cddpi_micro_batch_schedule *schedule, uint64_t number)
{
    uint64_t first = schedule->first + number / schedule->micro_batches * schedule->batch;
    uint64_t left = schedule->end - first;

    return (cddp_share){first, left < schedule->batch ? left : schedule->batch};
}

/* This rank's share of the batch @p all: of its samples, or by position of its micro-batches, of
 * which each but the batch's last one is whole. */
static cddp_share share_of(const struct cddpi_micro_batch_schedule *schedule, const cddp_share *all)
{
    uint64_t size = schedule->micro_batch_size;
    cddp_share parts;
    uint64_t end;

    if (!schedule->by_position) {
        return cddp_share_of(all->first, all->count, schedule->rank, schedule->world_size);
    }
    parts = cddp_share_of(0, (all->count - 1) / size + 1, schedule->rank, schedule->world_size);
    end = (parts.first + parts.count) * size;
    end = end < all->count ? end : all->count;
    return (cddp_share){all->first + parts.first * size,
                        parts.count > 0 ? end - parts.first * size : 0};
}

static cddp_status check_transform(const struct cddpi_data_loader_options *options)
{
    const struct cddpi_transform *transform = &options->transform;
    const struct cddpi_dataset *dataset = options->dataset;

    if (dataset->channels < 1 || dataset->channels > CDDPI_BATCH_CHANNELS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader: the images have %d channels, but only 1 to %d can be read",
                          dataset->channels, CDDPI_BATCH_CHANNELS);
    }
    for (int c = 0; c < dataset->channels; c++) {
        if (!isfinite(transform->mean[c]) || !isfinite(transform->std[c]) ||
            transform->std[c] < 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "loader: channel %d has mean %g and std %g: both must be finite, and "
                              "std not negative",
                              c, (double)transform->mean[c], (double)transform->std[c]);
        }
    }
    if (transform->crop_padding < 0 || transform->crop_padding > dataset->height ||
        transform->crop_padding > dataset->width) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: crop_padding is %d, but may be 0 to the size of an image, which is %d x %d",
            transform->crop_padding, dataset->height, dataset->width);
    }
    return CDDP_OK;
}

static cddp_status prepare_files(const struct cddpi_data_loader_options *options,
                                 struct cddpi_batch_maker *out)
{
    static const double usual[2] = {0.08, 1};
    const struct cddpi_transform *transform = &options->transform;
    bool given = transform->crop_area[0] != 0 || transform->crop_area[1] != 0;
    const double *area = given ? transform->crop_area : usual;
    int size = options->dataset->height;

    if (!(area[0] > 0 && area[0] <= area[1] && area[1] <= 1)) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: parts of %g to %g of an image are to be cut out, but they must be "
            "larger than 0, at most 1, and in order",
            area[0], area[1]);
    }
    if (transform->resize != 0 && transform->resize < size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "loader: images are resized to %d pixels, too few for samples of %d",
                          transform->resize, size);
    }
    out->use = (struct cddpi_image_use){.size = size,
                                        .resize = transform->resize > 0 ? transform->resize : size,
                                        .area = {area[0], area[1]},
                                        .flip = transform->flip};
    return CDDP_OK;
}

cddp_status cddpi_batch_maker_init(const struct cddpi_data_loader_options *options,
                                   struct cddpi_batch_maker *out)
{
    const struct cddpi_transform *transform = &options->transform;
    const struct cddpi_dataset *dataset = options->dataset;

    out->dataset = dataset;
    out->seed = options->seed;
    if (dataset->kind == CDDPI_DATASET_TOKENS) {
        out->sample_elements = (size_t)dataset->context;
        out->sample_labels = (size_t)dataset->context;
        return CDDP_OK;
    }
    out->sample_labels = cddpi_dataset_labels(dataset);
    if (dataset->kind == CDDPI_DATASET_NUMBERS) {
        out->sample_elements = cddpi_dataset_elements(dataset);
        return CDDP_OK;
    }
    CDDPI_TRY(check_transform(options));
    if (dataset->files != NULL) {
        CDDPI_TRY(prepare_files(options, out));
    }
    out->skip_broken = options->skip_broken;
    out->crop_padding = transform->crop_padding;
    out->flip = transform->flip;
    out->sample_elements = cddpi_dataset_elements(dataset);
    for (int c = 0; c < dataset->channels; c++) {
        float scale = transform->std[c] > 0 ? transform->std[c] : 1;

        for (int value = 0; value < CDDPI_IMAGE_VALUES; value++) {
            out->tables[c][value] = ((float)value / 255.0f - transform->mean[c]) / scale;
        }
    }
    return CDDP_OK;
}

/* Map a random word to an integer in [0, @p limit). */
static int below(uint32_t word, int limit)
{
    return (int)((uint64_t)word * (uint32_t)limit >> 32);
}

/* As torchvision's RandomCrop(size, padding) and then RandomHorizontalFlip(). */
static void augment_sample(const struct cddpi_batch_maker *maker, uint64_t epoch, uint64_t id,
                           const uint8_t *in, float *out)
{
    const struct cddpi_dataset *dataset = maker->dataset;
    size_t plane = (size_t)dataset->height * (size_t)dataset->width;
    int padding = maker->crop_padding;
    struct cddpi_philox stream = cddpi_philox_stream(maker->seed, CDDPI_RANDOM_AUGMENT,
                                                     (uint32_t)(epoch ^ epoch >> 32));
    uint32_t random[4];
    int top, left;
    bool flip;

    cddpi_philox4(&stream, id, random);
    top = below(random[0], 2 * padding + 1) - padding;
    left = below(random[1], 2 * padding + 1) - padding;
    flip = maker->flip && random[2] >> 31;
    for (int c = 0; c < dataset->channels; c++) {
        cddpi_image_crop(maker->tables[c], in + (size_t)c * plane, dataset->height, dataset->width,
                         top, left, flip, out + (size_t)c * plane);
    }
}

static void plain_sample(const struct cddpi_batch_maker *maker, const uint8_t *in, float *out)
{
    const struct cddpi_dataset *dataset = maker->dataset;
    size_t plane = (size_t)dataset->height * (size_t)dataset->width;

    for (int c = 0; c < dataset->channels; c++) {
        cddpi_image_lookup(maker->tables[c], in + (size_t)c * plane, plane,
                           out + (size_t)c * plane);
    }
}

/* Consecutive samples are far apart in memory, so each one is prefetched while the previous one is
 * converted. */
static const uint8_t *fetch(const struct cddpi_batch_maker *maker, uint64_t id)
{
    const uint8_t *sample = maker->dataset->images + id * maker->sample_elements;

    for (size_t byte = 0; byte < maker->sample_elements && byte < FETCH_BYTES;
         byte += CACHE_LINE_BYTES) {
        __builtin_prefetch(sample + byte);
    }
    return sample;
}

static void make_sequences(const struct cddpi_batch_maker *maker,
                           const struct cddpi_micro_batch_schedule *schedule, uint64_t first,
                           const atomic_bool *stop, struct cddpi_micro_batch *batch,
                           struct cddpi_sample_fault *out_fault)
{
    struct cddpi_token_fault fault = {NULL, 0, 0};

    for (size_t i = 0; i < (size_t)batch->count; i++) {
        uint64_t id = cddp_sampler_at(schedule->sampler, first + i);

        batch->sample_ids[i] = id;
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            return;
        }
        if (!cddpi_dataset_token_sequence(maker->dataset, id,
                                          batch->tokens + i * maker->sample_elements,
                                          batch->label + i * maker->sample_labels, &fault)) {
            out_fault->status = CDDP_ERR_FORMAT;
            snprintf(out_fault->text, sizeof out_fault->text,
                     "%s: token %llu is %u, but the vocabulary has only %d tokens", fault.path,
                     (unsigned long long)fault.token, fault.value, maker->dataset->classes);
            return;
        }
    }
}

static void make_numbers(const struct cddpi_batch_maker *maker,
                         const struct cddpi_micro_batch_schedule *schedule, uint64_t first,
                         const atomic_bool *stop, struct cddpi_micro_batch *batch,
                         struct cddpi_sample_fault *out_fault)
{
    for (size_t i = 0; i < (size_t)batch->count; i++) {
        uint64_t id = cddp_sampler_at(schedule->sampler, first + i);

        batch->sample_ids[i] = id;
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            return;
        }
        if (!cddpi_dataset_numbers(maker->dataset, id, batch->input + i * maker->sample_elements,
                                   batch->label + i * maker->sample_labels, out_fault->text,
                                   sizeof out_fault->text)) {
            out_fault->status = CDDP_ERR_FORMAT;
            return;
        }
    }
}

/* Make the sample of a file; if the file is broken, of the next readable file. */
static cddp_status make_file(const struct cddpi_batch_maker *maker,
                             const struct cddpi_image_use *use, struct cddpi_view_key key,
                             struct cddpi_image_scratch *scratch, float *out, int32_t *label,
                             struct cddpi_sample_fault *out_fault)
{
    const struct cddpi_dataset *dataset = maker->dataset;
    cddp_status status = cddpi_image_sample(dataset->files, use, key, maker->tables, scratch, out);

    /* another file replaces one only if the file is at fault, not this process */
    for (int i = 0;
         maker->skip_broken && i < MOST_BROKEN &&
         (status == CDDP_ERR_FORMAT || status == CDDP_ERR_NOT_FOUND || status == CDDP_ERR_IO);
         i++) {
        if (out_fault->text[0] == '\0') {
            snprintf(out_fault->text, sizeof out_fault->text, "%s", cddp_last_error());
        }
        key.sample = (key.sample + 1) % dataset->count;
        status = cddpi_image_sample(dataset->files, use, key, maker->tables, scratch, out);
    }
    if (status == CDDP_OK) {
        *label = dataset->wide_labels[key.sample];
    }
    return status;
}

static void make_files(const struct cddpi_batch_maker *maker,
                       const struct cddpi_micro_batch_schedule *schedule, uint64_t first,
                       const atomic_bool *stop, struct cddpi_image_scratch *scratch,
                       struct cddpi_micro_batch *batch, struct cddpi_sample_fault *out_fault)
{
    struct cddpi_image_use use = maker->use;

    use.random = schedule->augment;
    for (size_t i = 0; i < (size_t)batch->count; i++) {
        uint64_t id = cddp_sampler_at(schedule->sampler, first + i);
        struct cddpi_view_key key = {maker->seed, schedule->epoch, id};
        struct cddpi_sample_fault fault = {.status = CDDP_OK};

        batch->sample_ids[i] = id;
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            return;
        }
        fault.status = make_file(maker, &use, key, scratch,
                                 batch->input + i * maker->sample_elements, &batch->label[i],
                                 &fault);
        if (fault.status != CDDP_OK) {
            out_fault->status = fault.status;
            out_fault->error_number = cddpi_last_failure()->error_number;
            snprintf(out_fault->text, sizeof out_fault->text, "%.900s%s", cddp_last_error(),
                     fault.status == CDDP_ERR_FORMAT && !maker->skip_broken
                         ? " (data.on_error = \"skip\" trains without broken files)"
                         : "");
            return;
        }
        if (fault.text[0] != '\0' && batch->broken++ == 0) {
            *out_fault = fault;
        }
    }
}

static void make_images(const struct cddpi_batch_maker *maker,
                        const struct cddpi_micro_batch_schedule *schedule, uint64_t first,
                        const atomic_bool *stop, struct cddpi_micro_batch *batch)
{
    bool augment = schedule->augment && (maker->crop_padding > 0 || maker->flip);
    size_t count = (size_t)batch->count;
    uint64_t id = count > 0 ? cddp_sampler_at(schedule->sampler, first) : 0;
    const uint8_t *in = count > 0 ? fetch(maker, id) : NULL;

    for (size_t i = 0; i < count; i++) {
        float *out = batch->input + i * maker->sample_elements;
        const uint8_t *now = in;

        batch->sample_ids[i] = id;
        batch->label[i] = maker->dataset->labels != NULL ? maker->dataset->labels[id]
                                                         : maker->dataset->wide_labels[id];
        if (i + 1 < count) {
            id = cddp_sampler_at(schedule->sampler, first + i + 1);
            in = fetch(maker, id);
        }
        if (atomic_load_explicit(stop, memory_order_relaxed)) {
            return;
        }
        if (augment) {
            augment_sample(maker, schedule->epoch, batch->sample_ids[i], now, out);
        } else {
            plain_sample(maker, now, out);
        }
    }
}

/* Whether micro-batch @p number ends the batch @p all for this rank, whose share is @p part. By
 * position, empty ones may follow. */
static bool ends_run(const struct cddpi_micro_batch_schedule *schedule, uint64_t number,
                     const cddp_share *all, const cddp_share *part)
{
    uint64_t count = micro_batches_of(schedule, all->count);

    if (schedule->by_position) {
        count = part->count > 0 ? (part->count - 1) / schedule->micro_batch_size + 1 : 1;
    }
    return number % schedule->micro_batches + 1 == count;
}

void cddpi_batch_make(const struct cddpi_batch_maker *maker,
                      const struct cddpi_micro_batch_schedule *schedule, uint64_t number,
                      const atomic_bool *stop, struct cddpi_image_scratch *scratch,
                      struct cddpi_micro_batch *out, struct cddpi_sample_fault *out_fault)
{
    cddp_share all = batch_of(schedule, number);
    cddp_share part = share_of(schedule, &all);
    uint64_t skipped = number % schedule->micro_batches * schedule->micro_batch_size;

    out->samples = all.count;
    out->share = part.count;
    out->of = schedule->by_position ? (all.count - 1) / schedule->micro_batch_size + 1 : 0;
    out->number = schedule->by_position
                      ? (part.first - all.first + skipped) / schedule->micro_batch_size
                      : 0;
    out->micro_batches = micro_batches_of(schedule, all.count);
    out->last = ends_run(schedule, number, &all, &part);
    out->even = all.count % (uint64_t)schedule->world_size == 0;
    /* the micro-batch is a part of this rank's share */
    skipped = skipped < part.count ? skipped : part.count;
    part.first += skipped;
    part.count -= skipped;
    if (part.count > schedule->micro_batch_size) {
        part.count = schedule->micro_batch_size;
    }
    out->count = (int)part.count;
    out->broken = 0;
    out_fault->status = CDDP_OK;
    out_fault->text[0] = '\0';
    out_fault->error_number = 0;
    if (maker->dataset->kind == CDDPI_DATASET_TOKENS) {
        make_sequences(maker, schedule, part.first, stop, out, out_fault);
    } else if (maker->dataset->kind == CDDPI_DATASET_NUMBERS) {
        make_numbers(maker, schedule, part.first, stop, out, out_fault);
    } else if (maker->dataset->files != NULL) {
        make_files(maker, schedule, part.first, stop, scratch, out, out_fault);
    } else {
        make_images(maker, schedule, part.first, stop, out);
    }
}
