/* test_convert.c - the program cddp-convert as its user sees it: what it accepts, writes and
 * prints. */
#include "support/weights.h"

/* Run cddp-convert with @p words in the folder; its status, and what it said in @p out and @p err.
 */
static int run_convert(const char *words)
{
    char command[9000];
    int status;

    snprintf(command, sizeof command, "cd '%s' && '%s/src/cddp-convert' %s > out.txt 2> err.txt",
             folder, getenv("CDDP_TEST_BUILD"), words);
    status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_says(const char *name, const char *words)
{
    size_t bytes;
    char *text = (char *)read_all(name, &bytes);

    text[bytes] = '\0';
    if (strstr(text, words) == NULL) {
        fail_msg("%s lacks '%s': %s", name, words, text);
    }
    free(text);
}

static void assert_converts(const char *words, const char *line)
{
    if (run_convert(words) != 0) {
        size_t bytes;

        fail_msg("%s: %s", words, (char *)read_all("err.txt", &bytes));
    }
    assert_says("out.txt", line);
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void files_go_from_format_to_format(void **state)
{
    (void)state;
    write_cddp("begin.safetensors");
    assert_converts("--to cddp --heads 3 begin.safetensors a.safetensors",
                    "a.safetensors: cddp, f32, 5424 parameters: vocabulary 131, context 5, "
                    "2 blocks, embed 12, 3 heads\n");
    assert_converts("--to llmc a.safetensors a.bin", "a.bin: llmc, f32, 5424 parameters");
    assert_converts("--to hf --type bf16 a.bin half.safetensors", "half.safetensors: hf, bf16");
    assert_false(exists("config.json"));
    assert_converts("--to hf a.bin folder/hf", "folder/hf: hf, f32");
    assert_true(exists("folder/hf/config.json"));
    assert_says("folder/hf/config.json", "\"n_head\": 3");
    assert_says("folder/hf/config.json", "\"torch_dtype\": \"float32\"");
    assert_converts("--to cddp folder/hf b.safetensors", "b.safetensors: cddp, f32");
    assert_same_bytes("a.safetensors", "b.safetensors");
    assert_converts("--info half.safetensors", "half.safetensors: hf, bf16, 5424 parameters");
    assert_converts("--info begin.safetensors", "embed 12, heads unknown\n");
}

/* Hugging Face's library trains with a dropout of 0.1 where the configuration is silent. */
static void dropouts_are_written_as_they_are_known(void **state)
{
    static const char config[] =
        "\xEF\xBB\xBF{\"model_type\": \"gpt2\", \"n_embd\": 12, \"n_layer\": 2, "
        "\"n_head\": 3, \"resid_pdrop\": 0.25, \"attn_pdrop\": 0}";

    (void)state;
    write_cddp("begin");
    assert_converts("--to hf --heads 3 begin hf", "hf: hf, f32");
    assert_says("hf/config.json", "\"resid_pdrop\": 0.0,");
    assert_says("hf/config.json", "\"embd_pdrop\": 0.0,");
    assert_says("hf/config.json", "\"attn_pdrop\": 0.0");
    support_write_file(in_folder("hf/config.json"), config, sizeof config - 1);
    assert_converts("--to hf hf again", "again: hf, f32");
    assert_says("again/config.json", "\"resid_pdrop\": 0.25,");
    assert_says("again/config.json", "\"embd_pdrop\": 0.1,");
    assert_says("again/config.json", "\"attn_pdrop\": 0.0");
    assert_converts("--to hf again last", "last: hf, f32");
    assert_same_bytes("again/config.json", "last/config.json");
}

static void shards_are_converted_by_their_folder_or_index(void **state)
{
    static struct hf_file file;
    static struct hf_file part;
    FILE *index;

    (void)state;
    make_hf(&file, "transformer.");
    assert_int_equal(mkdir(in_folder("hf"), 0755), 0);
    index = fopen(in_folder("hf/model.safetensors.index.json"), "we");
    fprintf(index, "{\"weight_map\": {");
    for (int s = 0; s < 2; s++) {
        char name[64];

        part.count = 0;
        snprintf(name, sizeof name, "model-0000%d-of-00002.safetensors", s + 1);
        for (size_t i = (size_t)s; i < file.count; i += 2) {
            part.tensors[part.count++] = file.tensors[i];
            fprintf(index, "%s\"%s\": \"%s\"", i > 0 ? ", " : "", file.tensors[i].name, name);
        }
        snprintf(name, sizeof name, "hf/model-0000%d-of-00002.safetensors", s + 1);
        write_hf(&part, name, NULL);
    }
    fprintf(index, "}}");
    fclose(index);
    write_cddp("begin");
    assert_converts("--to cddp --heads 3 begin a", "a: cddp");
    assert_converts("--to cddp --heads 3 hf b", "b: cddp, f32, 5424 parameters");
    assert_converts("--to cddp --heads 3 hf/model.safetensors.index.json c", "c: cddp, f32");
    assert_same_bytes("a", "b");
    assert_same_bytes("a", "c");
    assert_converts("--info hf", "hf: hf, f32, 5424 parameters");
    assert_int_equal(unlink(in_folder("hf/model-00001-of-00002.safetensors")), 0);
    assert_int_equal(run_convert("--info hf"), 1);
    assert_says("err.txt", "the shard model-00001-of-00002.safetensors that it names, one of 2");
}

static void a_file_may_become_its_own_conversion(void **state)
{
    (void)state;
    write_cddp("same");
    assert_converts("--to llmc --heads 3 same same", "same: llmc, f32");
    assert_converts("--info same", "same: llmc, f32");
}

/* A checkpoint as the trainer leaves it, in DIR/run/checkpoints. */
static void write_checkpoint(uint64_t step, float first)
{
    static struct params params;
    cddp_tensor tensors[TENSORS];
    cddp_snapshot snapshot = {sizeof snapshot, .step = step, .state_json = "{\"heads\": 3}"};

    make_params(&params, &small, true);
    params.data[0][0] = first;
    assert_int_equal(cddp_tensors_of(params.tensors, TENSORS, tensors), CDDP_OK);
    snapshot.model = tensors;
    snapshot.model_count = TENSORS;
    assert_int_equal(cddp_snapshot_write(in_folder("run/checkpoints"), &snapshot, NULL, NULL),
                     CDDP_OK);
}

static void a_run_gives_its_newest_whole_checkpoint(void **state)
{
    static const char *const inputs[] = {"run", "run/checkpoints", "run/checkpoints/step-00000002"};
    static struct params params;

    (void)state;
    write_checkpoint(1, 1.0f);
    write_checkpoint(2, 2.0f);
    for (int i = 0; i < 3; i++) {
        char words[256];

        snprintf(words, sizeof words, "--to llmc %s out.bin", inputs[i]);
        assert_converts(words, "out.bin: llmc, f32, 5424 parameters");
        assert_says("out.txt", "3 heads");
        make_params(&params, &small, false);
        assert_int_equal(cddpi_weights_load(in_folder("out.bin"), 3, params.tensors, params.count),
                         CDDP_OK);
        assert_true(params.data[0][0] == 2.0f);
    }
    /* of the optimizer, nothing is read */
    support_write_file(in_folder("run/checkpoints/step-00000002/optimizer.safetensors"), "", 0);
    assert_converts("--to hf run out", "3 heads");
    assert_says("err.txt", "cddp-convert: reading run/checkpoints/step-00000002\n");
    support_write_file(in_folder("run/checkpoints/step-00000002/model.safetensors"), "", 0);
    assert_converts("--to hf run out", "3 heads");
    assert_says("err.txt", "step-00000002/model.safetensors: 0 bytes, but");
    assert_says("err.txt", "cddp-convert: reading run/checkpoints/step-00000001\n");
}

static void heads_that_nothing_tells_are_asked_for_or_assumed(void **state)
{
    static struct params params;
    struct cddpi_gpt2_shape wide = {.vocab = 8, .context = 2, .blocks = 1, .embed = 64};

    (void)state;
    write_cddp("begin");
    assert_int_equal(run_convert("--to llmc begin out.bin"), 1);
    assert_says("err.txt",
                "begin: it does not say how many heads it was made with: give --heads N");
    assert_int_equal(run_convert("--to llmc --heads 5 begin out.bin"), 1);
    assert_says("err.txt", "5 heads");
    assert_converts("--to llmc --heads 3 begin out.bin", "3 heads");
    assert_int_equal(run_convert("--to hf --heads 2 out.bin hf"), 1);
    assert_says("err.txt", "out.bin: the model was made with 3 heads, not with 2");
    assert_false(exists("hf"));
    make_params(&params, &wide, true);
    write_params(params.tensors, params.count, "wide", NULL);
    assert_converts("--to hf wide hf", "1 heads");
    assert_says("err.txt",
                "wide does not say how many heads it was made with: taking 1 heads of 64");
}

static void what_is_wrong_is_said_and_nothing_is_written(void **state)
{
    static const struct {
        const char *words;
        int status;
        const char *text;
    } cases[] = {
        {"", 2, "cddp-convert: name what to read and what to write, IN and OUT: see "},
        {"begin out", 2, "the format is missing: give --to hf, llmc or cddp"},
        {"--to onnx begin out", 2, "--to onnx: it is cddp, hf or llmc"},
        {"--to hf --type f64 begin out", 2, "--type f64: it is f32, bf16 or f16"},
        {"--to hf --heads 0 begin out", 2, "--heads 0: "},
        {"--to hf begin out more", 2, "name what to read and what to write, IN and"},
        {"--info begin out", 2, "--info needs one file or folder"},
        {"--info", 2, "--info needs one file or folder"},
        {"--info --type bf16 begin", 2, "--type has no meaning with --info"},
        {"--frobnicate begin out", 2, "--frobnicate: see cddp-convert --help\n"},
        {"--too hf begin out", 2, "--to?\n"},
        {"begin out --to", 2, "hf|llmc|cddp"},
        {"--info=yes begin", 2, "--info"},
        {"--to hf none out", 1, "cddp-convert: open none: No such file"},
        {"--to llmc --type f16 --heads 3 begin out", 1, "out: "},
        {"--to llmc --heads 3 begin no/such/out", 1, "open the folder of no/such/out"},
        {"--to hf --heads 3 text out", 1, "text: "},
        {"--to hf --heads 3 empty out", 1,
         "empty: there is no model.safetensors and no model.safetensors.index.json in it: the "
         "folder is empty; it is not the folder of a run either, for it has no checkpoints\n"},
        {"--to hf --heads 3 torch out", 1, "but pytorch_model.bin, PyTorch's own format"},
        {"--to hf --heads 3 torch/pytorch_model.bin out", 1, "PyTorch's own format (torch.save)"},
        {"--to hf --heads 3 lfs out", 1, "lfs/model.safetensors: neither a safetensors file"},
        {"--info lfs", 1, "it is a git-lfs pointer in place of the file itself"},
        {"--to hf --heads 3 begin text/out", 1, "text"},
    };

    (void)state;
    write_cddp("begin");
    support_write_file(in_folder("text"), "some words of text", 18);
    assert_int_equal(mkdir(in_folder("empty"), 0755), 0);
    assert_int_equal(mkdir(in_folder("torch"), 0755), 0);
    support_write_file(in_folder("torch/pytorch_model.bin"), "PK\3\4\0\0\10\10\0\0archive/data.pkl",
                       26);
    assert_int_equal(mkdir(in_folder("lfs"), 0755), 0);
    support_write_file(in_folder("lfs/model.safetensors"),
                       "version https://git-lfs.github.com/spec/v1\n", 43);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(run_convert(cases[i].words), cases[i].status);
        assert_says("err.txt", cases[i].text);
        assert_false(exists("out"));
    }
}

static void help_and_version_are_printed(void **state)
{
    (void)state;
    assert_converts("--help", "usage: cddp-convert --to hf|llmc|cddp");
    assert_says("out.txt", "\n  --heads N       attention heads, where IN does not tell\n");
    assert_converts("-h --to onnx", "usage: cddp-convert");
    assert_converts("--version", "cddp-convert 0.");
    assert_int_equal(run_convert("--help > /dev/full; exit $? ;:"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_go_from_format_to_format),
        IN_FOLDER(dropouts_are_written_as_they_are_known),
        IN_FOLDER(shards_are_converted_by_their_folder_or_index),
        IN_FOLDER(a_file_may_become_its_own_conversion),
        IN_FOLDER(a_run_gives_its_newest_whole_checkpoint),
        IN_FOLDER(heads_that_nothing_tells_are_asked_for_or_assumed),
        IN_FOLDER(what_is_wrong_is_said_and_nothing_is_written),
        IN_FOLDER(help_and_version_are_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
