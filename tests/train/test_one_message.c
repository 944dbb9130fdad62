/* test_one_message.c - one mistake gives one message: what cddp-run with four ranks prints about a
 * configuration that cannot be trained. It names the cause and no rank, since all ranks would say
 * the same. */
#include "support/folder.h"
#include "support/weights.h"

static const char conf[] =
    "model = { type = \"mlp\"; hidden = [16]; };\n"
    "data = { type = \"synthetic\"; samples = 64; image = [1, 8, 8]; classes = 4; };\n"
    "train = { epochs = 1; batch_size = 32; };\n";

#define GPT2 "train.conf model.type=gpt2 model.vocab=131 model.context=4 "

/* Run @p program of the build with @p words in the folder: what it said. */
static const char *run_program(const char *program, const char *words, int *out_status)
{
    static char text[8192];
    char command[9000];
    FILE *pipe;
    size_t bytes;

    snprintf(command, sizeof command, "cd '%s' && '%s'/%s %s 2>&1 </dev/null", folder,
             getenv("CDDP_TEST_BUILD"), program, words);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    bytes = fread(text, 1, sizeof text - 1, pipe);
    text[bytes] = '\0';
    *out_status = WEXITSTATUS(pclose(pipe));
    return text;
}

static void one_mistake_makes_one_message(void **state)
{
    static const char *const cases[][2] = {
        {"none.conf", "none.conf: "},
        {"syntax.conf", "syntax.conf:1: "},
        {"twice.conf", "twice.conf:2: "},
        {"train.conf model.hiden=[3]", "argument model.hiden=[3]: "},
        {"train.conf train.epochs=0", "argument train.epochs=0: train.epochs: "},
        {"train.conf train.epochs=x", "argument train.epochs=x: "},
        {"train.conf train.batch_size=2", "argument train.batch_size=2: train.batch_size: "},
        {"train.conf model.type=gpt2", "train.conf: model.vocab (its default): "},
        {GPT2, "gpt2: blocks is 0; 1 to 256 are possible"},
        {"train.conf data.type=idx data.train_images=/a data.train_labels=/b data.test_images=/c "
         "data.test_labels=/d",
         "argument data.train_images=/a: data.train_images: /a: "},
        {"train.conf data.type=text model.type=gpt2 model.context=4 model.size=124M data.train=no*",
         "argument data.train=no*: data.train: no*: "},
        {"train.conf model.weights=lfs", "argument model.weights=lfs: model.weights: lfs: "},
        {GPT2 "model.size=124M model.weights=lfs",
         "argument model.weights=lfs: model.weights: lfs"},
        {GPT2 "model.size=124M model.weights=.", "argument model.weights=.: model.weights: .: "},
        {GPT2 "model.blocks=3 model.heads=3 model.embed=12 model.weights=two",
         "argument model.blocks=3: model.blocks: "},
        {GPT2 "model.weights=two",
         "model.heads (its default): must be given: the weights in two (model.weights) do not tell "
         "how many heads they were made with"},
    };

    (void)state;
    support_write_file(in_folder("train.conf"), conf, sizeof conf - 1);
    support_write_file(in_folder("syntax.conf"), "model = { hidden = [1 2]; };\n", 29);
    support_write_file(in_folder("twice.conf"), "model = { };\nmodel = { };\n", 26);
    support_write_file(in_folder("lfs"), "version https://git-lfs.github.com/spec/v1\n", 43);
    write_cddp("two");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        const char *said = run_program("launcher/cddp-run --nproc 4", cases[i][0], &status);
        const char *program = strstr(said, "cddp-");

        assert_true(status == 1 || status == 2);
        if (strstr(said, cases[i][1]) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i][0], said, cases[i][1]);
        }
        if (program != said || strstr(said, "\ncddp-") != NULL || strstr(said, "rank 0:") != NULL ||
            strstr(said, "ranks said") != NULL) {
            fail_msg("%s: not one message: %s", cases[i][0], said);
        }
    }
}

/* What cddp-run says of it, a program that is started without it says, too. */
static void a_lone_program_names_the_key_and_the_source_of_a_missing_file(void **state)
{
    static const char *const cases[][2] = {
        {"data.type=idx data.train_images=/a data.train_labels=/b data.test_images=/c "
         "data.test_labels=/d",
         "data.train_images: /a: "},
        {"data.type=idx data.train_images=/usr/share/datasets/fashion-mnist/none "
         "data.train_labels=/b data.test_images=/c data.test_labels=/d",
         "data.train_images: /usr/share/datasets/fashion-mnist/none: No such file or directory: "
         "apt "
         "install dataset-fashion-mnist brings it"},
        {"data.type=text model.type=gpt2 model.context=4 model.size=124M data.train=data/kjv.txt",
         "data.train: data/kjv.txt: there is no such file: scripts/quickstart gpt2 makes it"},
        {"data.type=text model.type=gpt2 model.context=4 model.size=124M data.train=no*",
         "data.train: no*: there is no such file (names are relative to /"},
        {"data.type=image_folder data.train=images/train data.test=images/test",
         "data.train: images/train: No such file or directory: scripts/make_image_folder"},
    };

    (void)state;
    support_write_file(in_folder("train.conf"), conf, sizeof conf - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        const char *said;
        int status;

        snprintf(words, sizeof words, "train.conf %s", cases[i][0]);
        said = run_program("src/cddp-train", words, &status);
        assert_true(status == 1 || status == 2);
        if (strstr(said, cases[i][1]) == NULL ||
            strstr(said, ": rank 0:") != said + strlen("cddp-train") ||
            strstr(said + strlen("cddp-train: "), ": rank 0:") != NULL ||
            strchr(said, '\n') != said + strlen(said) - 1) {
            fail_msg("%s: \"%s\" does not say \"%s\", alone", words, said, cases[i][1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(one_mistake_makes_one_message),
        IN_FOLDER(a_lone_program_names_the_key_and_the_source_of_a_missing_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
