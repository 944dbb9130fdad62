/* gan.c - runs of dcgan on small images, and the values of PyTorch's example on the same images. */
#include "support/gan.h"

static void write_idx(const char *name, int dims, uint32_t count)
{
    size_t area = dims == 3 ? GAN_SIDE * GAN_SIDE : 1;
    size_t head = 4 + 4 * (size_t)dims;
    uint8_t *file = calloc(1, head + count * area);
    const uint32_t sizes[] = {count, GAN_SIDE, GAN_SIDE};

    file[2] = 8;
    file[3] = (uint8_t)dims;
    for (int d = 0; d < dims; d++) {
        file[4 + 4 * d + 2] = (uint8_t)(sizes[d] >> 8);
        file[4 + 4 * d + 3] = (uint8_t)sizes[d];
    }
    for (uint32_t n = 0; n < count; n++) {
        for (uint32_t i = 0; i < area; i++) {
            uint32_t y = i / GAN_SIDE;
            uint32_t x = i % GAN_SIDE;

            file[head + n * area + i] = dims == 1
                                            ? n % 3
                                            : (uint8_t)(n * 37 + y * 11 + x * 7 * (n % 5 + 1));
        }
    }
    support_write_file(in_work("%s", name), file, head + count * area);
    free(file);
}

int make_gan_work(void **state)
{
    char text[4096];

    if (make_work(state) != 0) {
        return 1;
    }
    write_idx("gan-images", 3, GAN_SAMPLES);
    write_idx("gan-labels", 1, GAN_SAMPLES);
    write_idx("gan-test-images", 3, GAN_TESTED);
    write_idx("gan-test-labels", 1, GAN_TESTED);
    snprintf(
        text, sizeof text,
        "model = { type = \"dcgan\"; latent = 6; generator_units = 4; discriminator_units = 4; };\n"
        "data = { type = \"idx\"; train_images = \"%s\"; train_labels = \"%s\";\n"
        "  test_images = \"%s\"; test_labels = \"%s\"; mean = 0.5; std = 0.5;\n"
        "  order = \"sequential\"; threads = 0; };\n"
        "train = { batch_size = 12; seed = 3; device = \"cpu\"; log_steps = 1; };\n"
        "optimizer = { type = \"adamw\"; lr = 2e-3; beta1 = 0.5; };\n",
        in_work("gan-images"), in_work("gan-labels"), in_work("gan-test-images"),
        in_work("gan-test-labels"));
    support_write_file(in_work("gan.conf"), text, strlen(text));
    return 0;
}

void expect_pytorchs_steps(const char *run_dir, int ranks, double tolerance)
{
    static const char *const names[] = {"loss_d", "loss_g", "d_real", "d_fake"};
    char path[4096];
    char line[256];
    int section = 0;
    int seen = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/vectors/dcgan_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned step;
        double values[4];

        (void)sscanf(line, "ranks %d", &section);
        if (section != ranks || sscanf(line, "step %u %lf %lf %lf %lf", &step, &values[0],
                                       &values[1], &values[2], &values[3]) != 5) {
            continue;
        }
        for (int i = 0; i < 4; i++) {
            double is = metric(run_dir, step, names[i]);

            if (!(fabs(is - values[i]) <= tolerance)) {
                fail_msg("%d ranks, step %u: %s is %.9g, PyTorch says %.9g", ranks, step, names[i],
                         is, values[i]);
            }
        }
        seen++;
    }
    fclose(file);
    assert_int_equal(seen, GAN_STEPS);
}
