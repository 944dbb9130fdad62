/* config_fail.c - the failures of a configuration: each names the place that set the key. */
#include "base/error.h"
#include "train/config/config.h"
#include "train/config/schema.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

cddp_status cddpi_config_prefix(const struct cddpi_config *config, const char *key,
                                cddp_status status)
{
    const struct cddpi_key *row = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count, key);
    const char *where = row != NULL ? config->where[row - cddpi_config_keys] : NULL;

    return cddpi_fail_prefix(status, "%s: %s%s", where != NULL ? where : config->path, key,
                             where != NULL ? "" : " (its default)");
}

cddp_status cddpi_config_fail(const struct cddpi_config *config, const char *key,
                              const char *format, ...)
{
    char text[CDDPI_FAILURE_TEXT_BYTES];
    va_list arguments;

    assert(format != NULL); /* gcc 12 with -fsanitize=undefined warns otherwise */
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_config_prefix(config, key, cddpi_fail(CDDP_ERR_CONFIG, "%s", text));
}

cddp_status cddpi_config_name_file(const struct cddpi_config *config, cddp_status status)
{
    return status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s", config->path) : status;
}

cddp_status cddpi_config_name_key(const struct cddpi_config *config, const char *key,
                                  cddp_status status)
{
    return status == CDDP_ERR_CONFIG ? cddpi_config_prefix(config, key, status) : status;
}

cddp_status cddpi_config_check_rules(const struct cddpi_config *config,
                                     const struct cddpi_config_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rules[i].is_broken) {
            return cddpi_config_fail(config, rules[i].key, "%s", rules[i].text);
        }
    }
    return CDDP_OK;
}
