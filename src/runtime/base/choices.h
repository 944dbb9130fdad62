/* choices.h - an enum and the words for its values, made of one list, so that neither can lack
 * what the other has:
 *
 *     #define COLOUR_MAP(X) X(RED, "red") X(BLUE, "blue")
 *     enum colour { COLOUR_MAP(CDDPI_CHOICE_ID) };
 *     static const char *const names[] = {COLOUR_MAP(CDDPI_CHOICE_WORD)};
 */
#ifndef CDDPI_CHOICES_H
#define CDDPI_CHOICES_H

#define CDDPI_CHOICE_ID(id, word) id,
#define CDDPI_CHOICE_WORD(id, word) [id] = (word),

/* How many rows a list has, as a constant. */
#define CDDPI_CHOICE_ONE(id, word) +1
#define CDDPI_CHOICE_COUNT(MAP) (0 MAP(CDDPI_CHOICE_ONE))

#endif
