/* cuda_describe.c - writes what `cddp-run --check` prints about CUDA. */
#include "device/cuda/card_health.h"
#include "device/cuda/cuda_internal.h"
#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A text buffer; text that does not fit is cut off. */
struct cuda_describe_page {
    char *text;
    size_t bytes;
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void line(struct cuda_describe_page *page,
                                                       const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(page->text + page->length, page->bytes - page->length, format, arguments);
    va_end(arguments);
    if (length > 0) {
        page->length += (size_t)length;
        page->length = page->length < page->bytes ? page->length : page->bytes - 1;
    }
}

static void describe_driver(struct cuda_describe_page *page)
{
    int driver = 0;

    (void)cudaDriverGetVersion(&driver);
    line(page, "%-14s %d.%d\n", "runtime", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (driver == 0) {
        line(page, "%-14s no: there is no libcuda.so.1\n", "driver");
    } else {
        line(page, "%-14s supports CUDA %d.%d\n", "driver", driver / 1000, driver % 1000 / 10);
    }
}

/* Write what is known to hang in NCCL of this version. */
static void describe_hangs(struct cuda_describe_page *page, size_t version)
{
    if (version > 0 && version < 23200) {
        line(page,
             "%-14s between hosts, before 2.32: exchanges of registered memory may hang "
             "(NVIDIA/nccl issue 2389);\n%-14s there cddp sets NCCL_LOCAL_REGISTER=0 and "
             "NCCL_GRAPH_REGISTER=0\n",
             "", "");
    }
#ifdef __aarch64__
    if (version > 0 && version < 22903) {
        line(page, "%-14s on Arm (GH200, GB200), before 2.29.3: runs may hang\n", "");
    }
#endif
}

/* Write a library's version (decoded from a number such as 13 01 00) and file, or why it is
 * missing. */
static void describe_library(struct cuda_describe_page *page, const char *name,
                             enum cuda_library which, const char *symbol)
{
    size_t (*version)(void);
    int (*version_to)(int *) = NULL; /* NCCL's form of that function */
    size_t number = 0;
    int to = 0;
    void *library;
    Dl_info place;

    if (cuda_library_open(which, &library) != CDDP_OK) {
        line(page, "%-14s no: %s\n", name, cddp_last_error());
        return;
    }
    if (which == CUDA_LIBRARY_NCCL) {
        *(void **)&version_to = cuda_library_symbol(library, symbol);
        number = version_to != NULL && version_to(&to) == 0 ? (size_t)to : 0;
    } else {
        *(void **)&version = cuda_library_symbol(library, symbol);
        number = version != NULL ? version() : 0;
    }
    line(page, "%-14s %zu.%zu.%zu, %s\n", name, number / 10000, number % 10000 / 100, number % 100,
         dladdr(cuda_library_symbol(library, symbol), &place) != 0 ? place.dli_fname : "?");
    if (which == CUDA_LIBRARY_NCCL) {
        describe_hangs(page, number);
    }
}

static void describe_libraries(struct cuda_describe_page *page)
{
    char places[4096];
    char why[CUDA_CARD_TEXT_BYTES];

    describe_library(page, "cuBLASLt", CUDA_LIBRARY_CUBLASLT, "cublasLtGetVersion");
    describe_library(page, "cuDNN", CUDA_LIBRARY_CUDNN, "cudnnGetVersion");
    describe_library(page, "NCCL", CUDA_LIBRARY_NCCL, "ncclGetVersion");
    cuda_libraries_describe(places, sizeof places);
    line(page, "%-14s %s\n", "libraries", places);
    if (!cuda_card_nvml(why)) {
        line(page, "%-14s no: %s; failed cards are not named\n", "NVML", why);
    }
}

/* Write the numbers of the other devices that this one reaches without going through the host. */
static void describe_peers(struct cuda_describe_page *page, int index, int count)
{
    int reached = 0;

    for (int other = 0; other < count; other++) {
        int can = 0;

        if (other != index && cudaDeviceCanAccessPeer(&can, index, other) == cudaSuccess &&
            can != 0) {
            line(page, "%s%d", reached == 0 ? ", reaches " : ", ", other);
            reached++;
        }
    }
    if (count > 1 && reached == 0) {
        line(page, ", reaches no other");
    }
}

/* Write the number of NVLinks, and on a line of its own what is wrong with the card. */
static void describe_health(struct cuda_describe_page *page, int index)
{
    struct cuda_card *card = NULL;
    char faults[CUDA_CARD_TEXT_BYTES];
    char pci[32];

    if (cudaDeviceGetPCIBusId(pci, sizeof pci, index) == cudaSuccess) {
        card = cuda_card_watch(pci, true, faults);
    }
    if (cuda_card_links(card) > 0) {
        line(page, ", %d NVLinks", cuda_card_links(card));
    }
    (void)cuda_card_faults(card, 0, faults);
    if (faults[0] != '\0') {
        line(page, "\n%-14s %s (since the card's last reset)", "", faults);
    }
    cuda_card_close(card);
}

static void describe_device(struct cuda_describe_page *page, int index, int count)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, index);
    char unique[48];
    int capability;

    if (error != cudaSuccess) {
        line(page, "cuda:%-9d no: %s\n", index, cudaGetErrorString(error));
        (void)cudaGetLastError();
        return;
    }
    cuda_unique_name(&properties, unique, sizeof unique);
    capability = 10 * properties.major + properties.minor;
    line(page,
         "cuda:%-9d %s, %.1f GiB, compute capability %d.%d, %d multiprocessors, PCI "
         "%04x:%02x:%02x, %s",
         index, properties.name, (double)properties.totalGlobalMem / (1 << 30), properties.major,
         properties.minor, properties.multiProcessorCount, properties.pciDomainID,
         properties.pciBusID, properties.pciDeviceID, unique);
    describe_peers(page, index, count);
    describe_health(page, index);
    line(page, "\n");
    if (capability < CDDPI_CUDA_OLDEST) {
        line(page, "%-14s no: this build is for compute capability %d.%d and later\n", "",
             CDDPI_CUDA_OLDEST / 10, CDDPI_CUDA_OLDEST % 10);
    }
}

cddp_status cuda_describe(const struct cddpi_module_host *host, char *out, size_t bytes)
{
    struct cuda_describe_page page = {out, bytes, 0};
    char connections[256];
    int count;

    cddpi_module_host_use(host);
    out[0] = '\0';
    /* must come before CUDA is used here */
    cuda_connections_describe(connections, sizeof connections);
    describe_driver(&page);
    describe_libraries(&page);
    line(&page, "%-14s %s\n", "queues", connections);
    if (cuda_count(host, false, &count) != CDDP_OK) {
        line(&page, "%-14s no: %s\n", "devices", cddp_last_error());
        return CDDP_OK;
    }
    for (int index = 0; index < count; index++) {
        describe_device(&page, index, count);
    }
    return CDDP_OK;
}
