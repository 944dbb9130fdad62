/* train.c - runs the real cddp-train for tests: small data that can be learned, ranks as processes
 * that meet in a file store, and reading what they wrote. */
#include "support/train.h"

char *work;

static int jobs; /* how many were started, to name them */

char *in_work(const char *format, ...)
{
    static _Thread_local char buffers[8][4400];
    static _Thread_local int next;
    char *out = buffers[next++ % 8];
    int used = snprintf(out, sizeof buffers[0], "%s/", work);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(out + used, sizeof buffers[0] - (size_t)used, format, arguments);
    va_end(arguments);
    return out;
}

char *argument(const char *format, ...)
{
    static char *all[4000];
    static size_t count;
    va_list arguments;

    assert_true(count < sizeof all / sizeof all[0]);
    all[count] = malloc(4500);
    va_start(arguments, format);
    vsnprintf(all[count], 4500, format, arguments);
    va_end(arguments);
    return all[count++];
}

char *run_dir_argument(const char *name)
{
    return argument("train.run_dir=%s", in_work("%s", name));
}

char *get_file(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "re");
    size_t room = 1 << 20;
    char *text = calloc(1, room + 1);
    size_t bytes;

    if (file == NULL) {
        free(text);
        return NULL;
    }
    while ((bytes = fread(text, 1, room, file)) == room) {
        room *= 2;
        text = realloc(text, room + 1);
        rewind(file);
    }
    text[bytes] = '\0';
    fclose(file);
    if (out_bytes != NULL) {
        *out_bytes = bytes;
    }
    return text;
}

