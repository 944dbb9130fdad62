/* features.c - owns the names of what a build and its installation can do. */
#include "base/error.h"
#include "base/module_loader.h"
#include "device/device_module.h"

#include "cddp_config.h"

#include <string.h>

static bool has_cuda(void)
{
    const struct cddpi_module *module;

    return cddpi_module_open(&module) == CDDP_OK;
}

static bool has_nccl(void)
{
    const struct cddpi_module *module;

    return cddpi_module_open(&module) == CDDP_OK &&
           module->find_nccl(cddpi_module_host()) == CDDP_OK;
}

static bool has_mpi(void)
{
    const void *table;

    return cddpi_module_file_open(&cddpi_mpi_module_file, &table) == CDDP_OK;
}

#ifdef CDDP_HAVE_HWLOC
enum { HAS_HWLOC = 1 };
#else
enum { HAS_HWLOC = 0 };
#endif

static const struct {
    const char *name;
    bool (*find)(void); /* looks for a module; NULL: `built` is the answer */
    bool built;
} features[] = {
    {"cuda", has_cuda, false},
    {"nccl", has_nccl, false},
    {"mpi", has_mpi, false},
    {"tools", NULL, CDDP_HAVE_TOOLS},
    {"images", NULL, CDDP_HAVE_TOOLS &&CDDP_HAVE_JPEG &&CDDP_HAVE_PNG},
    {"hwloc", NULL, HAS_HWLOC},
};

bool cddp_has(const char *feature)
{
    for (size_t i = 0; feature != NULL && i < sizeof features / sizeof *features; i++) {
        if (strcmp(features[i].name, feature) != 0) {
            continue;
        }
        if (features[i].find != NULL) {
            return features[i].find();
        }
        if (!features[i].built) {
            (void)cddpi_fail(CDDP_ERR_UNAVAILABLE, "cddp was built without %s", feature);
        }
        return features[i].built;
    }
    (void)cddpi_fail(CDDP_ERR_ARGUMENT, "cddp %s has no feature of this name", cddp_version());
    return false;
}
