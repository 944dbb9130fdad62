/* view.c - owns the choice of the part of an image for training or evaluation. */
#include "data/images/view.h"

#include "base/philox.h"

#include <math.h>

enum { TRIES = 10 };

/* A sample's Philox counter: the upper bits say what is drawn, the lower bits are the sample. */
static void draw(struct cddpi_view_key key, uint64_t use, uint32_t out[4])
{
    struct cddpi_philox stream = cddpi_philox_stream(key.seed, CDDPI_RANDOM_AUGMENT,
                                                     (uint32_t)(key.epoch ^ key.epoch >> 32));

    cddpi_philox4(&stream, key.sample | use << 56, out);
}

static double between(uint32_t word, double low, double high)
{
    return low + (high - low) * (word / 4294967296.0);
}

static int below(uint32_t word, int limit)
{
    return (int)((uint64_t)word * (uint32_t)limit >> 32);
}

/* The largest centred part whose aspect ratio is allowed. */
static void middle(const double ratios[2], struct cddpi_image_view *view, int width, int height)
{
    double ratio = (double)width / height;

    view->width = width;
    view->height = height;
    if (ratio < ratios[0]) {
        view->height = (int)rint(width / ratios[0]);
    } else if (ratio > ratios[1]) {
        view->width = (int)rint(height * ratios[1]);
    }
    view->left = (width - view->width) / 2;
    view->top = (height - view->height) / 2;
}

struct cddpi_image_view cddpi_view_at_random(struct cddpi_view_key key, int width, int height,
                                             int size, const double area[2], bool *out_flip)
{
    static const double ratios[2] = {3.0 / 4, 4.0 / 3};
    struct cddpi_image_view view = {
        .whole_width = size, .whole_height = size, .window_width = size, .window_height = size};
    uint32_t random[4];

    draw(key, TRIES, random);
    *out_flip = random[0] >> 31;
    for (uint64_t i = 0; i < TRIES; i++) {
        double pixels, ratio;

        draw(key, i, random);
        pixels = (double)width * height * between(random[0], area[0], area[1]);
        ratio = exp(between(random[1], log(ratios[0]), log(ratios[1])));
        view.width = (int)rint(sqrt(pixels * ratio));
        view.height = (int)rint(sqrt(pixels / ratio));
        if (view.width > 0 && view.width <= width && view.height > 0 && view.height <= height) {
            view.left = below(random[2], width - view.width + 1);
            view.top = below(random[3], height - view.height + 1);
            return view;
        }
    }
    middle(ratios, &view, width, height);
    return view;
}

struct cddpi_image_view cddpi_view_of_center(int width, int height, int resize, int size)
{
    struct cddpi_image_view view = {.width = width,
                                    .height = height,
                                    .whole_width = resize,
                                    .whole_height = resize,
                                    .window_width = size,
                                    .window_height = size};

    if (width < height) {
        view.whole_height = (int)((double)resize * height / width);
    } else {
        view.whole_width = (int)((double)resize * width / height);
    }
    view.window_left = (int)rint((view.whole_width - size) / 2.0);
    view.window_top = (int)rint((view.whole_height - size) / 2.0);
    return view;
}