static void put_big_endian(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* Write images of noise with one bright quarter, which is the class. */
static void write_idx(const char *name, int count, uint32_t seed)
{
    size_t pixels = SIDE * SIDE;
    uint8_t *images = calloc(1, 16 + (size_t)count * pixels);
    uint8_t *labels = calloc(1, 8 + (size_t)count);

    put_big_endian(images, 0x00000803);
    put_big_endian(images + 4, (uint32_t)count);
    put_big_endian(images + 8, SIDE);
    put_big_endian(images + 12, SIDE);
    put_big_endian(labels, 0x00000801);
    put_big_endian(labels + 4, (uint32_t)count);
    for (int i = 0; i < count; i++) {
        uint8_t *image = images + 16 + (size_t)i * pixels;
        int label;

        seed = seed * 1664525u + 1013904223u;
        label = (int)(seed >> 24) % CLASSES;
        labels[8 + i] = (uint8_t)label;
        for (int y = 0; y < SIDE; y++) {
            for (int x = 0; x < SIDE; x++) {
                int quarter = 2 * (y / (SIDE / 2)) + x / (SIDE / 2);

                seed = seed * 1664525u + 1013904223u;
                image[y * SIDE + x] = (uint8_t)((seed >> 24) % 150 + (quarter == label ? 60 : 0));
            }
        }
    }
    support_write_file(in_work("%s-images", name), images, 16 + (size_t)count * pixels);
    support_write_file(in_work("%s-labels", name), labels, 8 + (size_t)count);
    free(images);
    free(labels);
}

int make_work(void **state)
{
    char text[20000];
    int used;

    (void)state;
    work = support_mkdtemp();
    if (work == NULL) {
        return 1;
    }
    write_idx("train", TRAIN_SAMPLES, 1);
    write_idx("test", TEST_SAMPLES, 2);
    used = snprintf(text, sizeof text,
                    "data = { train_images = \"%s\"; train_labels = \"%s\";"
                    " test_images = \"%s\"; test_labels = \"%s\"; mean = 0.3; std = 0.2; };\n"
                    "model = { hidden = [16]; };\n"
                    "train = { epochs = 3; batch_size = 64; eval_batch_size = 50; log_steps = 1;"
                    " checkpoint_seconds = 0.0; };\n"
                    "optimizer = { lr = 0.1; schedule = { type = \"cosine\"; }; };\n",
                    in_work("train-images"), in_work("train-labels"), in_work("test-images"),
                    in_work("test-labels"));
    support_write_file(in_work("small.conf"), text, (size_t)used);
    return 0;
}

int make_text_work(void **state)
{
    static const char *const words[] = {"abcd ", "efgh ", "ijkl ", "mnop "};
    char *text;
    size_t used = 0;
    uint32_t random = 1;
    char conf[6000];
    int bytes;

    if (make_work(state) != 0) {
        return 1;
    }
    text = malloc(20000);
    while (used < 12000) {
        random = random * 1664525u + 1013904223u;
        memcpy(text + used, words[random >> 30], 5);
        used += 5;
    }
    support_write_file(in_work("words.txt"), text, used);
    free(text);
    bytes = snprintf(
        conf, sizeof conf,
        "data = { type = \"text\"; train = \"%s\"; };\n"
        "model = { type = \"gpt2\"; blocks = 2; heads = 2; embed = 16; context = 15; };\n"
        "train = { epochs = 1; batch_size = 32; eval_batch_size = 32; log_steps = 1;"
        " checkpoint_seconds = 0.0; generate_tokens = 20; };\n"
        "optimizer = { type = \"adamw\"; lr = 0.01; weight_decay = 0.1; };\n",
        in_work("words.txt"));
    support_write_file(in_work("text.conf"), conf, (size_t)bytes);
    return 0;
}

int remove_work(void **state)
{
    (void)state;
    support_rmdir(work);
    return 0;
}

/* Runs in the child: become rank @p rank. */
static void become(const struct run_options *options, const struct run *run, int rank)
{
    const char *words[32] = {NULL};
    char program[4200];
    char store[4500];
    char job[64];
    int count = 0;

    snprintf(program, sizeof program, "%s/src/cddp-train", getenv("CDDP_TEST_BUILD"));
    snprintf(store, sizeof store, "file://%s", in_work("store-%d", run->number));
    snprintf(job, sizeof job, "test-%d-%d", (int)getppid(), run->number);
    support_setenv_number("CDDP_RANK", rank);
    support_setenv_number("CDDP_WORLD_SIZE", options->ranks);
    support_setenv_number("CDDP_LOCAL_RANK", rank);
    support_setenv_number("CDDP_LOCAL_WORLD_SIZE", options->ranks);
    support_setenv_number("CDDP_TIMEOUT_MS",
                          options->timeout_ms > 0 ? options->timeout_ms : SUPPORT_TIMEOUT_MS);
    support_setenv_number("CDDP_THREADS", 1);
    setenv("CDDP_STORE", store, 1);
    setenv("CDDP_JOB", job, 1);
    setenv("CDDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    setenv("CDDP_PROGRESS", "plain", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    unsetenv("CDDP_RUN_DIR");
    if (options->hosts != NULL) {
        support_setenv_number("CDDP_HOST_ID", options->hosts[rank]);
        setenv("CDDP_CARRIER", "tcp", 1);
    }
    if (options->odd_setting != NULL && rank == options->ranks - 1) {
        putenv(strdup(options->odd_setting));
    }
    if (options->file_bytes > 0) {
        struct rlimit limit = {options->file_bytes, options->file_bytes};

        setrlimit(RLIMIT_FSIZE, &limit);
    }
    words[count++] = program;
    words[count++] = in_work("%s", options->conf != NULL ? options->conf : "small.conf");
    for (int i = 0; options->arguments[i] != NULL; i++) {
        words[count++] = options->arguments[i];
    }
    if (options->odd_argument != NULL && rank == options->ranks - 1) {
        words[count++] = options->odd_argument;
    }
    if (freopen(in_work("out-%d-%d", run->number, rank), "w", stdout) == NULL ||
        freopen(in_work("err-%d-%d", run->number, rank), "w", stderr) == NULL) {
        _exit(120);
    }
    execv(program, (char *const *)words);
    _exit(121);
}

struct run start(const struct run_options *options)
{
    struct run run = {.ranks = options->ranks, .number = jobs++};

    fflush(NULL);
    for (int rank = 0; rank < options->ranks; rank++) {
        run.pids[rank] = fork();
        if (run.pids[rank] == 0) {
            become(options, &run, rank);
        }
    }
    return run;
}

int finish(struct run *run)
{
    int left = run->ranks;
    int failed = 0;

    for (long waited = 0; left > 0; waited += 2) {
        for (int rank = 0; rank < run->ranks; rank++) {
            if (run->pids[rank] > 0 &&
                waitpid(run->pids[rank], &run->statuses[rank], WNOHANG) == run->pids[rank]) {
                run->pids[rank] = 0;
                left--;
                failed += run->statuses[rank] != 0;
            } else if (run->pids[rank] > 0 && waited == SUPPORT_LIMIT_S * 1000L) {
                fprintf(stderr, "rank %d of job %d did not end in %d s\n", rank, run->number,
                        SUPPORT_LIMIT_S);
                kill(run->pids[rank], SIGKILL);
            }
        }
        support_sleep_ms(2);
    }
    return failed;
}

char *output(const struct run *run, const char *stream, int rank)
{
    char *text = get_file(in_work("%s-%d-%d", stream, run->number, rank), NULL);

    assert_non_null(text);
    return text;
}

void show(const struct run *run)
{
    for (int rank = 0; rank < run->ranks; rank++) {
        char *text = output(run, "err", rank);

        fprintf(stderr, "--- job %d rank %d, status %d:\n%s", run->number, rank,
                run->statuses[rank], text);
        free(text);
    }
}

struct run run_well(const struct run_options *options)
{
    struct run run = start(options);

    if (finish(&run) != 0) {
        show(&run);
        fail_msg("job %d failed", run.number);
    }
    return run;
}

void finish_stopped(struct run *run)
{
    (void)finish(run);
    for (int rank = 0; rank < run->ranks; rank++) {
        if (!WIFEXITED(run->statuses[rank]) || WEXITSTATUS(run->statuses[rank]) != 3) {
            show(run);
            fail_msg("rank %d of job %d: status %d", rank, run->number, run->statuses[rank]);
        }
    }
}

struct run run_badly(const struct run_options *options)
{
    struct run run = start(options);

    (void)finish(&run);
    for (int rank = 0; rank < run.ranks; rank++) {
        if (!WIFEXITED(run.statuses[rank]) || WEXITSTATUS(run.statuses[rank]) == 0) {
            show(&run);
            fail_msg("rank %d of job %d: status %d", rank, run.number, run.statuses[rank]);
        }
    }
    return run;
}

void assert_says(const struct run *run, const char *stream, int rank, const char *words)
{
    char *text = output(run, stream, rank);

    if (strstr(text, words) == NULL) {
        show(run);
        fail_msg("%s of rank %d lacks '%s': %s", stream, rank, words, text);
    }
    free(text);
}

double metric(const char *run_dir, uint64_t step, const char *name)
{
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    double value = NAN;

    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        json_t *number = json_object_get(object, name);

        if (number != NULL && json_is_number(number) && isnan(value) &&
            (uint64_t)json_integer_value(json_object_get(object, "step")) == step) {
            value = json_number_value(number);
        }
        json_decref(object);
        if (strchr(line, '\n') == NULL) {
            break;
        }
    }
    free(text);
    return value;
}

void wait_for_steps(const char *run_dir)
{
    for (int waited = 0; isnan(metric(run_dir, 1, "loss")); waited += 10) {
        assert_true(waited < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(10);
    }
}

void assert_same_file(const char *a, const char *b)
{
    size_t a_bytes = 0;
    size_t b_bytes = 0;
    size_t same = 0;
    char *a_text = get_file(a, &a_bytes);
    char *b_text = get_file(b, &b_bytes);

    if (a_text == NULL || b_text == NULL) {
        fail_msg("there is no %s to compare with %s", a_text == NULL ? a : b,
                 a_text == NULL ? b : a);
    } else {
        while (same < a_bytes && same < b_bytes && a_text[same] == b_text[same]) {
            same++;
        }
        if (same < a_bytes || same < b_bytes) {
            fail_msg("%s (%zu bytes) and %s (%zu bytes) differ from byte %zu on", a, a_bytes, b,
                     b_bytes, same);
        }
    }
    free(a_text);
    free(b_text);
}

cddp_safetensors *open_weights(const char *run_dir, int step)
{
    cddp_safetensors *file = NULL;

    assert_int_equal(
        cddp_safetensors_open(in_work("%s/checkpoints/step-%08d/model.safetensors", run_dir, step),
                              &file),
        CDDP_OK);
    return file;
}

void assert_same_checkpoint(const char *run_a, const char *run_b, int step)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};

    for (int i = 0; i < 3; i++) {
        assert_same_file(in_work("%s/checkpoints/step-%08d/%s", run_a, step, names[i]),
                         in_work("%s/checkpoints/step-%08d/%s", run_b, step, names[i]));
    }
}

