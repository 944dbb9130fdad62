/* test_weights.c - GPT-2 weights between cddp's files, Hugging Face's and llm.c's: the same numbers
 * to the bit, and wrong files get their message. */
#include "weights_support.h"

#include "base/alloc.h"
#include "base/file.h"
#include "kernels/cpu/reduce.h"

#include <errno.h>

static void assert_loads(const char *name)
{
    static struct params params;

    make_params(&params, &small, false);
    if (cddpi_weights_load(in_dir(name), HEADS, params.tensors, params.count) != CDDP_OK) {
        fail_msg("%s: %s", name, cddp_last_error());
    }
    assert_filled(&params);
}

static void every_format_gives_every_other_to_the_bit(void **state)
{
    static const enum cddpi_weights_format formats[] = {CDDPI_WEIGHTS_CDDP, CDDPI_WEIGHTS_HF,
                                                        CDDPI_WEIGHTS_LLMC};

    (void)state;
    write_cddp("begin");
    assert_loads("begin");
    for (int i = 0; i < 3; i++) {
        convert("begin", "first", formats[i], CDDP_F32);
        for (int j = 0; j < 3; j++) {
            convert("first", "second", formats[j], CDDP_F32);
            convert("second", "again", formats[i], CDDP_F32);
            assert_loads("second");
            assert_same_bytes("first", "again");
        }
    }
}

static void hugging_face_files_are_read_with_and_without_prefix_masks_and_head(void **state)
{
    static struct hf_file file;

    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        const char *prefix = variant & 1 ? "transformer." : "";
        char name[64];

        make_hf(&file, prefix);
        if (variant & 2) {
            cddp_tensor *head = hf_add(&file, "lm_head.weight", CDDP_F32, 2,
                                       (int64_t[]){VOCAB, EMBED});

            memcpy(head->data, file.data[0], sizeof(float) * VOCAB * EMBED); /* wte's */
        }
        for (int block = 0; variant & 4 && block < BLOCKS; block++) {
            snprintf(name, sizeof name, "%sh.%d.attn.masked_bias", prefix, block);
            hf_add(&file, name, CDDP_F32, 0, (int64_t[]){0});
            snprintf(name, sizeof name, "%sh.%d.attn.bias", prefix, block);
            hf_add(&file, name, CDDP_U8, 4, (int64_t[]){1, 1, CONTEXT, CONTEXT});
        }
        write_hf(&file, "hf", NULL);
        assert_loads("hf");
    }
}

/* The file's 16-bit numbers, rounded once. */
static void numbers_of_16_bits_are_converted(void **state)
{
    static const cddp_type types[] = {CDDP_F16, CDDP_BF16};
    static struct params params;
    static float half[MOST_ELEMENTS];

    (void)state;
    write_cddp("f32");
    for (int t = 0; t < 2; t++) {
        convert("f32", "half", CDDPI_WEIGHTS_HF, types[t]);
        make_params(&params, &small, false);
        assert_int_equal(cddpi_weights_load(in_dir("half"), HEADS, params.tensors, params.count),
                         CDDP_OK);
        for (size_t i = 0; i < params.count; i++) {
            size_t count = elements(&params.tensors[i]);
            uint16_t bits[MOST_ELEMENTS];

            for (size_t e = 0; e < count; e++) {
                half[e] = element(i, e);
            }
            cddpi_cast(bits, types[t], half, CDDP_F32, count);
            cddpi_cast(half, CDDP_F32, bits, types[t], count);
            assert_memory_equal(half, params.data[i], count * sizeof *half);
        }
    }
    /* from there to llm.c's and back, nothing is rounded again */
    convert("half", "bin", CDDPI_WEIGHTS_LLMC, CDDP_BF16);
    convert("bin", "again", CDDPI_WEIGHTS_HF, CDDP_BF16);
    assert_same_bytes("half", "again");
}

