/* test_weights_errors.c - files of GPT-2 weights that are wrong, do not fit or cannot be written:
 * each gets its message. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "support/failure.h"
#include "support/weights_file.h"

#include <errno.h>

static void a_wrong_llmc_file_gets_its_message(void **state)
{
    static const struct {
        int at;
        int32_t value;
        const char *text;
    } cases[] = {
        {0, 12345, "neither a safetensors file nor a model of llm.c (it begins with 12345"},
        {0, 20240520, "not a model: tokens"},
        {0, 20240328, "not a model: a tokenizer"},
        {1, 1, "an llm.c model of version 1; known are 3 (f32) and 5 (bf16)"},
        {1, 5, "bytes, but the model that llm.c's header describes takes"},
        {2, 0, "context 0 in llm.c's header; 1 to"},
        {2, -5, "context -5 in"},
        {2, CONTEXT + 1, "cut short"},
        {2, CONTEXT - 1, "something follows it"},
        {3, 0, "wrong: vocabulary 0 in"},
        {3, PADDED + 1, "pads a vocabulary of 257 tokens to 256"},
        {4, 1 << 20, "number of blocks 1048576 in"},
        {4, BLOCKS + 1, "cut short"},
        {5, 0, "number of heads 0 in"},
        {5, 5, "has 5 heads, which do not divide the embed size of 12"},
        {6, 0x7fffffff, "embed size 2147483647 in"},
        {7, -1, "padded vocabulary -1 in"},
        {7, 1 << 28, "cut short"},
    };
    size_t bytes;
    unsigned char *all;

    (void)state;
    write_cddp("begin");
    convert("begin", "bin", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    all = read_all("bin", &bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char old[4];

        memcpy(old, all + 4 * cases[i].at, 4);
        memcpy(all + 4 * cases[i].at, &cases[i].value, 4);
        support_write_file(in_folder("wrong"), all, bytes);
        assert_refused("wrong", cases[i].text);
        memcpy(all + 4 * cases[i].at, old, 4);
    }
    for (size_t cut = 0; cut < bytes; cut += cut < 1100 ? 1 : 997) {
        support_write_file(in_folder("wrong"), all, cut);
        assert_refused("wrong", cut < 12 ? "" : cut < 1024 ? "too few" : "cut short");
    }
    support_write_file(in_folder("wrong"), all, bytes);
    assert_loads("wrong");
    free(all);
}

struct damage {
    const char *tensor, *rename; /* rename NULL: the shape below instead */
    cddp_type type;
    int dims;
    int64_t shape[2];
    const char *text;
};

static void a_wrong_safetensors_file_gets_its_message(void **state)
{
    static const struct damage cases[] = {
        {"wte.weight", "wet.weight", 0, 0, {0}, "tensor \"wte.weight\" is missing"},
        {"wpe.weight", "wpe.bias", 0, 0, {0}, "tensor \"wpe.weight\" is missing"},
        {"h.0.ln_1.weight", "h.9.ln_1.weight", 0, 0, {0}, "\"h.0.ln_1.weight\" is missing"},
        {"h.1.ln_1.weight", "h.01.ln_1.weight", 0, 0, {0}, "is not part of a GPT-2 of 1 blocks"},
        {"h.1.mlp.c_fc.bias",
         "h.1.mlp.c_fc.bais",
         0,
         0,
         {0},
         "tensor \"h.1.mlp.c_fc.bais\" is not part of a GPT-2 of 2 blocks"},
        {"h.1.mlp.c_fc.bias", "h.1.attn.bias", 0, 0, {0}, "\"h.1.mlp.c_fc.bias\" is missing"},
        {"h.0.attn.c_attn.weight",
         "h.0.attn.bias",
         0,
         0,
         {0},
         "\"h.0.attn.c_attn.weight\" is missing"},
        {"ln_f.bias", "ln_f.bias\n", 0, 0, {0}, "\"ln_f.bias?\" is not part of"},
        {"wte.weight", NULL, CDDP_F32, 1, {VOCAB}, "is f32 [131], but a matrix [entries, embed]"},
        {"wpe.weight",
         NULL,
         CDDP_F32,
         2,
         {CONTEXT, 10},
         "\"wpe.weight\" is f32 [5, 10], but f32, f16 or bf16 [5, 12] is wanted"},
        {"wte.weight", NULL, CDDP_I32, 2, {VOCAB, EMBED}, "is i32 [131, 12], but f32, f16 or bf16"},
        {"ln_f.weight", NULL, CDDP_F32, 2, {1, EMBED}, "is f32 [1, 12], but f32, f16 or bf16 [12]"},
        {"h.1.attn.c_attn.weight",
         NULL,
         CDDP_F32,
         2,
         {3 * EMBED, EMBED},
         "is f32 [36, 12], but f32, f16 or bf16 [12, 36] is wanted"},
        {"h.0.attn.c_attn.weight", NULL, CDDP_F32, 2, {3 * EMBED, EMBED}, "is wanted"},
        {"h.0.mlp.c_proj.weight", NULL, CDDP_F32, 2, {EMBED, EMBED}, "[48, 12] is wanted"},
    };
    static struct hf_file file;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cddp_param *tensor;

        make_hf(&file, "");
        tensor = hf_find(&file, cases[i].tensor);
        if (cases[i].rename != NULL) {
            tensor->name = cases[i].rename;
        } else {
            tensor->type = cases[i].type;
            tensor->dims = cases[i].dims;
            memcpy(tensor->shape, cases[i].shape, sizeof cases[i].shape);
        }
        write_hf(&file, "wrong", NULL);
        assert_refused("wrong", cases[i].text);
    }
}

