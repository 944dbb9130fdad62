/* same_bits.c - small configurations of all kinds of models with train.micro_batch, and the
 * comparison of what their runs leave behind. */
#include "support/same_bits.h"

#define SGD "lr = 0.05; momentum = 0.9; weight_decay = 0.001;"
#define ADAMW "type = \"adamw\"; lr = 0.003; weight_decay = 0.1;"
#define LENET                                                                                      \
    "type = \"layers\"; layers = ("                                                                \
    "{ type = \"conv2d\"; units = 6; kernel = 5; padding = 2; }, { type = \"relu\"; },"            \
    "{ type = \"max_pool\"; kernel = 2; }, { type = \"conv2d\"; units = 16; kernel = 5; },"        \
    "{ type = \"relu\"; }, { type = \"max_pool\"; kernel = 2; }, { type = \"flatten\"; },"         \
    "{ type = \"linear\"; units = 30; }, { type = \"relu\"; }, { type = \"linear\"; units = 4; "   \
    "});"

/* As AlexNet's: groups, normalisation over channels, pools that overlap. */
#define TOWERS                                                                                     \
    "type = \"layers\"; layers = ("                                                                \
    "{ type = \"conv2d\"; units = 8; kernel = 5; stride = 2; }, { type = \"relu\"; },"             \
    "{ type = \"local_response_norm\"; }, { type = \"max_pool\"; kernel = 3; stride = 2; },"       \
    "{ type = \"conv2d\"; units = 16; kernel = 3; padding = 1; groups = 2; }, { type = \"relu\"; " \
    "},"                                                                                           \
    "{ type = \"flatten\"; }, { type = \"dropout\"; probability = 0.5; },"                         \
    "{ type = \"linear\"; units = 30; }, { type = \"relu\"; }, { type = \"linear\"; units = 4; "   \
    "});"

#define NORMS                                                                                      \
    "type = \"layers\"; layers = ("                                                                \
    "{ type = \"conv2d\"; units = 8; kernel = 3; padding = 1; bias = false; },"                    \
    "{ type = \"batch_norm\"; }, { type = \"relu\"; }, { type = \"max_pool\"; kernel = 2; },"      \
    "{ type = \"flatten\"; }, { type = \"linear\"; units = 20; }, { type = \"batch_norm\"; },"     \
    "{ type = \"relu\"; }, { type = \"dropout\"; probability = 0.25; },"                           \
    "{ type = \"linear\"; units = 4; });"

const struct same_bits_model same_bits_models[] = {
    {"mlp", "[1, 8, 8]", "hidden = [24, 20]; dropout = 0.2;", "", SGD},
    {"augmented", "idx", "hidden = [24];", "", SGD},
    {"cnn", "[1, 16, 16]", "type = \"cnn\"; dropout = 0.25;", "", ADAMW},
    {"lenet", "[1, 28, 28]", LENET, "", SGD},
    {"towers", "[3, 19, 19]", TOWERS, "", SGD},
    {"norms", "[1, 10, 10]", NORMS, "", ADAMW},
    {"resnet20", "[3, 10, 10]", "type = \"resnet20\";", "", SGD},
    {"dcgan", "[1, 32, 32]", "type = \"dcgan\"; generator_units = 4; discriminator_units = 4;", "",
     ADAMW},
    {"regression", "table", "hidden = [16]; loss = \"mse\";", "", SGD},
    {"gpt2", "text",
     "type = \"gpt2\"; blocks = 2; heads = 2; embed = 16; context = 15; dropout = 0.1;", "", ADAMW},
    {"gpt2-bf16", "text", "type = \"gpt2\"; blocks = 1; heads = 2; embed = 64; context = 16;",
     "precision = \"bf16\";", ADAMW},
    {"gpt2-recompute", "text",
     "type = \"gpt2\"; blocks = 2; heads = 2; embed = 16; context = 15; recompute = true;", "",
     ADAMW},
    {"lstm", "text", "type = \"lstm_lm\"; hidden = [20, 16]; embed = 12; context = 15;", "", ADAMW},
    {"lstm-tied", "text",
     "type = \"lstm_lm\"; hidden = [16, 16]; tied = true; context = 15; dropout = 0.2;", "", SGD},
};

const int same_bits_model_count = sizeof same_bits_models / sizeof *same_bits_models;

/* Text of words, of which nine tenths are trained on: 56 sequences of 15 and the token behind. */
static void write_text(void)
{
    static const char *const words[] = {"abcd ", "efgh ", "ijkl ", "mnop "};
    char text[1001];
    uint32_t random = 1;

    for (size_t used = 0; used + 5 < sizeof text; used += 5) {
        random = random * 1664525U + 1013904223U;
        memcpy(text + used, words[random >> 30], 5);
    }
    support_write_file(in_work("some.txt"), text, sizeof text - 1);
}

