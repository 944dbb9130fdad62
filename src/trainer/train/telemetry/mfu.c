/* mfu.c - owns the table of published peak rates. */
#include "train/telemetry/mfu.h"

#include <string.h>

/* TFLOP/s from NVIDIA's datasheets and whitepapers, without sparsity, with float32 sums (GeForce
 * cards reach half the rate with those). A device has the first row whose words are all in its
 * name, so longer names come first. */
static const struct {
    const char *words[2]; /* the second may be NULL */
    double half;          /* bf16 and f16 on tensor cores */
    double single;        /* float32, not rounded to TF32 */
} rates[] = {
    {{"GB200", NULL}, 2500, 80},       {{"B200", NULL}, 2250, 75},
    {{"B100", NULL}, 1750, 60},        {{"GH200", NULL}, 989.4, 66.9},
    {{"H200", "NVL"}, 835.5, 60},      {{"H200", NULL}, 989.4, 66.9},
    {{"H20", NULL}, 148, 44},          {{"H100", "PCIe"}, 756, 51.2},
    {{"H100", "NVL"}, 835.5, 60},      {{"H100", NULL}, 989.4, 66.9},
    {{"H800", "PCIe"}, 756, 51.2},     {{"H800", NULL}, 989.4, 66.9},
    {{"A100", NULL}, 312, 19.5},       {{"A800", NULL}, 312, 19.5},
    {{"A10G", NULL}, 70, 31.5},        {{"A10", NULL}, 125, 31.2},
    {{"A30", NULL}, 165, 10.3},        {{"A40", NULL}, 149.7, 37.4},
    {{"A6000", NULL}, 154.8, 38.7},    {{"L40S", NULL}, 362.05, 91.6},
    {{"L40", NULL}, 181.05, 90.5},     {{"L4", NULL}, 121, 30.3},
    {{"6000 Ada", NULL}, 364.2, 91.1}, {{"5090", NULL}, 209.5, 104.8},
    {{"5080", NULL}, 112.6, 56.3},     {{"4090", NULL}, 165.2, 82.6},
    {{"4080", "SUPER"}, 104.4, 52.2},  {{"4080", NULL}, 97.5, 48.7},
    {{"3090 Ti", NULL}, 80, 40},       {{"3090", NULL}, 71, 35.6},
};

/* Whether @p word is in @p title as a whole word: A10 is not in A100. */
static bool names(const char *title, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(title, word); at != NULL; at = strstr(at + 1, word)) {
        bool begins = at == title || at[-1] == ' ' || at[-1] == '-';
        bool ends = at[length] == '\0' || at[length] == ' ' || at[length] == '-';

        if (begins && ends) {
            return true;
        }
    }
    return false;
}

double cddpi_peak_flops(const char *title, enum cddpi_precision precision)
{
    if (names(title, "Laptop") || names(title, "MIG")) {
        return 0; /* the row's words fit, but this is a part of the card, or a slower variant */
    }
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (names(title, rates[i].words[0]) &&
            (rates[i].words[1] == NULL || names(title, rates[i].words[1]))) {
            return 1e12 * (precision == CDDPI_PRECISION_F32 ? rates[i].single : rates[i].half);
        }
    }
    return 0;
}

double cddpi_mfu(double work, double samples_per_s, int devices, double peak)
{
    return peak > 0 ? 6 * work * samples_per_s / (devices * peak) : 0;
}
