/* safetensors.c - a folder with safetensors files, for tests. */
#include "support/safetensors.h"

char *dir;
char path[5000];

int make_dir(void **state)
{
    (void)state;
    dir = support_mkdtemp();
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    return dir == NULL;
}

int remove_dir(void **state)
{
    (void)state;
    support_rmdir(dir);
    return 0;
}

float weights[6] = {1, -2, 3.5f, 4, 5, 6};
int64_t counter = 1234567890123;
static unsigned char bytes[3] = {7, 8, 9};
static uint16_t halves[4] = {0x3c00, 0x4000, 0xbc00, 0x7e00};
static double doubles[2] = {0.1, -1e300};
static int32_t numbers[2] = {-5, 6};

const cddp_tensor tensors[TENSORS] = {
    {.name = "w", .dims = 2, .shape = {2, 3}, .data = weights},
    {.name = "step", .type = CDDP_I64, .data = &counter},
    {.name = "none", .dims = 2, .shape = {0, 5}},
    {.name = "mask", .type = CDDP_U8, .dims = 1, .shape = {3}, .data = bytes},
    {.name = "half", .type = CDDP_F16, .dims = 2, .shape = {2, 2}, .data = halves},
    {.name = "brain\"\xc3\xa4\n", .type = CDDP_BF16, .dims = 1, .shape = {4}, .data = halves},
    {.name = "d", .type = CDDP_F64, .dims = 1, .shape = {2}, .data = doubles},
    {.name = "i", .type = CDDP_I32, .dims = 1, .shape = {2}, .data = numbers},
};

void put_file(const void *data, size_t size)
{
    support_write_file(path, data, size);
}

void put_safetensors(const char *json, uint64_t length, size_t data_bytes)
{
    size_t text = strlen(json);
    unsigned char *all = calloc(1, 8 + text + data_bytes + 1);

    for (int i = 0; i < 8; i++) {
        all[i] = (unsigned char)(length >> 8 * i);
    }
    memcpy(all + 8, json, text);
    put_file(all, 8 + text + data_bytes);
    free(all);
}
