/* syntax.h - what is said of a configuration that libconfig refuses. The library has a line and two
 * words, "syntax error"; the text is gone over again for the place and for what is wrong there. */
#ifndef CDDPI_TRAIN_CONFIG_SYNTAX_H
#define CDDPI_TRAIN_CONFIG_SYNTAX_H

#include <cddp/status.h>

#include <libconfig.h>

enum { CDDPI_FAULT_BYTES = 200 };

/** Find the first place of @p text that breaks the grammar. Returns its offset and words it in
 *  @p what; -1: none was found. */
long cddpi_config_find_fault(const char *text, char what[CDDPI_FAULT_BYTES]);

/** Fail as @p parsed has, of the file @p path with the text @p text: with file and line, what is
 *  wrong, the line itself and a mark below the place. */
cddp_status cddpi_config_fail_syntax(const config_t *parsed, const char *path, const char *text);

#endif
