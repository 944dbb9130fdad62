/* hide_token.c - finds a secret in a stream that arrives in pieces (Knuth-Morris-Pratt), and
 * replaces it with a name, or with stars if the name would be longer. */
#include "launcher/output/hide_token.h"

#include <stdio.h>
#include <string.h>

static const char name[] = "(CDDP_TOKEN)";

void cddpi_secret_init(struct cddpi_secret *secret, const char *text)
{
    size_t border = 0;

    *secret = (struct cddpi_secret){.bytes = 0};
    snprintf(secret->text, sizeof secret->text, "%s", text);
    secret->bytes = strlen(secret->text);
    for (size_t n = 2; n <= secret->bytes; n++) {
        while (border > 0 && secret->text[border] != secret->text[n - 1]) {
            border = secret->border[border];
        }
        border += secret->text[border] == secret->text[n - 1];
        secret->border[n] = border;
    }
}

/* How many matching bytes may be passed on before it is known whether they begin the secret. */
static size_t shown_most(const struct cddpi_secret *secret)
{
    size_t third = secret->bytes / 3;

    return third < CDDPI_SECRET_SHOWN ? third : CDDPI_SECRET_SHOWN;
}

/* Write the replacement of a secret of which @p shown bytes were already passed on. It is never
 * longer than the rest of the secret. */
static char *put_name(const struct cddpi_secret *secret, size_t shown, char *out)
{
    size_t left = secret->bytes - shown;

    if (sizeof name - 1 <= left) {
        memcpy(out, name, sizeof name - 1);
        return out + sizeof name - 1;
    }
    memset(out, '*', left);
    return out + left;
}

/* Pass on the matched bytes before @p end. Returns the new end of the output. */
static char *show_matched(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                          size_t end, char *out)
{
    if (place->shown < end) {
        memcpy(out, secret->text + place->shown, end - place->shown);
        out += end - place->shown;
        place->shown = end;
    }
    return out;
}

/* Reduce the match to the last @p matched bytes, which may still begin the secret, and pass on the
 * bytes before them. */
static char *fall_back(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                       size_t matched, char *out)
{
    size_t left = place->matched - matched;

    out = show_matched(secret, place, left, out);
    place->shown -= left;
    place->matched = matched;
    return out;
}

static char *hide_byte(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                       char byte, char *out)
{
    while (place->matched > 0 && secret->text[place->matched] != byte) {
        out = fall_back(secret, place, secret->border[place->matched], out);
    }
    if (secret->text[place->matched] != byte) {
        *out = byte;
        return out + 1;
    }
    place->matched++;
    if (place->matched == secret->bytes) {
        out = put_name(secret, place->shown, out);
        *place = (struct cddpi_secret_place){0, 0};
        return out;
    }
    return out;
}

size_t cddpi_secret_hide(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                         const char *text, size_t bytes, char *out)
{
    char *at = out;

    if (secret->bytes < CDDPI_SECRET_LEAST) { /* no secret, or one that is too short to hide */
        memcpy(out, text, bytes);
        return bytes;
    }
    for (size_t i = 0; i < bytes; i++) {
        at = hide_byte(secret, place, text[i], at);
    }
    if (place->matched <= shown_most(secret)) {
        at = show_matched(secret, place, place->matched, at);
    }
    return (size_t)(at - out);
}

size_t cddpi_secret_end(const struct cddpi_secret *secret, struct cddpi_secret_place *place,
                        char *out)
{
    return (size_t)(fall_back(secret, place, 0, out) - out);
}
