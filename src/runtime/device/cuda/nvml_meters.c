/* nvml_meters.c - asks NVML for what it measures on a card. A card or a version of NVML may lack
 * any of it. */
#include "device/cuda/nvml.h"
#include "device/device.h"

#include <math.h>
#include <pthread.h>

struct nvml_memory {
    unsigned long long total, free, used;
};

enum {
    MIB_BITS = 20,
    CLOCK_COMPUTE = 1,
    CLOCK_MEMORY = 2,
    TEMPERATURE_CHIP = 0,
    ERRORS_CORRECTED = 0,
    ERRORS_UNCORRECTED = 1,
    SINCE_RESET = 0
};

/* NVML's reasons why clocks are low; idle cards, and clocks that somebody has set, are not slowed
 * down. */
enum {
    REASON_POWER_CAP = 0x4,
    REASON_SLOWDOWN = 0x8, /* also set with the two below */
    REASON_HEAT = 0x20,
    REASON_HARDWARE_HEAT = 0x40,
    REASON_BRAKE = 0x80
};

/* member, symbol, parameters */
#define METERS(X)                                                                                  \
    X(memory, nvmlDeviceGetMemoryInfo, (nvml_device device, struct nvml_memory * out))             \
    X(clock, nvmlDeviceGetClockInfo, (nvml_device device, int which, unsigned *out_mhz))           \
    X(power, nvmlDeviceGetPowerUsage, (nvml_device device, unsigned *out_mw))                      \
    X(limit, nvmlDeviceGetEnforcedPowerLimit, (nvml_device device, unsigned *out_mw))              \
    X(temperature, nvmlDeviceGetTemperature, (nvml_device device, int where, unsigned *out))       \
    X(reasons, nvmlDeviceGetCurrentClocksEventReasons,                                             \
      (nvml_device device, unsigned long long *out))                                               \
    X(old_reasons, nvmlDeviceGetCurrentClocksThrottleReasons,                                      \
      (nvml_device device, unsigned long long *out))                                               \
    X(errors, nvmlDeviceGetTotalEccErrors,                                                         \
      (nvml_device device, int type, int counter, unsigned long long *out))

#define METER_MEMBER(member, symbol, parameters) int(*member) parameters; /* NULL: not there */

static struct {
    METERS(METER_MEMBER)
} nvml;

static void look_up(void)
{
#define METER_LOOK_UP(member, symbol, parameters)                                                  \
    *(void **)&nvml.member = cuda_nvml_symbol(#symbol);
    METERS(METER_LOOK_UP)
    if (nvml.reasons == NULL) {
        nvml.reasons = nvml.old_reasons; /* its name before driver 535 */
    }
}

static double thousandth(int (*meter)(nvml_device device, unsigned *out), nvml_device device)
{
    unsigned value;

    return meter != NULL && meter(device, &value) == 0 ? value * 1e-3 : NAN;
}

static double of_kind(int (*meter)(nvml_device device, int which, unsigned *out),
                      nvml_device device, int which)
{
    unsigned value;

    return meter != NULL && meter(device, which, &value) == 0 ? value : NAN;
}

static double errors_of(nvml_device device, int type)
{
    unsigned long long count;

    return nvml.errors != NULL && nvml.errors(device, type, SINCE_RESET, &count) == 0
               ? (double)count
               : NAN;
}

static unsigned throttle_of(nvml_device device)
{
    unsigned long long reasons = 0;
    bool is_hot;
    bool is_braked;

    if (nvml.reasons == NULL || nvml.reasons(device, &reasons) != 0) {
        return 0;
    }
    is_hot = (reasons & (REASON_HEAT | REASON_HARDWARE_HEAT)) != 0;
    is_braked = (reasons & REASON_BRAKE) != 0;
    return ((reasons & REASON_POWER_CAP) != 0 ? CDDPI_THROTTLE_POWER : 0U) |
           (is_hot ? CDDPI_THROTTLE_HEAT : 0U) | (is_braked ? CDDPI_THROTTLE_BRAKE : 0U) |
           ((reasons & REASON_SLOWDOWN) != 0 && !is_hot && !is_braked ? CDDPI_THROTTLE_HARDWARE
                                                                      : 0U);
}

bool cuda_nvml_measure(const struct cuda_nvml_card *card, struct cddpi_device_meters *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    nvml_device device = card->device;
    struct nvml_memory memory;

    (void)pthread_once(&once, look_up);
    *out = (struct cddpi_device_meters){
        .memory_mib = NAN,
        .memory_total_mib = NAN,
        .clock_mhz = of_kind(nvml.clock, device, CLOCK_COMPUTE),
        .memory_clock_mhz = of_kind(nvml.clock, device, CLOCK_MEMORY),
        .power_w = thousandth(nvml.power, device),
        .power_limit_w = thousandth(nvml.limit, device),
        .temperature_c = of_kind(nvml.temperature, device, TEMPERATURE_CHIP),
        .corrected = errors_of(device, ERRORS_CORRECTED),
        .uncorrected = errors_of(device, ERRORS_UNCORRECTED),
        .throttle = throttle_of(device),
    };
    if (nvml.memory != NULL && nvml.memory(device, &memory) == 0) {
        out->memory_mib = (double)(memory.used >> MIB_BITS);
        out->memory_total_mib = (double)(memory.total >> MIB_BITS);
    }
    return isfinite(out->memory_mib) || isfinite(out->clock_mhz) || isfinite(out->power_w) ||
           isfinite(out->temperature_c);
}
