/* test_prefetcher.c - batches on a device equal those of the loader, in every order of the streams:
 * copies run before uses, and uses before the next copies. */
#include "base/alloc.h"
#include "base/philox.h"
#include "support/device.h"
#include "support/failure.h"
#include "train/device/prefetcher.h"

enum { COUNT = 53, BATCH = 10, BATCHES = 6, EPOCHS = 2, CLASSES = 10, ELEMENTS = 2 * 5 * 4 };
enum { SEEDS = 8, MOST_PIECES = 64, CONTEXT = 7 };

/* What is fed. */
struct scene {
    int max_count; /* smaller than BATCH: in micro-batches */
    int threads;
    bool tokens;
    double dropout;
    bool fails; /* the loader's labels are more than the model's */
};

static uint8_t images[COUNT * ELEMENTS];
static uint8_t labels[COUNT];

static int make_images(void **state)
{
    struct cddpi_philox stream = cddpi_philox_stream(1, CDDPI_RANDOM_TEST, 0);

    (void)state;
    for (size_t i = 0; i < sizeof images; i++) {
        uint32_t random[4];

        cddpi_philox4(&stream, i, random);
        images[i] = (uint8_t)random[0];
        labels[i / ELEMENTS] = (uint8_t)(random[1] % CLASSES);
    }
    return 0;
}

static cddp_status open_data(const struct scene *scene, struct cddpi_dataset *out)
{
    if (scene->tokens) {
        return cddpi_dataset_open_synthetic_tokens(CONTEXT, CLASSES, COUNT, false, out);
    }
    *out = (struct cddpi_dataset){.count = COUNT,
                                  .channels = 2,
                                  .height = 5,
                                  .width = 4,
                                  .classes = CLASSES,
                                  .images = images,
                                  .labels = labels};
    return CDDP_OK;
}

static struct cddpi_model_spec spec_of(const struct scene *scene, struct cddpi_device *device)
{
    static const int hidden[] = {6};
    struct cddpi_model_spec spec = {.device = device, .dropout = scene->dropout};

    if (scene->tokens) {
        spec.preset = "gpt2";
        spec.blocks = 1;
        spec.heads = 2;
        spec.embed = 8;
        spec.context = CONTEXT;
        spec.vocab = CLASSES;
    } else {
        spec.preset = "mlp";
        spec.hidden = hidden;
        spec.hidden_count = 1;
        spec.channels = 2;
        spec.height = 5;
        spec.width = 4;
    }
    spec.classes = scene->fails ? CLASSES - 1 : CLASSES;
    return spec;
}

/* A way from data to batches. */
struct line {
    struct cddpi_dataset data;
    struct cddpi_data_loader *loader;
    struct cddpi_model *model;
    struct cddpi_device *device;
    struct cddpi_prefetcher *prefetcher;
    cddp_sampler *sampler;
};

static int open_line(const struct scene *scene, struct cddpi_device *device, struct line *line)
{
    struct cddpi_model_spec spec = spec_of(scene, device);
    struct cddpi_data_loader_options options = {.dataset = &line->data,
                                                .transform = {.std = {1, 1, 1, 1}},
                                                .max_count = scene->max_count,
                                                .threads = scene->threads,
                                                .prefetch = 2,
                                                .device = device};

    line->device = device;
    CHECK(open_data(scene, &line->data) == CDDP_OK);
    CHECK(cddpi_data_loader_create(&options, &line->loader) == CDDP_OK);
    CHECK(cddp_sampler_create(CDDP_ORDER_RANDOM, COUNT, 3, &line->sampler) == CDDP_OK);
    CHECK(cddpi_model_create(&spec, 1, NULL, &line->model) == CDDP_OK);
    CHECK(cddpi_prefetcher_create(line->loader, line->model, device, &line->data, scene->max_count,
                                  &line->prefetcher) == CDDP_OK);
    return 0;
}

static int start_epoch(struct line *line, uint64_t epoch, uint64_t first, uint64_t step)
{
    cddpi_data_loader_cancel(line->loader);
    cddpi_prefetcher_start(line->prefetcher, step);
    CHECK(cddp_sampler_set_epoch(line->sampler, epoch) == CDDP_OK);
    CHECK(cddpi_data_loader_start(line->loader, line->sampler, epoch, first, COUNT, BATCH, 0, 1,
                                  true) == CDDP_OK);
    return 0;
}

static void close_line(struct line *line)
{
    cddpi_prefetcher_destroy(line->prefetcher);
    cddpi_data_loader_destroy(line->loader);
    cddp_sampler_destroy(line->sampler);
    cddpi_model_destroy(line->model);
    if (line->data.kind == CDDPI_DATASET_TOKENS) {
        cddpi_dataset_close(&line->data);
    }
}

/* A batch as the compute stream found it; pinned memory, which is filled when it comes to that. */
struct seen {
    unsigned char *bytes;
    size_t input, label, draws; /* of them */
    struct cddpi_micro_batch batch;
};

struct bytes {
    size_t input, label, draws;
};

