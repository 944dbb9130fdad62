/* rounding.c - words the warning of numbers that 32-bit floats cannot tell apart. */
#include "data/rounding.h"

#include "base/log.h"

enum { STEPS_FEW = 1000 }; /* floats between the lowest and the highest number */

bool cddpi_rounding_doubt(const struct cddpi_rounding *rounding, const char *what)
{
    double spread = rounding->high - rounding->low;

    if (!(spread > 0 && isfinite(spread) && rounding->most > spread / STEPS_FEW / 2)) {
        return false;
    }
    cddpi_log(CDDPI_LOG_WARN,
              "%s: numbers from %.17g to %.17g become only about %.0f different 32-bit floats: "
              "subtract %.17g from all of them in the file",
              what, rounding->low, rounding->high, ceil(spread / (2 * rounding->most)) + 1,
              rounding->low);
    return true;
}