static void write_table(void)
{
    char text[4000];
    size_t used = (size_t)sprintf(text, "a,b,c,sum,difference\n");
    uint32_t random = 2;

    for (int i = 0; i < 70; i++) {
        int a = (int)((random = random * 1664525U + 1013904223U) >> 22);
        int b = (int)((random = random * 1664525U + 1013904223U) >> 22);

        used += (size_t)sprintf(text + used, "%d,%d,%s,%.3f,%.3f\n", a, b, a % 3 == 0 ? "u" : "v",
                                (a + b) / 1000.0, (a - b) / 1000.0);
    }
    support_write_file(in_work("real.csv"), text, used);
}

static const char *data_of(const struct same_bits_model *model)
{
    if (strcmp(model->data, "idx") == 0) {
        return argument("train_images = \"%s\"; train_labels = \"%s\"; test_images = \"%s\";"
                        " test_labels = \"%s\"; crop_padding = 2; flip = true;",
                        in_work("test-images"), in_work("test-labels"), in_work("test-images"),
                        in_work("test-labels"));
    }
    if (strcmp(model->data, "text") == 0) {
        return argument("type = \"text\"; train = \"%s\";", in_work("some.txt"));
    }
    return strcmp(model->data, "table") == 0
               ? argument("type = \"csv\"; train = \"%s\"; target = [\"sum\", \"difference\"];"
                          " test_fraction = 0.2; normalize = \"standard\";",
                          in_work("real.csv"))
               : argument("type = \"synthetic\"; samples = 56; classes = 4; image = %s;",
                          model->data);
}

int make_same_bits_work(void **state)
{
    if (make_work(state) != 0) {
        return 1;
    }
    write_text();
    write_table();
    for (int m = 0; m < same_bits_model_count; m++) {
        const struct same_bits_model *model = &same_bits_models[m];
        const char *conf = argument("data = { %s };\nmodel = { %s };\n"
                                    "train = { epochs = 2; batch_size = 24; micro_batch = 3;"
                                    " eval_batch_size = 20; log_steps = 1; keep = 0;"
                                    " checkpoint_seconds = 0.0; %s };\noptimizer = { %s };\n",
                                    data_of(model), model->model, model->train, model->optimizer);

        support_write_file(in_work("%s.conf", model->name), conf, strlen(conf));
    }
    return 0;
}

/* Whether the clock, the machine or the number of ranks decides this number. */
static bool may_differ(const char *name)
{
    static const char *const ends[] = {
        "ms", "_per_s", "_mib", "mfu", "slowest_rank", "_mhz", "_w", "_c", "throttled_ranks"};
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);

        if (length >= end && strcmp(name + length - end, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_about_the_job(const json_t *line)
{
    static const char *const kinds[] = {"run", "memory", "devices", "end"};
    const char *kind = json_string_value(json_object_get(line, "kind"));

    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

char *same_bits_metrics(const char *run_dir, bool only_steps)
{
    size_t bytes = 0;
    char *text = get_file(in_work("%s/metrics.jsonl", run_dir), &bytes);
    char *rest = NULL;
    char *out;
    size_t used = 0;

    assert_non_null(text);
    out = calloc(2, bytes + 1); /* written again, numbers may be longer */
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        json_t *value;
        const char *name;
        void *next;
        char *left;

        assert_non_null(object);
        json_object_foreach_safe(object, next, name, value)
        {
            if (may_differ(name)) {
                json_object_del(object, name);
            }
        }
        left = is_about_the_job(object) || (only_steps && json_object_get(object, "loss") == NULL)
                   ? NULL
                   : json_dumps(object, JSON_SORT_KEYS);
        if (left != NULL) {
            used += (size_t)sprintf(out + used, "%s\n", left);
        }
        free(left);
        json_decref(object);
    }
    free(text);
    return out;
}

int last_step(const char *run_dir)
{
    char *text = get_file(in_work("%s/checkpoints/latest", run_dir), NULL);
    int step = 0;

    assert_non_null(text);
    assert_int_equal(sscanf(text, "step-%d", &step), 1);
    free(text);
    return step;
}

static void assert_same(const char *run_a, const char *run_b, bool only_steps)
{
    char *a = same_bits_metrics(run_a, only_steps);
    char *b = same_bits_metrics(run_b, only_steps);
    size_t same = 0;

    assert_same_checkpoint(run_a, run_b, last_step(run_a));
    while (a[same] != '\0' && a[same] == b[same]) {
        same++;
    }
    while (same > 0 && a[same - 1] != '\n') {
        same--;
    }
    if (strcmp(a + same, b + same) != 0) {
        fail_msg("metrics of %s and %s: %.*s and %.*s", run_a, run_b, (int)strcspn(a + same, "\n"),
                 a + same, (int)strcspn(b + same, "\n"), b + same);
    }
    free(a);
    free(b);
}

void assert_same_files(const char *run_a, const char *run_b)
{
    assert_same(run_a, run_b, false);
}

void assert_same_end_files(const char *run_a, const char *run_b)
{
    assert_same(run_a, run_b, true);
}