char *written(const char *run_dir, int64_t step)
{
    char *metrics = get_file(in_work("%s/metrics.jsonl", run_dir), NULL);
    char *found = NULL;
    char *rest = NULL;

    assert_non_null(metrics);
    for (char *line = strtok_r(metrics, "\n", &rest); line != NULL && found == NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        const char *kind = json_string_value(json_object_get(object, "kind"));

        if (kind != NULL && strcmp(kind, "sample") == 0 &&
            json_integer_value(json_object_get(object, "step")) == step) {
            found = strdup(json_string_value(json_object_get(object, "text")));
        }
        json_decref(object);
    }
    free(metrics);
    return found;
}

int count_samples(const char *log, int ranks, int epochs, int *counts)
{
    int lines = 0;

    for (int rank = 0; rank < ranks; rank++) {
        char *text = get_file(in_work("%s.%d", log, rank), NULL);
        char *rest = NULL;

        if (text == NULL) {
            continue; /* this rank was part of other runs only */
        }
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            char *at = line;
            long epoch;

            (void)strtol(at, &at, 10);
            epoch = strtol(at, &at, 10);
            assert_in_range(epoch, 0, epochs - 1);
            while (*at != '\0') {
                long sample = strtol(at, &at, 10);

                assert_in_range(sample, 0, TRAIN_SAMPLES - 1);
                counts[epoch * TRAIN_SAMPLES + sample]++;
            }
            lines++;
        }
        free(text);
    }
    return lines;
}
