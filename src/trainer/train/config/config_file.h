/* config_file.h - reads the text of a configuration file and those that it includes, and parses it.
 */
#ifndef CDDPI_TRAIN_CONFIG_FILE_H
#define CDDPI_TRAIN_CONFIG_FILE_H

#include <cddp/status.h>

#include <libconfig.h>

#include <stdbool.h>

/** Read @p path, at most 1 MiB of text. Release @p out with cddpi_free(). The text of
 *  CDDP_ERR_CONFIG names the file. */
CDDP_CHECKED cddp_status cddpi_config_read_text(const char *path, char **out);
/** The same for an included file, which must be a regular file, because libconfig opens it
 *  unchecked. */
CDDP_CHECKED cddp_status cddpi_config_read_included(const char *path, char **out);

/** Check the files that @p text includes; @p text is the contents of @p path. libconfig reads some
 *  included files itself, so this checks that each is readable, that they are not too many or too
 *  large, and that libconfig does not truncate their numbers. The text of CDDP_ERR_CONFIG names
 *  file and line. */
CDDP_CHECKED cddp_status cddpi_config_check_includes(const char *path, const char *text);

/** The path of the included file @p name, which is relative to the folder of @p root, the file that
 *  the user named. Release it with cddpi_free(). NULL: no memory. */
char *cddpi_config_include_path(const char *root, const char *name, int name_bytes);

enum { CDDPI_INCLUDE_DEPTH = 10 }; /* files that include each other; libconfig's limit */

/** The file name if @p text begins with @include "NAME", else NULL. */
const char *cddpi_config_included_name(const char *text, int *out_bytes);

/** The length of the string or comment at the beginning of @p text; 0: there is neither.
 *  @param out_is_open  It has no end, so it takes the rest of the text; may be NULL. */
size_t cddpi_config_opaque_length(const char *text, bool *out_is_open);

/** Parse @p text into @p parsed, which is initialised. Whole numbers keep their 64 bits. Returns
 *  CONFIG_TRUE, or CONFIG_FALSE for a fault and for lack of memory. */
int cddpi_config_parse(config_t *parsed, const char *text);

/* --- grammar.c and syntax.c: error texts for what libconfig rejects, of which it tells only a line
 * --- */

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