static struct bytes bytes_of(const struct line *line, const struct cddpi_micro_batch *batch)
{
    size_t count = (size_t)batch->count;
    bool tokens = batch->tokens != NULL;

    return (struct bytes){count * (tokens ? CONTEXT * sizeof(int32_t) : ELEMENTS * sizeof(float)),
                          count * (tokens ? CONTEXT : 1) * sizeof(int32_t),
                          cddpi_model_draw_words(line->model, batch->count) * sizeof(uint32_t)};
}

static int keep(const struct line *line, void *to, const void *from, size_t bytes)
{
    CHECK(bytes == 0 || from != NULL);
    CHECK(bytes == 0 ||
          line->device->ops->copy(line->device, CDDPI_STREAM_COMPUTE, to, from, bytes) == CDDP_OK);
    return 0;
}

/* Put the uses of a batch into the compute stream. */
static int use(const struct line *line, const struct cddpi_micro_batch *batch, struct seen *out)
{
    const void *input = batch->tokens != NULL ? (const void *)batch->tokens : batch->input;
    struct bytes bytes = bytes_of(line, batch);
    void *memory = NULL;

    CHECK(line->device->ops->pin(line->device, bytes.input + bytes.label + bytes.draws + 1,
                                 &memory) == CDDP_OK);
    *out = (struct seen){memory, bytes.input, bytes.label, bytes.draws, *batch};
    CHECK(keep(line, out->bytes, input, bytes.input) == 0);
    CHECK(keep(line, out->bytes + bytes.input, batch->label, bytes.label) == 0);
    return keep(line, out->bytes + bytes.input + bytes.label, batch->draws, bytes.draws);
}

/* The same from the processor's batch. */
static int expect(const struct line *here, const struct line *there, const struct seen *seen)
{
    const struct cddpi_micro_batch *batch = &seen->batch;
    struct cddpi_micro_batch expected = {.last = false};
    uint32_t draws[4096];
    const void *input;

    CHECK(cddpi_prefetcher_next(here->prefetcher, &expected) == CDDP_OK);
    CHECK(expected.label != NULL);
    input = expected.tokens != NULL ? (const void *)expected.tokens : expected.input;
    CHECK(batch->count == expected.count);
    CHECK(batch->step == expected.step);
    CHECK(batch->share == expected.share && batch->last == expected.last);
    CHECK(memcmp(seen->bytes, input, seen->input) == 0);
    CHECK(memcmp(seen->bytes + seen->input, expected.label, seen->label) == 0);
    CHECK(seen->draws <= sizeof draws);
    cddpi_model_draws(there->model, expected.step, expected.sample_ids, expected.count, draws);
    CHECK(memcmp(seen->bytes + seen->input + seen->label, draws, seen->draws) == 0);
    CHECK(cddpi_prefetcher_release(here->prefetcher) == CDDP_OK);
    return 0;
}

/* All batches of an epoch from position @p first on; they are read when all is in the streams. */
static int feed_epoch(struct line *here, struct line *there, uint64_t epoch, uint64_t first,
                      uint64_t step)
{
    static struct seen seen[MOST_PIECES];
    struct cddpi_micro_batch batch;
    int count = 0;

    CHECK(start_epoch(here, epoch, first, step) == 0);
    CHECK(start_epoch(there, epoch, first, step) == 0);
    for (;;) {
        CHECK(cddpi_prefetcher_next(there->prefetcher, &batch) == CDDP_OK);
        if (batch.label == NULL) {
            break;
        }
        CHECK(count < MOST_PIECES);
        for (int i = 0; i < batch.count; i++) { /* the processor's, for who logs them */
            CHECK(batch.sample_ids[i] < COUNT);
        }
        CHECK(use(there, &batch, &seen[count++]) == 0);
        CHECK(cddpi_prefetcher_release(there->prefetcher) == CDDP_OK);
    }
    CHECK(cddpi_prefetcher_next(there->prefetcher, &batch) == CDDP_OK && batch.label == NULL);
    CHECK(there->device->ops->finish(there->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (int i = 0; i < count; i++) {
        CHECK(expect(here, there, &seen[i]) == 0);
        there->device->ops->unpin(there->device, seen[i].bytes);
    }
    CHECK(cddpi_prefetcher_next(here->prefetcher, &batch) == CDDP_OK && batch.label == NULL);
    return 0;
}

static int feed_all(const struct scene *scene)
{
    struct line here = {.prefetcher = NULL};
    struct line there = {.prefetcher = NULL};
    struct cddpi_device *device = open_cuda();

    CHECK(device != NULL);
    CHECK(open_line(scene, cddpi_device_cpu(), &here) == 0);
    CHECK(open_line(scene, device, &there) == 0);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        CHECK(feed_epoch(&here, &there, epoch, 0, epoch * BATCHES) == 0);
    }
    close_line(&here);
    close_line(&there);
    cddpi_device_close(device);
    return 0;
}

static int whole_batches(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = BATCH, .threads = 1};

    (void)rank, (void)world_size, (void)argument;
    return feed_all(&scene);
}

static void batches_arrive_as_they_were_made_in_every_order_of_streams(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(whole_batches, SEEDS), 0);
}

