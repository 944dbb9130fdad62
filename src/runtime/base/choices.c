/* choices.c - owns the edit distance of two words, for "did you mean". */
#include "base/choices.h"

#include <string.h>

unsigned cddpi_edit_distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    unsigned cost[MOST + 1][MOST + 1];
    size_t rows = strnlen(a, MOST);
    size_t columns = strnlen(b, MOST);

    for (size_t i = 0; i <= rows; i++) {
        for (size_t j = 0; j <= columns; j++) {
            unsigned best;

            if (i == 0 || j == 0) {
                cost[i][j] = (unsigned)(i + j);
                continue;
            }
            best = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = cost[i - 1][j] + 1 < best ? cost[i - 1][j] + 1 : best;
            best = cost[i][j - 1] + 1 < best ? cost[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                cost[i - 2][j - 2] + 1 < best) {
                best = cost[i - 2][j - 2] + 1;
            }
            cost[i][j] = best;
        }
    }
    return cost[rows][columns];
}
