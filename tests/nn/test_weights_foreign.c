/* test_weights_foreign.c - folders of weights as Hugging Face's libraries and others write them:
 * shards, wrappers' names, a tied table under its other name, folders without safetensors. */
#include "base/alloc.h"
#include "support/failure.h"
#include "support/weights_file.h"

#include <jansson.h>

static struct hf_file whole;

/* Write tensor i of the small GPT-2 into shard i % @p shards of the folder; the index into
 * @p index, which the caller releases. */
static json_t *write_shards(int shards)
{
    json_t *map = json_object();

    make_hf(&whole, "transformer.");
    for (int s = 0; s < shards; s++) {
        static struct hf_file part;
        char name[64];

        part.count = 0;
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, shards);
        for (size_t i = (size_t)s; i < whole.count; i += (size_t)shards) {
            part.tensors[part.count++] = whole.tensors[i];
            json_object_set_new(map, whole.tensors[i].name, json_string(name));
        }
        write_hf(&part, name, NULL);
    }
    return json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 21696, "weight_map", map);
}

static void write_index(json_t *index)
{
    char *text = json_dumps(index, JSON_INDENT(2));

    write_text("model.safetensors.index.json", text);
    free(text);
}

static void shards_are_read_as_one_file(void **state)
{
    static const int counts[] = {1, 2, 3, TENSORS};

    (void)state;
    for (int i = 0; i < 4; i++) {
        json_t *index = write_shards(counts[i]);
        char *text = json_dumps(index, 0);
        char *marked = cddpi_format("\xEF\xBB\xBF%s", text);

        write_index(index);
        assert_loads("");
        assert_loads("model.safetensors.index.json");
        write_text("model.safetensors.index.json", marked);
        assert_loads("");
        json_decref(index);
        free(text);
        cddpi_free(marked);
    }
    convert("", "converted", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    write_cddp("cddp");
    write_text("config.json", "{\"n_embd\": 12.0, \"n_layer\": 2, \"n_head\": 3.0}");
    convert("", "again", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    assert_same_bytes("again", "converted");
    assert_loads("cddp");
}

/* As huggingface_hub keeps them: links to blobs outside the folder. */
static void shards_may_be_links(void **state)
{
    json_t *index = write_shards(2);

    (void)state;
    assert_int_equal(mkdir(in_folder("snapshot"), 0700), 0);
    assert_int_equal(symlink("../model-00001-of-00002.safetensors",
                             in_folder("snapshot/model-00001-of-00002.safetensors")),
                     0);
    assert_int_equal(symlink("../model-00002-of-00002.safetensors",
                             in_folder("snapshot/model-00002-of-00002.safetensors")),
                     0);
    write_index(index);
    assert_int_equal(symlink("../model.safetensors.index.json",
                             in_folder("snapshot/model.safetensors.index.json")),
                     0);
    assert_loads("snapshot");
    assert_int_equal(unlink(in_folder("model-00002-of-00002.safetensors")), 0);
    assert_int_not_equal(cddpi_weights_open(in_folder("snapshot"), &(struct cddpi_weights *){NULL}),
                         CDDP_OK);
    assert_true(last_error_has("the shard model-00002-of-00002.safetensors"));
    json_decref(index);
}

/* Opening @p path fails and says @p text. */
static void assert_path_says(const char *path, const char *text)
{
    struct cddpi_weights *weights = NULL;
    int descriptors = support_descriptors();
    cddp_status status = cddpi_weights_open(path, &weights);

    if (status == CDDP_OK || !last_error_has(text) || !last_error_has(folder)) {
        fail_msg("status %d, \"%s\" does not say \"%s\"", status, cddp_last_error(), text);
    }
    assert_int_equal(support_descriptors(), descriptors);
}

static void assert_index_says(const char *text)
{
    assert_path_says(folder, text);
}

static void an_index_that_lies_is_refused(void **state)
{
    static const struct {
        const char *tensor, *file, *text; /* file NULL: the tensor is not in the index */
    } cases[] = {
        {"transformer.wte.weight", "../model-00001-of-00002.safetensors", "not the name of a file"},
        {"transformer.wte.weight", "/etc/passwd", "\"/etc/passwd\", the file of tensor \"transf"},
        {"transformer.wte.weight", "sub/model-00001-of-00002.safetensors", "is not the name of"},
        {"transformer.wte.weight", "..", "is not the name of a file beside it"},
        {"transformer.wte.weight", ".", "is not the name of a file beside it"},
        {"transformer.wte.weight", "", "is not the name of a file beside it"},
        {"transformer.wte.weight", ".hidden", "is not the name of a file beside it"},
        {"transformer.wte.weight", "a\nb", "\"a?b\""},
        {"transformer.wte.weight", "model-00003-of-00002.safetensors",
         "the shard model-00003-of-00002.safetensors that it names, one of 3, is not beside it"},
        {"transformer.wte.weight", "model-00002-of-00002.safetensors",
         "it says that tensor \"transformer.wte.weight\" is in model-00002-of-00002.safetensors, "
         "which has none"},
        {"transformer.wte.weight", NULL, "\"transformer.wte.weight\" is in it, but not in"},
        {"transformer.none", "model-00001-of-00002.safetensors", "has none of that name"},
        {"transformer.wte.weight", "model.safetensors.index.json", "index.json: "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *index = write_shards(2);
        json_t *map = json_object_get(index, "weight_map");

        if (cases[i].file != NULL) {
            json_object_set_new(map, cases[i].tensor, json_string(cases[i].file));
        } else {
            json_object_del(map, cases[i].tensor);
        }
        write_index(index);
        assert_index_says(cases[i].text);
        json_decref(index);
    }
}

static void an_index_of_another_form_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"", "not a JSON object"},
        {"{", "line 1, column 1"},
        {"[]", "it has no weight_map"},
        {"{\"weight_map\": []}", "it has no weight_map"},
        {"{\"weight_map\": {}}", "or one that names no tensor"},
        {"{\"weight_map\": {\"a\": 1}}", "the file of tensor \"a\" is not a string"},
        {"{\"weight_map\": {\"a\\u001b\": null}}", "the file of tensor \"a?\" is not a string"},
        {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "duplicate object key"},
        {"version https://git-lfs.github.com/spec/v1\n", "JSON object: it is a git-lfs pointer"},
        {"<html>", "JSON object: it is an HTML page"},
    };

    (void)state;
    json_decref(write_shards(2));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("model.safetensors.index.json", cases[i][0]);
        assert_index_says(cases[i][1]);
    }
    unlink(in_folder("model.safetensors.index.json"));
    assert_int_equal(mkfifo(in_folder("model.safetensors.index.json"), 0600), 0);
    assert_index_says("model.safetensors.index.json: ");
}

