/* test_weights.c - GPT-2 weights between cddp's files, Hugging Face's and llm.c's: the same numbers
 * to the bit. */
#include "kernels/cpu/reduce.h"
#include "support/weights_file.h"

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
            cddp_param *head = hf_add(&file, "lm_head.weight", CDDP_F32, 2,
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
        assert_int_equal(cddpi_weights_load(in_folder("half"), HEADS, params.tensors, params.count),
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
    assert_int_equal(cddpi_weights_open(in_folder("odd"), &weights), CDDP_OK);
    assert_int_equal(cddpi_weights_type(weights), CDDP_BF16);
    cddpi_weights_close(weights);
    convert("even", "from-even", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    convert("odd", "from-odd", CDDPI_WEIGHTS_CDDP, CDDP_F32);
    assert_same_bytes("from-even", "from-odd");
}

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
    support_write_file(in_folder("bin"), all, bytes - (PADDED - VOCAB) * row);
    free(all);
    assert_loads("bin");
}

static void a_shorter_context_takes_the_first_positions(void **state)
{
    static struct params params;
    struct cddpi_gpt2_shape shorter = small;

    (void)state;
    shorter.context = CONTEXT - 2;
    write_cddp("begin");
    make_params(&params, &shorter, false);
    assert_int_equal(cddpi_weights_load(in_folder("begin"), HEADS, params.tensors, params.count),
                     CDDP_OK);
    assert_filled(&params);
}

static int64_t heads_of(const char *name)
{
    struct cddpi_weights *weights = NULL;
    int64_t heads;

    if (cddpi_weights_open(in_folder(name), &weights) != CDDP_OK) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_format_gives_every_other_to_the_bit),
        IN_FOLDER(hugging_face_files_are_read_with_and_without_prefix_masks_and_head),
        IN_FOLDER(numbers_of_16_bits_are_converted),
        IN_FOLDER(a_file_of_16_bits_at_odd_addresses_is_read),
        IN_FOLDER(an_llmc_file_has_its_header_its_order_and_a_padded_vocabulary),
        IN_FOLDER(llmc_files_may_be_padded_otherwise_or_not_at_all),
        IN_FOLDER(a_shorter_context_takes_the_first_positions),
        IN_FOLDER(heads_come_from_what_lies_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
