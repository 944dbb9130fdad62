/* nearest.h - the edit distance of two words, so that a message about an unknown word can suggest
 * the known one that was probably meant. */
#ifndef CDDPI_NEAREST_H
#define CDDPI_NEAREST_H

/** The number of edits (insert, delete, replace, swap neighbours) that turn @p a into @p b. Only
 *  the first 64 bytes of each count. */
unsigned cddpi_edit_distance(const char *a, const char *b);

#endif