static void a_head_that_is_not_tied_is_refused(void **state)
{
    static struct hf_file file;
    cddp_param *head;

    (void)state;
    make_hf(&file, "transformer.");
    head = hf_add(&file, "lm_head.weight", CDDP_F32, 2, (int64_t[]){VOCAB, EMBED});
    memcpy(head->data, file.data[0], sizeof(float) * VOCAB * EMBED);
    ((float *)head->data)[VOCAB * EMBED - 1] += 1.0f;
    write_hf(&file, "wrong", NULL);
    assert_refused("wrong", "lm_head.weight differs from wte.weight");
    head->shape[0]--;
    write_hf(&file, "wrong", NULL);
    assert_refused("wrong", "tensor \"lm_head.weight\" is f32 [130, 12]");
}

static void what_is_no_weights_file_gets_its_message(void **state)
{
    struct cddpi_weights *weights;

    (void)state;
    assert_int_equal(cddpi_weights_open(in_folder("none"), &weights), CDDP_ERR_NOT_FOUND);
    assert_true(failure_is(cddpi_weights_open(folder, &weights), CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(last_error_has("there is no model.safetensors and no "));
    support_write_file(in_folder("text"), "once upon a time", 16);
    assert_refused("text", "neither a safetensors file nor a model of llm.c");
    support_write_file(in_folder("empty"), "", 0);
    assert_refused("empty", "0 bytes are too few");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_not_equal(cddpi_weights_open(in_folder("pipe"), &weights), CDDP_OK);
}

/* Any byte of what describes the data may be anything: yes or no, but nothing else is touched. */
static void a_file_with_any_byte_changed_is_read_or_refused(void **state)
{
    static const enum cddpi_weights_format formats[] = {CDDPI_WEIGHTS_HF, CDDPI_WEIGHTS_LLMC};

    (void)state;
    write_cddp("begin");
    for (int f = 0; f < 2; f++) {
        size_t bytes;
        unsigned char *all;

        convert("begin", "file", formats[f], CDDP_BF16);
        all = read_all("file", &bytes);
        for (size_t i = 0; i < 2000; i++) {
            struct cddpi_weights *weights = NULL;
            unsigned char old = all[i];
            cddp_status status;

            all[i] = (unsigned char)(old ^ (1u << i % 8));
            support_write_file(in_folder("changed"), all, bytes);
            status = cddpi_weights_open(in_folder("changed"), &weights);
            assert_true(status == CDDP_OK || status == CDDP_ERR_FORMAT);
            cddpi_weights_close(weights);
            all[i] = old;
        }
        free(all);
    }
}

static void a_model_of_another_shape_is_told_what_differs(void **state)
{
    static const struct {
        struct cddpi_gpt2_shape shape;
        const char *text;
    } cases[] = {
        {{VOCAB + 3, CONTEXT, BLOCKS, EMBED, HEADS},
         "tensor \"wte.weight\" is [131, 12], but the model's is [134, 12]"},
        {{VOCAB, CONTEXT + 1, BLOCKS, EMBED, HEADS},
         "tensor \"wpe.weight\" is [5, 12], but the model's is [6, 12]"},
        {{VOCAB, CONTEXT, BLOCKS + 1, EMBED, HEADS}, "it is a GPT-2 of 2 blocks"},
        {{VOCAB, CONTEXT, BLOCKS - 1, EMBED, HEADS}, "a GPT-2 of 2 blocks, more than the model"},
        {{VOCAB, CONTEXT, BLOCKS, 2 * HEADS, HEADS}, "\"wte.weight\" is [131, 12], but the model"},
        {{VOCAB, CONTEXT, BLOCKS, EMBED, 2}, "made with 3 heads, but the model has 2"},
    };
    static struct params params;

    (void)state;
    write_cddp("begin");
    convert("begin", "bin", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_params(&params, &cases[i].shape, false);
        assert_int_equal(cddpi_weights_load(in_folder("bin"), cases[i].shape.heads, params.tensors,
                                            params.count),
                         CDDP_ERR_FORMAT);
        if (!last_error_has(cases[i].text)) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
        for (size_t e = 0; e < sizeof params.data; e++) {
            assert_int_equal(((const unsigned char *)params.data)[e], 0xff);
        }
    }
}

static void a_config_of_another_kind_of_gpt2_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\"n_head\": 5", "n_head is 5, which does not divide n_embd, 12"},
        {"\"n_head\": 3, \"activation_function\": \"relu\"", "activation_function is not gelu_new"},
        {"\"n_head\": 3, \"activation_function\": 1", "activation_function is not gelu_new"},
        {"\"n_head\": 3, \"layer_norm_epsilon\": 1e-6", "layer_norm_epsilon is not 1e-05"},
        {"\"n_head\": 3, \"scale_attn_by_inverse_layer_idx\": true", "scales attention"},
    };
    static struct hf_file file;

    (void)state;
    make_hf(&file, "");
    write_hf(&file, "model.safetensors", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct cddpi_weights *weights;

        snprintf(text, sizeof text, "{\"n_embd\": 12, \"n_layer\": 2, %s}", cases[i][0]);
        write_text("config.json", text);
        assert_true(failure_is(cddpi_weights_open(in_folder("model.safetensors"), &weights),
                               CDDP_ERR_FORMAT, -1, -1, ""));
        assert_true(last_error_has(cases[i][1]));
        assert_true(last_error_has(in_folder("config.json")));
    }
}

