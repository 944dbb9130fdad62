/* test_weights_sizes.c - a gpt2 with model.weights takes the sizes of the file, and a key that says
 * otherwise is an error. */
#include "support/folder.h"
#include "support/weights.h"

#include <sys/wait.h>

static const char conf[] = "model = { type = \"gpt2\"; weights = \"hf\"; };\n"
                           "data = { type = \"synthetic\"; samples = 16; };\n"
                           "train = { epochs = 1; batch_size = 8; run_dir = \"run\"; };\n"
                           "optimizer = { type = \"adamw\"; lr = 0.001; };\n";

/* Run @p program of the build with @p words in the folder: what it said. */
static const char *run_program(const char *program, const char *words, int *out_status)
{
    static char text[16384];
    char command[9000];
    FILE *pipe;
    size_t bytes;

    snprintf(command, sizeof command, "cd '%s' && '%s'/src/%s %s 2>&1 </dev/null", folder,
             getenv("CDDP_TEST_BUILD"), program, words);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    bytes = fread(text, 1, sizeof text - 1, pipe);
    text[bytes] = '\0';
    *out_status = WEXITSTATUS(pclose(pipe));
    return text;
}

static void expect(const char *words, int status, const char *expected)
{
    int ended = -1;
    const char *said = run_program("cddp-train", words, &ended);

    if (ended != status || strstr(said, expected) == NULL) {
        fail_msg("%s: status %d, and not \"%s\" but: %s", words, ended, expected, said);
    }
}

/* A folder hf as Hugging Face has it: model.safetensors and config.json. */
static void make_weights(void)
{
    int status = -1;
    const char *said;

    write_cddp("two");
    said = run_program("cddp-convert", "--to hf --heads 3 two hf", &status);
    if (status != 0) {
        fail_msg("cddp-convert: %s", said);
    }
    support_write_file(in_folder("train.conf"), conf, sizeof conf - 1);
}

static void assert_saved(const char *line)
{
    size_t bytes;
    char *text = (char *)read_all("run/train.conf", &bytes);

    text[bytes] = '\0';
    if (strstr(text, line) == NULL) {
        fail_msg("run/train.conf lacks '%s': %s", line, text);
    }
    free(text);
}

static void a_model_takes_the_sizes_of_its_weights(void **state)
{
    (void)state;
    make_weights();
    expect("train.conf", 0, "");
    assert_saved("blocks = 2;");
    assert_saved("heads = 3;");
    assert_saved("embed = 12;");
    assert_saved("vocab = 131;");
    assert_saved("context = 5;");
    expect("train.conf model.context=4 model.blocks=2 model.vocab=131 train.run_dir=again", 0, "");
    /* the checkpoint of a run whose weights are gone */
    assert_int_equal(rename(in_folder("hf"), in_folder("gone")), 0);
    expect("--generate '1 2' run/train.conf data.type=tokens data.train=x data.test=x "
           "train.generate_tokens=1",
           0, "1 2 ");
    expect("train.conf", 1, "model.weights: open hf: ");
}

static void a_key_that_disagrees_with_the_weights_is_named_with_both_sizes(void **state)
{
    static const char *const cases[][2] = {
        {"model.blocks=3", "argument model.blocks=3: model.blocks: 3 blocks, but the weights in hf "
                           "(model.weights) have 2: leave model.blocks out to take theirs"},
        {"model.heads=4", "model.heads: 4 heads, but the weights in hf (model.weights) have 3"},
        {"model.embed=24", "model.embed: 24 features of a token, but the weights in hf "
                           "(model.weights) have 12"},
        {"model.vocab=130", "model.vocab: 130 tokens in the vocabulary, but the weights in hf "
                            "(model.weights) have 131"},
        {"model.context=6", "model.context: 6 positions, but the weights in hf (model.weights) "
                            "have only 5"},
        {"model.size=124M", "model.size: 12 blocks, but the weights in hf (model.weights) have 2: "
                            "leave model.size out"},
        {"data.type=text data.train=train.conf", "hf: model.vocab: 131, "},
    };

    (void)state;
    make_weights();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];

        snprintf(words, sizeof words, "train.conf %s", cases[i][0]);
        expect(words, 2, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_model_takes_the_sizes_of_its_weights),
        IN_FOLDER(a_key_that_disagrees_with_the_weights_is_named_with_both_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