static void too_large_an_index_is_not_read(void **state)
{
    json_t *map = json_object();
    json_t *index = json_pack("{s:o}", "weight_map", map);

    (void)state;
    for (int i = 0; i < 5000; i++) {
        char name[32];

        snprintf(name, sizeof name, "file-%d", i);
        json_object_set_new(map, name, json_string(name));
    }
    write_index(index);
    assert_index_says("it names more than 4096 files");
    assert_int_equal(truncate(in_folder("model.safetensors.index.json"), 1 << 25), 0);
    assert_index_says("33554432 bytes are more than the 16777216 that are read");
    json_decref(index);
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    json_t *index = write_shards(2);
    static struct hf_file part;

    (void)state;
    write_index(index);
    part = whole; /* all of them, those of the first shard again */
    write_hf(&part, "model-00002-of-00002.safetensors", NULL);
    assert_index_says("model-00002-of-00002.safetensors: tensor \"transformer.wte.weight\" is in "
                      "it, but");
    json_decref(index);
}

static void a_shard_that_was_not_fetched_is_named(void **state)
{
    json_t *index = write_shards(2);

    (void)state;
    write_index(index);
    write_text("model-00002-of-00002.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n");
    assert_index_says("model-00002-of-00002.safetensors: a header of");
    json_decref(index);
}

static void one_shard_alone_says_what_is_wrong(void **state)
{
    json_decref(write_shards(2));
    (void)state;
    assert_refused("model-00002-of-00002.safetensors",
                   "the file is one shard of several: name their folder, or the index in it");
}

