/* test_launcher_secret.c - the job's token is hidden in relayed output, however it is split into
 * pieces. */
#include "launcher/output/hide_token.h"
#include "support/test.h"

static const char token[] = "abcabcabdabcabcabeabcabcab012345";

/* @p text in pieces of @p piece bytes, as it is shown where @p hidden is the token. */
static const char *shown_of(const char *hidden, const char *text, size_t piece)
{
    static char out[4096];
    struct cddpi_secret secret;
    struct cddpi_secret_place place = {0, 0};
    size_t bytes = strlen(text);
    size_t used = 0;

    cddpi_secret_init(&secret, hidden);
    for (size_t i = 0; i < bytes; i += piece) {
        used += cddpi_secret_hide(&secret, &place, text + i, bytes - i < piece ? bytes - i : piece,
                                  out + used);
    }
    used += cddpi_secret_end(&secret, &place, out + used);
    out[used] = '\0';
    return out;
}

static const char *shown(const char *text, size_t piece)
{
    return shown_of(token, text, piece);
}

static void the_token_is_replaced_by_its_name(void **state)
{
    char text[256];

    (void)state;
    snprintf(text, sizeof text, "CDDP_TOKEN=%s\n%s%s\n", token, token, token);
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        const char *out = shown(text, piece);

        assert_null(strstr(out, token + CDDPI_SECRET_SHOWN));
        assert_non_null(strstr(out, "(CDDP_TOKEN)\n"));
    }
}

/* From the shortest that is hidden to the longest: no piece shows more of one than a third. */
static void tokens_of_every_length_are_hidden(void **state)
{
    static const char letters[] =
        "0q1w2e3r4t5y6u7i8o9pAaSsDdFfGgHhJjKkLlZzXxCcVvBbNnMm.,-+_=%:;!?#";
    char hidden[CDDPI_SECRET_BYTES + 1];
    char text[3 * CDDPI_SECRET_BYTES + 32];

    (void)state;
    for (size_t bytes = CDDPI_SECRET_LEAST; bytes <= CDDPI_SECRET_BYTES; bytes++) {
        snprintf(hidden, sizeof hidden, "%.*s", (int)bytes, letters);
        snprintf(text, sizeof text, "CDDP_TOKEN=%s\n%s%s\n", hidden, hidden, hidden);
        for (size_t piece = 1; piece <= strlen(text); piece++) {
            const char *out = shown_of(hidden, text, piece);

            assert_null(strstr(out, hidden + bytes / 3));
            assert_null(strstr(out, hidden));
            assert_true(strlen(out) <= strlen(text) && out[strlen(out) - 1] == '\n');
        }
        if (bytes > sizeof "(CDDP_TOKEN)") {
            assert_non_null(strstr(shown_of(hidden, text, 1000), "CDDP_TOKEN=(CDDP_TOKEN)\n"));
        }
    }
    assert_string_equal(shown_of("abc", "abcabc\n", 2), "abcabc\n"); /* hardly a secret */
}

/* Texts that are nearly the token: made of its beginnings, from pieces of its own beginnings. */
static void all_else_passes_byte_for_byte(void **state)
{
    static const size_t pieces[] = {1, 2, 7, 8, 9, 31, 1000};
    uint32_t random = 1;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        char text[512] = "";
        size_t used = 0;

        while (used < 300) {
            size_t bytes = (random = random * 1664525 + 1013904223) >> 8;

            used += (size_t)snprintf(text + used, sizeof text - used, "%.*s",
                                     (int)(1 + bytes % (sizeof token - 2)), token);
        }
        if (strstr(text, token) == NULL) {
            assert_string_equal(shown(text, pieces[round % 7]), text);
        }
    }
}

static void a_progress_line_is_not_held_back(void **state)
{
    struct cddpi_secret secret;
    struct cddpi_secret_place place = {0, 0};
    char out[128];

    (void)state;
    cddpi_secret_init(&secret, token);
    assert_int_equal(cddpi_secret_hide(&secret, &place, "loss 0.1 abcabca", 16, out), 16);
    assert_memory_equal(out, "loss 0.1 abcabca", 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_is_replaced_by_its_name),
        cmocka_unit_test(tokens_of_every_length_are_hidden),
        cmocka_unit_test(all_else_passes_byte_for_byte),
        cmocka_unit_test(a_progress_line_is_not_held_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
