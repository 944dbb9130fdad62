/* setup_csv.c - owns what the keys of train.conf say about CSV files. */
#include "train/setup_csv.h"

#include "data/formats/csv.h"

static struct cddpi_csv_list list_of(const struct cddpi_text_list *list)
{
    return (struct cddpi_csv_list){list->values, (size_t)list->count};
}

cddp_status cddpi_trainer_open_csv(const struct cddpi_config *config,
                                   const struct cddpi_data_blame *blame, cddp_group *group,
                                   struct cddpi_dataset *train, struct cddpi_dataset *test)
{
    const struct cddpi_csv_options options = {
        .meaning = {.target = list_of(&config->data.target),
                    .features = list_of(&config->data.features),
                    .ignore = list_of(&config->data.ignore),
                    .categories = list_of(&config->data.categories),
                    .delimiter = cddpi_config_delimiter(config),
                    .classes = !cddpi_config_has_real_targets(config),
                    .fill = config->data.missing == CDDPI_DATA_MISSING_MEAN},
        .train = list_of(&config->data.train),
        .test = list_of(&config->data.test),
        .test_fraction = config->data.test_fraction,
        .blame = *blame};

    return cddpi_dataset_open_csv(&options, group, train, test);
}
