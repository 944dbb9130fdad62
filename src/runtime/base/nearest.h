/* nearest.h - how far apart two words are, so that a message about an unknown word can name the
 * known one that was probably meant. */
#ifndef CDDPI_NEAREST_H
#define CDDPI_NEAREST_H

/** Number of edits (insert, delete, replace, swap neighbours) that make @p a from @p b; of each the
 *  first 64 bytes count. */
unsigned cddpi_edit_distance(const char *a, const char *b);

#endif
