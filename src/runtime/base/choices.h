/* choices.h - words for choices: how near an unknown word is to a known one; and an enum and the
 * names of its values from one list, so that the two always match:
 *
 *     #define COLOUR_MAP(X) X(RED, "red") X(BLUE, "blue")
 *     enum colour { COLOUR_MAP(CDDPI_CHOICE_ID) };
 *     static const char *const names[] = {COLOUR_MAP(CDDPI_CHOICE_WORD)};
 */
#ifndef CDDPI_CHOICES_H
#define CDDPI_CHOICES_H

#include "base/shared.h"

#define CDDPI_CHOICE_ID(id, word) id,
#define CDDPI_CHOICE_WORD(id, word) [id] = (word),

/* The number of rows in a list, as a constant. */
#define CDDPI_CHOICE_ONE(id, word) +1
#define CDDPI_CHOICE_COUNT(MAP) (0 MAP(CDDPI_CHOICE_ONE))

/** The number of edits (insert, delete, replace, swap neighbours) that turn @p a into @p b. Only
 *  the first 64 bytes of each count. */
CDDPI_SHARED unsigned cddpi_edit_distance(const char *a, const char *b);

#endif
