/* test_verify.c - cddp-convert --verify: what is whole, what is damaged, and what it says. */
#include "support/train.h"

static char *said;

/* Run cddp-convert --verify on @p path in the test's folder. Returns its exit status; `said` is
 * what it printed. */
static int verify(const char *path)
{
    int status = system(argument("cd %s && %s/src/cddp-convert --verify %s > said 2>&1",
                                 in_work("."), getenv("CDDP_TEST_BUILD"), path));

    free(said);
    said = get_file(in_work("said"), NULL);
    return WEXITSTATUS(status);
}

static void assert_said(const char *words)
{
    if (strstr(said, words) == NULL) {
        fail_msg("it lacks \"%s\": %s", words, said);
    }
}

/* A run with checkpoints of steps 10, 20 and 30. */
static void train(const char *name)
{
    struct run_options options = {.ranks = 1,
                                  .arguments = {run_dir_argument(name), "train.keep=0",
                                                "train.checkpoint_steps=10", "train.max_steps=30",
                                                "train.epochs=5"}};

    run_well(&options);
}

/* Change the byte at @p offset (from the end, if negative) of a file of the checkpoint of
 * @p step. */
static void damage(const char *run, int step, const char *file, long offset)
{
    FILE *stream = fopen(in_work("%s/checkpoints/step-%08d/%s", run, step, file), "r+e");
    int byte;

    assert_non_null(stream);
    assert_int_equal(fseek(stream, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    byte = fgetc(stream);
    assert_int_equal(fseek(stream, -1, SEEK_CUR), 0);
    fputc(byte ^ 1, stream);
    assert_int_equal(fclose(stream), 0);
}

static void a_sound_run_is_whole(void **state)
{
    static const char *const paths[] = {"sound", "sound/checkpoints",
                                        "sound/checkpoints/step-00000020"};

    (void)state;
    train("sound");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(verify(paths[i]), 0);
        assert_said("checkpoints/step-00000020: whole: step 20, model 4 tensors (4432 bytes), ");
        assert_int_equal(strstr(said, "step-00000010: whole") != NULL, i < 2);
        assert_int_equal(strstr(said, "step-00000030: whole") != NULL, i < 2);
    }
    assert_int_equal(verify("sound/checkpoints/step-00000020/model.safetensors"), 0);
    assert_said("whole, but without a checksum: 4 tensors");
}

static void damage_anywhere_is_found_and_named(void **state)
{
    static const struct {
        const char *file;
        long offset;
        const char *words;
    } damages[] = {
        {"model.safetensors", -1, "/model.safetensors: its contents do not match their checksum"},
        {"optimizer.safetensors", 9, "/optimizer.safetensors: its contents do not match"},
        {"optimizer.safetensors", -100, "/optimizer.safetensors: its contents do not match"},
        {"state.json", 40, "state.json"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const char *run = argument("damaged-%zu", i);

        train(run);
        damage(run, 30, damages[i].file, damages[i].offset);
        assert_int_equal(verify(run), 1);
        assert_said("step-00000030: DAMAGED: ");
        assert_said(damages[i].words);
        assert_said("step-00000020: whole");
        assert_said("1 of 3 checkpoints is damaged, the newest, too; a run goes on from "
                    "step-00000020\n");
        assert_int_equal(verify(argument("%s/checkpoints/step-00000030", run)), 1);
        assert_said(damages[i].words);
        damage(run, 10, damages[i].file, damages[i].offset);
        damage(run, 20, damages[i].file, damages[i].offset);
        assert_int_equal(verify(run), 1);
        assert_said("no checkpoint is whole");
    }
}

static void what_is_missing_or_cut_off_is_named(void **state)
{
    (void)state;
    train("missing");
    assert_int_equal(unlink(in_work("missing/checkpoints/step-00000010/optimizer.safetensors")), 0);
    assert_int_equal(truncate(in_work("missing/checkpoints/step-00000020/model.safetensors"), 600),
                     0);
    assert_int_equal(rename(in_work("missing/checkpoints/step-00000030"),
                            in_work("missing/checkpoints/step-00000031")),
                     0);
    assert_int_equal(verify("missing"), 1);
    assert_said("step-00000010: DAMAGED: ");
    assert_said("optimizer.safetensors");
    assert_said("model.safetensors: 600 bytes, but ");
    assert_said("its state is that of step 30");
    assert_int_equal(verify("missing/checkpoints/step-00000020/model.safetensors"), 1);
    assert_int_equal(verify("nowhere"), 1);
    assert_said("nowhere");
    assert_int_equal(mkdir(in_work("empty"), 0700), 0);
    assert_int_equal(verify("empty"), 1);
    assert_said("there are no checkpoints");
    assert_int_equal(mkdir(in_work("empty/step-00000001"), 0700), 0);
    assert_int_equal(mkfifo(in_work("empty/step-00000001/state.json"), 0600), 0);
    assert_int_equal(verify("empty"), 1);
    assert_said("step-00000001: DAMAGED: ");
}

/* Write a checkpoint with the right checksums. */
static void write_checkpoint(const char *dir, float value, int64_t moments)
{
    static float data[3];
    static float moment[4];
    const cddp_tensor model = {
        .name = "fc.weight", .type = CDDP_F32, .dims = 1, .shape = {3}, .data = data};
    const cddp_tensor optimizer = {.name = "momentum.fc.weight",
                                   .type = CDDP_F32,
                                   .dims = 1,
                                   .shape = {moments},
                                   .data = moment};
    cddp_snapshot snapshot = CDDP_SNAPSHOT_INIT;

    data[1] = value;
    snapshot.step = 5;
    snapshot.model = &model;
    snapshot.model_count = 1;
    snapshot.optimizer = &optimizer;
    snapshot.optimizer_count = 1;
    snapshot.state_json = "{}";
    assert_int_equal(cddp_snapshot_write(in_work("%s", dir), &snapshot, NULL, NULL), CDDP_OK);
}

static void numbers_that_are_none_and_wrong_shapes_are_found(void **state)
{
    (void)state;
    write_checkpoint("good", 1.0f, 3);
    assert_int_equal(verify("good"), 0);
    write_checkpoint("nan", NAN, 3);
    assert_int_equal(verify("nan"), 1);
    assert_said("a run goes on from step-00000005, although it is damaged, since its checksums are "
                "right");
    assert_said("element 1 of 3 of tensor \"fc.weight\" is NaN or Inf");
    assert_int_equal(verify("nan/step-00000005/model.safetensors"), 1);
    assert_said("element 1 of 3 of tensor \"fc.weight\" is NaN or Inf");
    write_checkpoint("infinite", -INFINITY, 3);
    assert_int_equal(verify("infinite"), 1);
    write_checkpoint("shapes", 1.0f, 4);
    assert_int_equal(verify("shapes"), 1);
    assert_said("tensor \"momentum.fc.weight\" of the optimizer is f32 [4], but its parameter is "
                "f32 [3]");
}

static void numbers_of_all_types_are_looked_at(void **state)
{
    static const struct {
        cddp_type type;
        size_t bytes;
        uint64_t largest; /* the bits of the largest number; the next one is infinite */
    } types[] = {{CDDP_F32, 4, 0x7f7fffff},
                 {CDDP_F64, 8, 0x7fefffffffffffff},
                 {CDDP_F16, 2, 0x7bff},
                 {CDDP_BF16, 2, 0x7f7f}};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const uint64_t sign = UINT64_C(1) << (8 * types[t].bytes - 1);
        const struct {
            uint64_t bits;
            bool is_number;
        } values[] = {
            {types[t].largest, true},      {types[t].largest | sign, true},
            {types[t].largest + 1, false}, {(types[t].largest + 1) | sign, false},
            {types[t].largest + 2, false}, {sign - 1, false},
        };

        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            unsigned char data[5 * 8] = {0};
            const cddp_tensor tensor = {
                .name = "w", .type = types[t].type, .dims = 1, .shape = {5}, .data = data};
            const char *path = in_work("type-%zu-%zu.safetensors", t, v);

            memcpy(data + 3 * types[t].bytes, &values[v].bits, types[t].bytes);
            assert_int_equal(cddp_safetensors_write(path, &tensor, 1, NULL), CDDP_OK);
            assert_int_equal(verify(path), values[v].is_number ? 0 : 1);
            assert_said(values[v].is_number ? "whole, but without a checksum: 1 tensors"
                                            : "element 3 of 5 of tensor \"w\" is NaN or Inf");
        }
    }
}