static void a_file_of_16_bits_at_odd_addresses_is_read(void **state)
{
    static struct hf_file file;
    static uint16_t bits[MOST_TENSORS][MOST_ELEMENTS];
    struct cddpi_weights *weights = NULL;

    (void)state;
    make_hf(&file, "");
    for (size_t i = 0; i < file.count; i++) {
        cddpi_cast(bits[i], CDDP_BF16, file.data[i], CDDP_F32, elements(&file.tensors[i]));
        file.tensors[i].type = CDDP_BF16;
        file.tensors[i].data = bits[i];
    }
    write_hf(&file, "even", NULL);
    hf_add(&file, "h.0.attn.bias", CDDP_U8, 4, (int64_t[]){1, 1, CONTEXT, CONTEXT});
    write_hf(&file, "odd", NULL);
    assert_int_equal(cddpi_weights_open(in_dir("odd"), &weights), CDDP_OK);
    assert_int_equal(cddpi_weights_type(weights), CDDP_BF16);
    cddpi_weights_close(weights);
    convert("even", "from-even", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    convert("odd", "from-odd", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    assert_same_bytes("from-even", "from-odd");
}

enum {
    PADDED = 256,
    LLMC_ELEMENTS = (PADDED + CONTEXT) * EMBED + BLOCKS * (12 * EMBED * EMBED + 13 * EMBED) +
                    2 * EMBED
};

static void an_llmc_file_has_its_header_its_order_and_a_padded_vocabulary(void **state)
{
    static const int32_t header[] = {20240326, 3, CONTEXT, VOCAB, BLOCKS, HEADS, EMBED, PADDED};
    size_t bytes;
    unsigned char *all;
    const float *data;

    (void)state;
    write_cddp("begin");
    convert("begin", "bin", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    all = read_all("bin", &bytes);
    assert_int_equal(bytes, 1024 + 4 * LLMC_ELEMENTS);
    assert_memory_equal(all, header, sizeof header);
    for (size_t i = sizeof header; i < 1024; i++) {
        assert_int_equal(all[i], 0);
    }
    data = (const float *)(all + 1024);
    for (size_t i = 0; i < (size_t)PADDED * EMBED; i++) {
        assert_true(data[i] == (i < (size_t)VOCAB * EMBED ? element(0, i) : 0.0f));
    }
    data += (PADDED + CONTEXT) * EMBED; /* ln1w, ln1b, qkvw: of each, all blocks */
    assert_true(data[0] == element(2, 0));
    assert_true(data[EMBED] == element(2 + 12, 0));
    assert_true(data[2 * EMBED] == element(3, 0));
    data += 4 * EMBED + 3 * EMBED * EMBED;
    assert_true(data[1] == element(4 + 12, 1)); /* attn.c_attn.weight of block 1, not turned over */
    free(all);
    convert("begin", "half", CDDPI_WEIGHTS_LLMC, CDDP_BF16);
    all = read_all("half", &bytes);
    assert_int_equal(bytes, 1024 + 2 * LLMC_ELEMENTS);
    assert_int_equal(all[4], 5);
    free(all);
}

static void llmc_files_may_be_padded_otherwise_or_not_at_all(void **state)
{
    size_t bytes;
    unsigned char *all;
    const size_t row = sizeof(float) * EMBED;
    int32_t padded = VOCAB;

    (void)state;
    write_cddp("begin");
    convert("begin", "bin", CDDPI_WEIGHTS_LLMC, CDDP_F32);
    all = read_all("bin", &bytes);
    memcpy(all + 28, &padded, sizeof padded);
    memmove(all + 1024 + VOCAB * row, all + 1024 + PADDED * row, bytes - 1024 - PADDED * row);
    support_write_file(in_dir("bin"), all, bytes - (PADDED - VOCAB) * row);
    free(all);
    assert_loads("bin");
}

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
        support_write_file(in_dir("wrong"), all, bytes);
        assert_refused("wrong", cases[i].text);
        memcpy(all + 4 * cases[i].at, old, 4);
    }
    for (size_t cut = 0; cut < bytes; cut += cut < 1100 ? 1 : 997) {
        support_write_file(in_dir("wrong"), all, cut);
        assert_refused("wrong", cut < 12 ? "" : cut < 1024 ? "too few" : "cut short");
    }
    support_write_file(in_dir("wrong"), all, bytes);
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
        {"h.1.ln_1.weight", "h.01.ln_1.weight", 0, 0, {0}, "is none of a GPT-2 of 1 blocks"},
        {"h.1.mlp.c_fc.bias",
         "h.1.mlp.c_fc.bais",
         0,
         0,
         {0},
         "tensor \"h.1.mlp.c_fc.bais\" is none of a GPT-2 of 2 blocks"},
        {"h.1.mlp.c_fc.bias", "h.1.attn.bias", 0, 0, {0}, "\"h.1.mlp.c_fc.bias\" is missing"},
        {"h.0.attn.c_attn.weight",
         "h.0.attn.bias",
         0,
         0,
         {0},
         "\"h.0.attn.c_attn.weight\" is missing"},
        {"ln_f.bias", "ln_f.bias\n", 0, 0, {0}, "\"ln_f.bias?\" is none of"},
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
        cddp_tensor *tensor;

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
    cddp_tensor *head;

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
    assert_int_equal(cddpi_weights_open(in_dir("none"), &weights), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddpi_weights_open(dir, &weights), CDDP_ERR_NOT_FOUND);
    assert_non_null(strstr(cddp_last_error(), "/model.safetensors"));
    support_write_file(in_dir("text"), "once upon a time", 16);
    assert_refused("text", "neither a safetensors file nor a model of llm.c");
    support_write_file(in_dir("empty"), "", 0);
    assert_refused("empty", "0 bytes are too few");
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_not_equal(cddpi_weights_open(in_dir("pipe"), &weights), CDDP_OK);
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
            support_write_file(in_dir("changed"), all, bytes);
            status = cddpi_weights_open(in_dir("changed"), &weights);
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
        assert_int_equal(
            cddpi_weights_load(in_dir("bin"), cases[i].shape.heads, params.tensors, params.count),
            CDDP_ERR_FORMAT);
        if (strstr(cddp_last_error(), cases[i].text) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
        for (size_t e = 0; e < sizeof params.data; e++) {
            assert_int_equal(((const unsigned char *)params.data)[e], 0xff);
        }
    }
}

static void a_shorter_context_takes_the_first_positions(void **state)
{
    static struct params params;
    struct cddpi_gpt2_shape shorter = small;

    (void)state;
    shorter.context = CONTEXT - 2;
    write_cddp("begin");
    make_params(&params, &shorter, false);
    assert_int_equal(cddpi_weights_load(in_dir("begin"), HEADS, params.tensors, params.count),
                     CDDP_OK);
    assert_filled(&params);
}

static void write_text(const char *name, const char *text)
{
    support_write_file(in_dir(name), text, strlen(text));
}

static int64_t heads_of(const char *name)
{
    struct cddpi_weights *weights = NULL;
    int64_t heads;

    if (cddpi_weights_open(in_dir(name), &weights) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    heads = cddpi_weights_shape(weights)->heads;
    cddpi_weights_close(weights);
    return heads;
}

static void heads_come_from_what_lies_beside(void **state)
{
    static struct hf_file file;

    (void)state;
    make_hf(&file, "");
    write_hf(&file, "model.safetensors", NULL);
    assert_int_equal(heads_of("model.safetensors"), 0);
    write_text("config.json", "{\"n_embd\": 13, \"n_layer\": 2, \"n_head\": 2}"); /* another's */
    assert_int_equal(heads_of("model.safetensors"), 0);
    write_text("config.json", "{\"n_embd\": 12, \"n_layer\": 2, \"n_head\": 2}");
    assert_int_equal(heads_of("model.safetensors"), 2);
    assert_int_equal(heads_of(""), 2);
    write_text("state.json", "{\"state\": {\"heads\": 6}}");
    assert_int_equal(heads_of("model.safetensors"), 6);
    write_hf(&file, "model.safetensors", (const char *const[]){"heads", "4", NULL});
    assert_int_equal(heads_of("model.safetensors"), 4);
    write_hf(&file, "model.safetensors", (const char *const[]){"heads", "5", NULL});
    assert_refused("model.safetensors", "its metadata has \"5\" heads");
    write_hf(&file, "model.safetensors", (const char *const[]){"heads", "4x", NULL});
    assert_refused("model.safetensors", "its metadata has \"4x\" heads");
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
        assert_int_equal(cddpi_weights_open(in_dir("model.safetensors"), &weights),
                         CDDP_ERR_FORMAT);
        assert_non_null(strstr(cddp_last_error(), cases[i][1]));
        assert_non_null(strstr(cddp_last_error(), in_dir("config.json")));
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
    assert_int_equal(cddpi_weights_open(in_dir("begin"), &weights), CDDP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cddpi_weights_write(weights, in_dir("out"), cases[i].format, cases[i].type,
                                             cases[i].heads),
                         CDDP_ERR_ARGUMENT);
        assert_non_null(strstr(cddp_last_error(), cases[i].text));
        assert_int_not_equal(access(in_dir("out"), F_OK), 0);
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
    assert_int_equal(cddpi_weights_open(in_dir("begin"), &weights), CDDP_OK);
    for (int f = 0; f < 2; f++) {
        cddp_status status = CDDP_ERR_IO;

        for (int n = 1; status != CDDP_OK; n++) {
            write_text("out", "old");
            countdown = n;
            cddpi_file_set_hook(fail_later);
            status = cddpi_weights_write(weights, in_dir("out"), formats[f], CDDP_F32, HEADS);
            cddpi_file_set_hook(NULL);
            if (status != CDDP_OK && strstr(cddp_last_error(), "may bring the old one") == NULL) {
                size_t bytes;
                unsigned char *all = read_all("out", &bytes);

                assert_int_equal(status, CDDP_ERR_IO);
                assert_int_equal(bytes, 3);
                assert_non_null(strstr(cddp_last_error(), "No space left"));
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
            status = cddpi_weights_open(in_dir(in), &weights);
            if (status == CDDP_OK) {
                status = cddpi_weights_write(weights, in_dir("out"), formats[i / 2], CDDP_F32,
                                             HEADS);
            }
            cddpi_alloc_fail_nth(0);
            assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
            cddpi_weights_close(weights);
            assert_true(n < 500);
        }
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_format_gives_every_other_to_the_bit),
        CASE(hugging_face_files_are_read_with_and_without_prefix_masks_and_head),
        CASE(numbers_of_16_bits_are_converted),
        CASE(a_file_of_16_bits_at_odd_addresses_is_read),
        CASE(an_llmc_file_has_its_header_its_order_and_a_padded_vocabulary),
        CASE(llmc_files_may_be_padded_otherwise_or_not_at_all),
        CASE(a_wrong_llmc_file_gets_its_message),
        CASE(a_wrong_safetensors_file_gets_its_message),
        CASE(a_head_that_is_not_tied_is_refused),
        CASE(what_is_no_weights_file_gets_its_message),
        CASE(a_file_with_any_byte_changed_is_read_or_refused),
        CASE(a_model_of_another_shape_is_told_what_differs),
        CASE(a_shorter_context_takes_the_first_positions),
        CASE(heads_come_from_what_lies_beside),
        CASE(a_config_of_another_kind_of_gpt2_is_refused),
        CASE(what_a_format_cannot_hold_is_refused),
        CASE(a_full_disk_leaves_the_old_file),
        CASE(without_memory_everything_fails_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
