/* config_data.c - owns the conditions on several keys of data. */
#include "nn/model.h"
#include "train/config/config.h"

#include "base/error.h"

#include <string.h>

/* Conditions on several keys of image folders. */
static cddp_status check_folders(const struct cddpi_config *config)
{
    const struct cddpi_text_list *lists[] = {&config->data.train, &config->data.test};
    const struct cddpi_real_list *area = &config->data.crop_area;

    for (int i = 0; i < 2; i++) {
        if (lists[i]->count != 1 && !(i == 1 && lists[i]->count == 0)) {
            return cddpi_config_fail(config, i == 0 ? "data.train" : "data.test",
                                     "%d folders, but images lie in one", lists[i]->count);
        }
    }
    if (config->data.resize != 0 && config->data.resize < config->data.size) {
        return cddpi_config_fail(config, "data.resize",
                                 "%d, from which data.size = %d cannot be cut out",
                                 config->data.resize, config->data.size);
    }
    if (area->count != 2 || area->values[0] > area->values[1]) {
        return cddpi_config_fail(config, "data.crop_area",
                                 "must be two numbers, the smaller one first");
    }
    return CDDP_OK;
}

bool cddpi_config_has_real_targets(const struct cddpi_config *config)
{
    return config->data.type == CDDPI_DATA_CSV &&
           (config->model.loss == CDDPI_LOSS_MSE || config->model.loss == CDDPI_LOSS_L1);
}

char cddpi_config_delimiter(const struct cddpi_config *config)
{
    return strcmp(config->data.delimiter, "tab") == 0 ? '\t' : config->data.delimiter[0];
}

/* Conditions on several keys of CSV files. */
static cddp_status check_csv(const struct cddpi_config *config)
{
    char delimiter = cddpi_config_delimiter(config);

    if (config->data.target.count == 0) {
        return cddpi_config_fail(config, "data.target", "must name a column");
    }
    if (config->data.target.count > 1 && !cddpi_config_has_real_targets(config)) {
        return cddpi_config_fail(config, "data.target",
                                 "%d columns, but classes lie in one; real targets need model.loss "
                                 "= \"mse\" or \"l1\"",
                                 config->data.target.count);
    }
    if (delimiter == '\0' || strchr("\"\r\n .", delimiter) != NULL ||
        (config->data.delimiter[1] != '\0' && delimiter != '\t')) {
        return cddpi_config_fail(config, "data.delimiter",
                                 "must be one character, such as \",\" or \";\", or \"tab\"");
    }
    return CDDP_OK;
}

cddp_status cddpi_config_check_data(const struct cddpi_config *config)
{
    if (config->data.type == CDDPI_DATA_IMAGE_FOLDER) {
        return check_folders(config);
    }
    return config->data.type == CDDPI_DATA_CSV ? check_csv(config) : CDDP_OK;
}
