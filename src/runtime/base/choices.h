/* choices.h - makes an enum and the names of its values from one list, so that the two always
 * match:
 *
 *     #define COLOUR_MAP(X) X(RED, "red") X(BLUE, "blue")
 *     enum colour { COLOUR_MAP(CDDPI_CHOICE_ID) };
 *     static const char *const names[] = {COLOUR_MAP(CDDPI_CHOICE_WORD)};
 */
#ifndef CDDPI_CHOICES_H
#define CDDPI_CHOICES_H

#define CDDPI_CHOICE_ID(id, word) id,
#define CDDPI_CHOICE_WORD(id, word) [id] = (word),

/* The number of rows in a list, as a constant. */
#define CDDPI_CHOICE_ONE(id, word) +1
#define CDDPI_CHOICE_COUNT(MAP) (0 MAP(CDDPI_CHOICE_ONE))

#endif