static void what_is_being_written_is_left_alone(void **state)
{
    (void)state;
    train("writing");
    assert_int_equal(mkdir(in_work("writing/checkpoints/.step-00000040.tmp-5"), 0700), 0);
    assert_int_equal(verify("writing"), 0);
    assert_said(".step-00000040.tmp-5: not looked at");
}

static void options_that_have_no_meaning_with_it_are_refused(void **state)
{
    (void)state;
    assert_int_equal(verify("a b"), 2);
    assert_said("--verify needs one file or folder");
    assert_int_equal(verify("--to hf a"), 2);
    assert_said("--to has no meaning with --verify");
    assert_int_equal(verify("--info a"), 2);
    assert_said("--info has no meaning with --verify");
}

static int remove_all(void **state)
{
    free(said);
    return remove_work(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_run_is_whole),
        cmocka_unit_test(damage_anywhere_is_found_and_named),
        cmocka_unit_test(what_is_missing_or_cut_off_is_named),
        cmocka_unit_test(numbers_that_are_none_and_wrong_shapes_are_found),
        cmocka_unit_test(numbers_of_all_types_are_looked_at),
        cmocka_unit_test(what_is_being_written_is_left_alone),
        cmocka_unit_test(options_that_have_no_meaning_with_it_are_refused),
    };

    return cmocka_run_group_tests(tests, make_work, remove_all);
}