static void what_a_format_cannot_hold_is_refused(void **state)
{
    static const struct {
        enum cddpi_weights_format format;
        cddp_type type;
        int64_t heads;
        const char *text;
    } cases[] = {
        {CDDPI_WEIGHTS_LLMC, CDDP_F16, HEADS, "format llmc does not hold f16"},
        {CDDPI_WEIGHTS_CDDP, CDDP_BF16, HEADS, "format cddp does not hold bf16"},
        {CDDPI_WEIGHTS_HF, CDDP_I32, HEADS, "format hf does not hold i32"},
        {CDDPI_WEIGHTS_HF, CDDP_F32, 5, "5 heads do not divide the embed size of 12"},
        {CDDPI_WEIGHTS_HF, CDDP_F32, 0, "0 heads do not divide"},
    };
    struct cddpi_weights *weights;

    (void)state;
    write_cddp("begin");
    assert_int_equal(cddpi_weights_open(in_folder("begin"), &weights), CDDP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(failure_is(cddpi_weights_write(weights, in_folder("out"), cases[i].format,
                                                   cases[i].type, cases[i].heads),
                               CDDP_ERR_ARGUMENT, -1, -1, ""));
        assert_true(last_error_has(cases[i].text));
        assert_int_not_equal(access(in_folder("out"), F_OK), 0);
    }
    cddpi_weights_close(weights);
}

static int countdown;

