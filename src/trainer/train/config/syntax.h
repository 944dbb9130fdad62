/* syntax.h - makes error texts for a configuration that libconfig rejects. libconfig returns only a
 * line and the words "syntax error"; a second scan finds the exact place and what is wrong
 * there. */
#ifndef CDDPI_TRAIN_CONFIG_SYNTAX_H
#define CDDPI_TRAIN_CONFIG_SYNTAX_H

#include <cddp/status.h>

#include <libconfig.h>

#include <stdbool.h>

enum { CDDPI_FAULT_BYTES = 200 };

/** Whether @p c can be part of a key's name. */
bool cddpi_config_is_name(char c);

/** Find the first place where @p text breaks the grammar, and describe it in @p what.
 *  @return Its offset; -1: found no fault. */
long cddpi_config_find_fault(const char *text, char what[CDDPI_FAULT_BYTES]);

/** Fail with the error of @p parsed, which has read @p text from the file @p path. The error text
 *  has the file and line, what is wrong, the line itself and a mark below the place. */
cddp_status cddpi_config_fail_syntax(const config_t *parsed, const char *path, const char *text);

#endif