static void wrappers_names_are_passed_over_wherever_they_are(void **state)
{
    static const char *const prefixes[] = {"module.",
                                           "_orig_mod.",
                                           "model.",
                                           "transformer.",
                                           "module.transformer.",
                                           "_orig_mod.module.transformer.",
                                           "module._orig_mod.model.transformer.",
                                           "model.module.module._orig_mod.",
                                           "_fsdp_wrapped_module.transformer."};
    static struct hf_file file;

    (void)state;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        make_hf(&file, prefixes[i]);
        for (int masks = 0; masks < 2; masks++) {
            write_hf(&file, "file", NULL);
            assert_loads("file");
            if (masks == 0) {
                char name[64];

                snprintf(name, sizeof name, "%sh.0.attn.bias", prefixes[i]);
                hf_add(&file, name, CDDP_U8, 4, (int64_t[]){1, 1, CONTEXT, CONTEXT});
            }
        }
    }
    make_hf(&file, "transformer."); /* a block that was compiled alone */
    snprintf(file.names[5], sizeof file.names[5], "transformer.h.0._orig_mod.attn.c_attn.bias");
    write_hf(&file, "file", NULL);
    assert_loads("file");
}

static void two_names_of_one_tensor_are_refused(void **state)
{
    static struct hf_file file;

    (void)state;
    make_hf(&file, "transformer.");
    hf_add(&file, "module.wte.weight", CDDP_F32, 2, (int64_t[]){VOCAB, EMBED});
    write_hf(&file, "file", NULL);
    assert_refused("file", "tensors \"module.wte.weight\" and \"transformer.wte.weight\" are one");
}

static void a_tied_table_is_read_under_its_other_name(void **state)
{
    static const char *const heads[] = {"lm_head.weight", "module.lm_head.weight",
                                        "_orig_mod.lm_head.weight"};
    static struct hf_file file;

    (void)state;
    for (int i = 0; i < 3; i++) {
        make_hf(&file, "transformer.");
        hf_find(&file, "transformer.wte.weight")->name = heads[i];
        write_hf(&file, "model.safetensors", NULL);
        assert_loads("model.safetensors");
    }
    write_text("config.json", "{\"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, "
                              "\"tie_word_embeddings\": false}");
    assert_path_says(in_folder("model.safetensors"), "tie_word_embeddings is false");
}

static void a_missing_tensor_is_told_with_what_is_there(void **state)
{
    static struct hf_file file;

    (void)state;
    make_hf(&file, "");
    hf_find(&file, "wte.weight")->name = "encoder.wte.weights";
    write_hf(&file, "file", NULL);
    assert_refused("file", "\"wpe.weight\"");
    file.count = 0;
    hf_add(&file, "layers.0.self_attn.q_proj.weight", CDDP_F32, 1, (int64_t[]){4});
    hf_add(&file, "embed\x1b_tokens", CDDP_F32, 1, (int64_t[]){4});
    write_hf(&file, "file", NULL);
    assert_refused("file", "none has a name like it: it holds \"embed?_tokens\", \"layers.0.self");
    write_text("config.json", "{\"model_type\": \"llama\"}");
    assert_path_says(in_folder("file"),
                     "config.json: its model_type is llama, but only gpt2 can be read");
}