static int fail_later(const char *operation)
{
    (void)operation;
    return --countdown == 0 ? ENOSPC : 0;
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    static const enum cddpi_weights_format formats[] = {CDDPI_WEIGHTS_HF, CDDPI_WEIGHTS_LLMC};
    struct cddpi_weights *weights;

    (void)state;
    write_cddp("begin");
    assert_int_equal(cddpi_weights_open(in_folder("begin"), &weights), CDDP_OK);
    for (int f = 0; f < 2; f++) {
        cddp_status status = CDDP_ERR_IO;

        for (int n = 1; status != CDDP_OK; n++) {
            write_text("out", "old");
            countdown = n;
            cddpi_file_set_hook(fail_later);
            status = cddpi_weights_write(weights, in_folder("out"), formats[f], CDDP_F32, HEADS);
            cddpi_file_set_hook(NULL);
            if (status != CDDP_OK && strstr(cddp_last_error(), "may bring the old one") == NULL) {
                size_t bytes;
                unsigned char *all = read_all("out", &bytes);

                assert_int_equal(status, CDDP_ERR_IO);
                assert_int_equal(bytes, 3);
                assert_int_equal(cddpi_last_errno(), ENOSPC);
                free(all);
            }
            assert_true(n < 1000);
        }
    }
    cddpi_weights_close(weights);
}

static void without_memory_everything_fails_and_nothing_leaks(void **state)
{
    static const enum cddpi_weights_format formats[] = {CDDPI_WEIGHTS_CDDP, CDDPI_WEIGHTS_HF,
                                                        CDDPI_WEIGHTS_LLMC};

    (void)state;
    write_cddp("begin");
    convert("begin", "in-0", CDDPI_WEIGHTS_HF, CDDP_BF16);
    convert("begin", "in-1", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    for (int i = 0; i < 6; i++) {
        const char *in = i % 2 == 0 ? "in-0" : "in-1";
        cddp_status status = CDDP_ERR_NO_MEMORY;

        for (unsigned n = 1; status != CDDP_OK; n++) {
            struct cddpi_weights *weights = NULL;

            cddpi_alloc_fail_nth(n);
            status = cddpi_weights_open(in_folder(in), &weights);
            if (status == CDDP_OK) {
                status = cddpi_weights_write(weights, in_folder("out"), formats[i / 2], CDDP_F32,
                                             HEADS);
            }
            cddpi_alloc_fail_nth(0);
            assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
            cddpi_weights_close(weights);
            assert_true(n < 500);
        }
    }
}

static void a_file_that_is_cut_off_while_it_is_read_becomes_no_other(void **state)
{
    static const char *const files[] = {"begin", "bin"};

    (void)state;
    cddpi_mapped_files_catch();
    write_cddp("begin");
    convert("begin", "bin", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    for (int i = 0; i < 2; i++) {
        struct cddpi_weights *weights = NULL;

        assert_int_equal(cddpi_weights_open(in_folder(files[i]), &weights), CDDP_OK);
        assert_int_equal(truncate(in_folder(files[i]), 1500), 0);
        assert_true(failure_is(
            cddpi_weights_write(weights, in_folder("out"), CDDPI_WEIGHTS_HF, CDDP_BF16, HEADS),
            CDDP_ERR_IO, -1, -1, ""));
        assert_true(last_error_has(in_folder(files[i])));
        assert_int_not_equal(access(in_folder("out"), F_OK), 0);
        cddpi_weights_close(weights);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_wrong_llmc_file_gets_its_message),
        IN_FOLDER(a_wrong_safetensors_file_gets_its_message),
        IN_FOLDER(a_head_that_is_not_tied_is_refused),
        IN_FOLDER(what_is_no_weights_file_gets_its_message),
        IN_FOLDER(a_file_with_any_byte_changed_is_read_or_refused),
        IN_FOLDER(a_model_of_another_shape_is_told_what_differs),
        IN_FOLDER(a_config_of_another_kind_of_gpt2_is_refused),
        IN_FOLDER(what_a_format_cannot_hold_is_refused),
        IN_FOLDER(a_full_disk_leaves_the_old_file),
        IN_FOLDER(a_file_that_is_cut_off_while_it_is_read_becomes_no_other),
        IN_FOLDER(without_memory_everything_fails_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
