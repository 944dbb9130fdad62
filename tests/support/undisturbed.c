/* undisturbed.c - compares a disturbed run with an undisturbed one. */
#include "support/undisturbed.h"

#include "support/launcher.h"

void undisturbed_write_conf(const char *folder)
{
    launcher_write(
        folder, "t.conf",
        "data = { type = \"synthetic\"; samples = 240; classes = 4; image = [1, 8, 8]; };\n"
        "model = { type = \"mlp\"; hidden = [24, 20]; dropout = 0.2; };\n"
        "train = { epochs = 1000; max_steps = 1000; batch_size = 24; micro_batch = 3;"
        " checkpoint_steps = 20; checkpoint_seconds = 0.0; keep = 0; eval_epochs = 1000; };\n"
        "optimizer = { type = \"sgd\"; lr = 0.05; momentum = 0.9; };\n");
}

void undisturbed_await_checkpoint(const char *folder)
{
    char path[4300];

    snprintf(path, sizeof path, "%s/run/checkpoints/step-00000020", folder);
    for (int ms = 0; access(path, F_OK) != 0; ms += 5) {
        if (ms >= SUPPORT_LIMIT_S * 1000) {
            fail_msg("%s did not come", path);
        }
        support_sleep_ms(5);
    }
}

void undisturbed_compare(const char *folder)
{
    static const char *const names[] = {"model", "optimizer"};
    struct launched alone = {.dir = NULL};
    char path[4300];
    char command[9000];

    snprintf(path, sizeof path, "%s/t.conf", folder);
    LAUNCH(&alone, "--nproc", "1", "--run-dir", "run", path);
    assert_int_equal(alone.exit_status, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command,
                 "cmp %s/run/checkpoints/step-00001000/%s.safetensors "
                 "%s/run/checkpoints/step-00001000/%s.safetensors",
                 folder, names[i], alone.dir, names[i]);
        assert_int_equal(system(command), 0);
    }
    launcher_end(&alone);
}
