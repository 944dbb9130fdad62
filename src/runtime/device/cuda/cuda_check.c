/* cuda_check.c - words the failures of the module, and looks up driver functions. */
#include "device/cuda/card_health.h"
#include "device/cuda/cuda_internal.h"

#include "base/launcher_report.h"

#include <stdio.h>
#include <string.h>

/* How long the driver may need to tell of an Xid error after CUDA has failed. */
enum { XID_MS = 200 };

cddp_status cuda_word_failure(const struct cddpi_device *device, cddp_status status,
                              const char *text)
{
    return cddpi_fail_rank(status, device->rank, "cuda:%d: %s", device->index, text);
}

/* The part of a path below the source folder, which is the part useful to a reader. */
static const char *short_path(const char *file)
{
    static const char *const tops[] = {"src/", "kernels/", "tests/"};

    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        const char *at = strstr(file, tops[i]);

        if (at != NULL && (at == file || at[-1] == '/')) {
            return at;
        }
    }
    return file;
}

static cddp_status status_of(cudaError_t error)
{
    if (error == cudaErrorMemoryAllocation) {
        return CDDP_ERR_NO_MEMORY;
    }
    /* the errors for work that cannot be captured */
    if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent) {
        return CDDP_ERR_UNAVAILABLE;
    }
    return CDDP_ERR_DEVICE;
}

/* What an error means for the user, where CUDA's own text does not say it. */
static const char *advice(cudaError_t error)
{
    switch (error) {
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no code for this card: build with -Dgpu_arch=...";
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInsufficientDriver:
        return "; the driver is older than the CUDA this was built with: update the driver";
    case cudaErrorDevicesUnavailable:
        return "; another process holds the device (compute mode exclusive?)";
    case cudaErrorInitializationError:
        return "; CUDA was used before this process was forked, or the driver is broken";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
        return "; earlier work may be the cause: CUDA_LAUNCH_BLOCKING=1 shows which; lines with "
               "Xid "
               "in `dmesg` tell a failed card";
    case cudaErrorECCUncorrectable:
        return "; the card's memory has failed, not the program: `nvidia-smi -q -d ECC` and lines "
               "with Xid in `dmesg` say more. Reset the card, or leave it out "
               "(CUDA_VISIBLE_DEVICES)";
    case cudaErrorNvlinkUncorrectable:
        return "; an NVLink has failed, not the program: `nvidia-smi nvlink -e` and lines with Xid "
               "in `dmesg` say more. Reset the cards, or leave them out (CUDA_VISIBLE_DEVICES)";
    case cudaErrorHardwareStackError:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12090
    case cudaErrorContained:
#endif
        return "; the card itself may have failed: look for lines with Xid in `dmesg`";
    default:
        return "";
    }
}

/* Whether the context is lost, so that the card itself may be the cause. */
static bool ends_context(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12090
    case cudaErrorContained:
#endif
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

static const struct cuda_device *own(const struct cddpi_device *device)
{
    return (const struct cuda_device *)(const void *)device;
}

/* Find out what is wrong with the card. If it is ill, the launcher lets no rank of a further
 * generation compute on it. */
static void find_faults(const struct cddpi_device *device, unsigned wait_ms,
                        char faults[CUDA_CARD_TEXT_BYTES])
{
    char unique[sizeof device->unique + 16];

    if (cuda_card_faults(own(device)->card, wait_ms, faults)) {
        snprintf(unique, sizeof unique, "%s/%d", device->unique, own(device)->seen);
        cddpi_launcher_report_card(device->rank, device->index, unique, faults);
    }
}

void cuda_faults(const struct cddpi_device *device, char *out, size_t bytes)
{
    char faults[CUDA_CARD_TEXT_BYTES];

    find_faults(device, 0, faults);
    snprintf(out, bytes, "%s", faults);
}

bool cuda_meters(struct cddpi_device *device, struct cddpi_device_meters *out)
{
    return cuda_card_meters(own(device)->card, out);
}

cddp_status cuda_failed_call(const struct cddpi_device *device, cudaError_t error, const char *call,
                             const char *file, int line)
{
    char faults[CUDA_CARD_TEXT_BYTES] = "";

    /* Clear the error, so that the next check of a launch does not report it again. */
    (void)cudaGetLastError();
    if (ends_context(error)) {
        find_faults(device, XID_MS, faults);
    }
    return cuda_fail(device, status_of(error), "%s at %s:%d: %s (%s)%s%s%s", call, short_path(file),
                     line, cudaGetErrorString(error), cudaGetErrorName(error),
                     faults[0] != '\0' ? "; " : "", faults, advice(error));
}

/* The module does not link libcuda, so that it can be opened without a driver and say what is
 * missing: driver functions are looked up through the runtime. */
void *cuda_driver_symbol(const char *name)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
#if CUDART_VERSION >= 12050
    /* 12000: the functions' form in CUDA 12.0, the oldest driver that this module supports */
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault,
                                                         &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return found == cudaDriverEntryPointSuccess ? function : NULL;
}