static int pieces_with_dropout(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = 4, .threads = 0, .dropout = 0.5};

    (void)rank, (void)world_size, (void)argument;
    return feed_all(&scene);
}

static void micro_batches_of_a_step_share_its_number_and_have_draws_of_their_own(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(pieces_with_dropout, SEEDS), 0);
}

static int sequences_of_tokens(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = 3, .threads = 2, .tokens = true, .dropout = 0.25};

    (void)rank, (void)world_size, (void)argument;
    return feed_all(&scene);
}

static void tokens_and_what_follows_them_arrive_too(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(sequences_of_tokens, SEEDS), 0);
}

/* An epoch is left while a batch that nobody took is on its way. */
static int leave_and_begin_elsewhere(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = BATCH, .threads = 1, .dropout = 0.5};
    struct line here = {.prefetcher = NULL};
    struct line there = {.prefetcher = NULL};
    struct cddpi_device *device = open_cuda();
    struct cddpi_micro_batch batch;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(open_line(&scene, cddpi_device_cpu(), &here) == 0);
    CHECK(open_line(&scene, device, &there) == 0);
    for (int batches = 1; batches < 4; batches++) {
        CHECK(start_epoch(&there, 0, 0, 0) == 0);
        for (int i = 0; i < batches; i++) {
            CHECK(cddpi_prefetcher_next(there.prefetcher, &batch) == CDDP_OK);
            CHECK(cddpi_prefetcher_release(there.prefetcher) == CDDP_OK);
        }
        CHECK(feed_epoch(&here, &there, 1, 2 * BATCH, 8) == 0);
    }
    CHECK(start_epoch(&there, 0, 0, 0) == 0);
    CHECK(cddpi_prefetcher_next(there.prefetcher, &batch) == CDDP_OK);
    CHECK(cddpi_prefetcher_release(there.prefetcher) == CDDP_OK);
    close_line(&here);
    close_line(&there); /* with a copy under way */
    cddpi_device_close(device);
    return 0;
}

static void an_epoch_can_be_left_and_another_place_begun(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(orders_that_fail(leave_and_begin_elsewhere, SEEDS), 0);
}

static int feed_bad_labels(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = BATCH, .fails = true};
    struct line there = {.prefetcher = NULL};
    struct cddpi_device *device = open_cuda();
    struct cddpi_micro_batch batch = {.last = false};
    cddp_status status = CDDP_OK;
    int batches = 0;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(open_line(&scene, device, &there) == 0);
    CHECK(start_epoch(&there, 0, 0, 0) == 0);
    while (status == CDDP_OK && batches <= BATCHES) {
        status = cddpi_prefetcher_next(there.prefetcher, &batch);
        if (status == CDDP_OK) {
            CHECK(batch.label != NULL);
            batches++;
            status = cddpi_prefetcher_release(there.prefetcher);
        }
    }
    CHECK(failure_is(status, CDDP_ERR_ARGUMENT, -1, -1, ""));
    CHECK(last_error_has("is 9, outside the 9 classes"));
    close_line(&there);
    cddpi_device_close(device);
    return 0;
}

static void a_label_that_the_model_lacks_is_found_before_the_device_sees_it(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(feed_bad_labels, NULL, NULL), 0);
}

static int need_more_memory(int rank, int world_size, void *argument)
{
    const struct scene scene = {.max_count = BATCH, .dropout = 0.5};
    struct line there = {.prefetcher = NULL};
    struct cddpi_device *device = open_cuda();
    struct cddpi_model_spec spec = spec_of(&scene, device);
    struct cddpi_prefetcher *prefetcher = NULL;
    void *memory = NULL;
    int max_count = 1 << 20; /* 160 MiB of images */

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(open_data(&scene, &there.data) == CDDP_OK);
    CHECK(cddpi_model_create(&spec, 1, NULL, &there.model) == CDDP_OK);
    CHECK_FAILS(
        cddpi_prefetcher_create(NULL, there.model, device, &there.data, max_count, &prefetcher),
        CDDP_ERR_NO_MEMORY, "a batch's input");
    CHECK(prefetcher == NULL);
    CHECK(device->ops->alloc(device, 1 << 20, "what is left", &memory) == CDDP_OK);
    device->ops->release(device, memory);
    cddpi_model_destroy(there.model);
    cddpi_device_close(device);
    return 0;
}

static void a_batch_that_does_not_fit_is_named(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(need_more_memory, NULL, WITH("CDDP_FAKE_CUDA_MEMORY=100000000")),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_arrive_as_they_were_made_in_every_order_of_streams),
        cmocka_unit_test(micro_batches_of_a_step_share_its_number_and_have_draws_of_their_own),
        cmocka_unit_test(tokens_and_what_follows_them_arrive_too),
        cmocka_unit_test(an_epoch_can_be_left_and_another_place_begun),
        cmocka_unit_test(a_label_that_the_model_lacks_is_found_before_the_device_sees_it),
        cmocka_unit_test(a_batch_that_does_not_fit_is_named),
    };

    return cmocka_run_group_tests(tests, make_images, NULL);
}