static void a_config_key_that_explains_the_shapes_is_named(void **state)
{
    static struct hf_file file;
    cddp_param *wide;

    (void)state;
    make_hf(&file, "");
    wide = hf_find(&file, "h.0.mlp.c_fc.weight");
    wide->shape[1] = 32;
    hf_find(&file, "h.0.mlp.c_fc.bias")->shape[0] = 32;
    write_hf(&file, "model.safetensors", NULL);
    write_text("config.json", "{\"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, \"n_inner\": 32}");
    assert_true(failure_is(
        cddpi_weights_open(in_folder("model.safetensors"), &(struct cddpi_weights *){NULL}),
        CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(
        last_error_has("/config.json: its n_inner is 32, but cddp's gpt2 has 4 x n_embd, which "
                       "is 48"));
}

/* A folder without safetensors: what it has instead, and what to do. */
static void a_folder_without_safetensors_says_what_it_has(void **state)
{
    static const char *const cases[][2] = {
        {"pytorch_model.bin", "but pytorch_model.bin, PyTorch's own format"},
        {"pytorch_model-00001-of-00002.bin", "PyTorch's own format, which can run programs"},
        {"gpt2.pt", "but gpt2.pt, PyTorch's own format"},
        {"gpt2.pth", "safetensors.torch.save_file(torch.load(FILE), OTHER)"},
        {"last.ckpt", "but last.ckpt, PyTorch's own format"},
        {"gpt2-Q4.gguf", "but gpt2-Q4.gguf, llama.cpp's format"},
        {"tf_model.h5", "but tf_model.h5, Keras's format"},
        {"flax_model.msgpack", "but flax_model.msgpack, Flax's format"},
        {"model.onnx", "but model.onnx, ONNX"},
        {"model.fp16.safetensors", "but model.fp16.safetensors, which is not called model.safe"},
        {"README.md", "nor other weights: it holds README.md only"},
        {NULL, "the folder is empty"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cddpi_weights *weights = NULL;

        if (cases[i][0] != NULL) {
            write_text(cases[i][0], "x");
        }
        assert_true(
            failure_is(cddpi_weights_open(folder, &weights), CDDP_ERR_NOT_FOUND, -1, -1, ""));
        if (!last_error_has(cases[i][1])) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i][1]);
        }
        if (cases[i][0] != NULL) {
            assert_int_equal(unlink(in_folder(cases[i][0])), 0);
        }
    }
    write_text("model-00001-of-00002.safetensors", "x");
    write_text("model-00002-of-00002.safetensors", "x");
    assert_index_says("2 other files of safetensors, the first of them "
                      "model-00001-of-00002.safetensors: if they are shards, fetch their index");
}

/* The folder of a run, or of its checkpoints, is not the weights that are in one of them. */
static void a_folder_of_a_run_says_that_it_holds_checkpoints(void **state)
{
    struct cddpi_weights *weights = NULL;
    cddp_safetensors *file = NULL;

    (void)state;
    assert_int_equal(mkdir(in_folder("checkpoints"), 0700), 0);
    assert_int_equal(mkdir(in_folder("checkpoints/step-00000002"), 0700), 0);
    assert_true(failure_is(cddpi_weights_open(folder, &weights), CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(last_error_has("it holds checkpoints: name one of them, "));
    assert_true(last_error_has("/checkpoints/step-..."));
    assert_true(failure_is(cddpi_weights_open(in_folder("checkpoints"), &weights),
                           CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(last_error_has("it holds checkpoints: name one of them, "));
    assert_null(strstr(cddp_last_error(), "checkpoints/checkpoints"));
    assert_true(failure_is(cddp_safetensors_open(folder, &file), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("it is a folder: name the file of safetensors"));
}

static void without_memory_shards_fail_and_nothing_leaks(void **state)
{
    json_t *index = write_shards(3);
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    write_index(index);
    json_decref(index);
    for (unsigned n = 1; status != CDDP_OK; n++) {
        struct cddpi_weights *weights = NULL;

        cddpi_alloc_fail_nth(n);
        status = cddpi_weights_open(folder, &weights);
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        cddpi_weights_close(weights);
        assert_true(n < 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(shards_are_read_as_one_file),
        IN_FOLDER(shards_may_be_links),
        IN_FOLDER(an_index_that_lies_is_refused),
        IN_FOLDER(an_index_of_another_form_is_refused),
        IN_FOLDER(too_large_an_index_is_not_read),
        IN_FOLDER(a_tensor_in_two_shards_is_refused),
        IN_FOLDER(a_shard_that_was_not_fetched_is_named),
        IN_FOLDER(one_shard_alone_says_what_is_wrong),
        IN_FOLDER(wrappers_names_are_passed_over_wherever_they_are),
        IN_FOLDER(two_names_of_one_tensor_are_refused),
        IN_FOLDER(a_tied_table_is_read_under_its_other_name),
        IN_FOLDER(a_missing_tensor_is_told_with_what_is_there),
        IN_FOLDER(a_config_key_that_explains_the_shapes_is_named),
        IN_FOLDER(a_folder_without_safetensors_says_what_it_has),
        IN_FOLDER(a_folder_of_a_run_says_that_it_holds_checkpoints),
        IN_FOLDER(without_memory_shards_fail_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
