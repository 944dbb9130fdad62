/* train_cuda.c - runs of the real programs on CUDA devices, real or emulated by the module for
 * tests. */
#include "support/train_cuda.h"

int make_devices(void **state)
{
    char text[4000];
    char conf[6000];
    size_t used = 0;
    uint32_t random = 1;
    int bytes;

    setenv("CDDP_FAKE_CUDA_DEVICES", "8", !gpu_is_real());
    if (make_work(state) != 0) {
        return 1;
    }
    while (used + 5 < sizeof text) {
        static const char *const words[] = {"abcd ", "efgh ", "ijkl ", "mnop "};

        random = random * 1664525u + 1013904223u;
        memcpy(text + used, words[random >> 30], 5);
        used += 5;
    }
    support_write_file(in_work("words.txt"), text, used);
    bytes = snprintf(conf, sizeof conf,
                     "data = { type = \"text\"; train = \"%s\"; };\n"
                     "model = { type = \"gpt2\"; blocks = 1; heads = 2; embed = 8; context = 7;"
                     " dropout = 0.1; };\n"
                     "train = { epochs = 1; batch_size = 12; accumulate = 2; clip_norm = 0.5;"
                     " eval_batch_size = 12; eval_batches = 2; log_steps = 1; max_steps = 6;"
                     " checkpoint_seconds = 0.0; generate_steps = 3; generate_tokens = 6;"
                     " generate_temperature = 0.0; };\n"
                     "optimizer = { type = \"adamw\"; lr = 0.01; weight_decay = 0.1; };\n",
                     in_work("words.txt"));
    support_write_file(in_work("text.conf"), conf, (size_t)bytes);
    return 0;
}

int ranks_up_to(int most)
{
    return gpu_is_real() && most > 2 ? 2 : most;
}

struct run run_named(const char *conf, int ranks, const char *name, const char *device,
                     const char *const *arguments)
{
    struct run_options options = {
        .ranks = ranks, .conf = conf, .arguments = {run_dir_argument(name), device}};

    struct run run;

    for (int i = 0; arguments != NULL && i < MOST_ARGUMENTS && arguments[i] != NULL; i++) {
        options.arguments[2 + i] = arguments[i];
    }
    if (gpu_is_real() && strcmp(device, CUDA) == 0 && ranks > gpu_count()) {
        setenv("CDDP_BACKEND", gpu_nccl_shares() ? "nccl" : "host", 1);
        run = run_well(&options);
        unsetenv("CDDP_BACKEND");
        return run;
    }
    return run_well(&options);
}

void assert_close(const char *run_a, const char *run_b, uint64_t step, const char *name,
                  double tolerance)
{
    double expected = metric(run_a, step, name);
    double got = metric(run_b, step, name);

    tolerance *= gpu_is_real() ? 20 : 1; /* a GPU sums in another order */
    if (!(fabs(got - expected) <= tolerance * fabs(expected))) {
        fail_msg("step %llu: %s is %.9g in %s, but %.9g in %s", (unsigned long long)step, name,
                 expected, run_a, got, run_b);
    }
}

void assert_same_steps(const char *run_a, const char *run_b, uint64_t first, uint64_t last,
                       double tolerance)
{
    for (uint64_t step = first; step <= last; step++) {
        assert_close(run_a, run_b, step, "loss", tolerance);
        assert_close(run_a, run_b, step, "grad_norm", 10 * tolerance);
    }
}
