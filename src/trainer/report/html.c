/* html.c - owns the escaping of text in pictures. */
#include "report/html.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <string.h>

void cddpi_html_put(FILE *out, const char *text)
{
    char *clean = cddpi_utf8_clean(text, strlen(text));

    for (const char *at = clean; at != NULL && *at != '\0'; at++) {
        switch (*at) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            fputc(*at, out);
        }
    }
    cddpi_free(clean);
}
