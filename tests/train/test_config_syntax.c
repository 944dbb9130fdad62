/* test_config_syntax.c - messages for a train.conf with syntax errors: the line, a mark below the
 * position, and what is wrong there. */
#include "base/alloc.h"
#include "support/failure.h"
#include "support/folder.h"
#include "train/config/config.h"
#include "train/config/config_file.h"

/* The message of loading @p text, without the folder's name in front. */
static const char *message(const char *text)
{
    const char *path = in_folder("train.conf");
    struct cddpi_config config;

    support_write_file(path, text, strlen(text));
    assert_true(failure_is(cddpi_config_load(path, NULL, 0, &config), CDDP_ERR_CONFIG, -1, -1, ""));
    return strncmp(cddp_last_error(), folder, strlen(folder)) == 0
               ? cddp_last_error() + strlen(folder) + 1
               : cddp_last_error();
}

static void a_syntax_error_shows_its_line_and_the_place(void **state)
{
    static const char *const cases[][2] = {
        {"a = 1;\ndata = { image = [1, 8 8]; };\n",
         "train.conf:2: syntax error: , or ] is expected here, not 8\n"
         "    data = { image = [1, 8 8]; };\n"
         "                           ^"},
        {"model = { type = mlp; };\n",
         "train.conf:1: syntax error: text has to be in quotes: \"mlp\"\n"
         "    model = { type = mlp; };\n"
         "                     ^"},
        {"model = { type \"mlp\"; };\n",
         "train.conf:1: syntax error: = is expected behind type, not \"\n"
         "    model = { type \"mlp\"; };\n"
         "                   ^"},
        {"model = {\n\thidden = ;\n};\n",
         "train.conf:2: syntax error: a value of hidden is expected here, not ;\n"
         "     hidden = ;\n"
         "              ^"},
        {"# caf\xC3\xA9\nmodel = {\n  type = \"mlp\";\n\ntrain = { epochs = 1; };\n",
         "train.conf:2: syntax error: the { here has no }\n"
         "    model = {\n"
         "            ^"},
        {"model = { };\n}\n", "train.conf:2: syntax error: there is no { that this one ends\n"
                              "    }\n"
                              "    ^"},
        {"train = { lr = 0.1.2; };\n", "train.conf:1: syntax error: 0.1.2 is not a number\n"
                                       "    train = { lr = 0.1.2; };\n"
                                       "                   ^"},
        {"model = { hidden = [1, 2; };\n",
         "train.conf:1: syntax error: , or ] is expected here, not ;\n"
         "    model = { hidden = [1, 2; };\n"
         "                            ^"},
        {"model = { type = \xE2\x80\x9Cmlp\xE2\x80\x9D; };\n",
         "train.conf:1: syntax error: a value of type is expected here, not a typographic "
         "quotation "
         "mark (the plain one is \")\n"
         "    model = { type = \xE2\x80\x9Cmlp\xE2\x80\x9D; };\n"
         "                     ^"},
        {"model\xC2\xA0= { };\n",
         "train.conf:1: syntax error: = is expected behind model, not a no-break space (U+00A0)\n"
         "    model\xC2\xA0= { };\n"
         "         ^"},
        {"import os\n", "train.conf:1: syntax error: = is expected behind import, not os\n"
                        "    import os\n"
                        "           ^"},
        {"[train]\nepochs = 1\n", "train.conf:1: syntax error: a key is expected here, not [\n"
                                  "    [train]\n"
                                  "    ^"},
        {"/* one\n two */ a = { b = ( 1, { c = [ 1 }; } );\n",
         "train.conf:2: syntax error: , or ] is expected here, not }\n"
         "     two */ a = { b = ( 1, { c = [ 1 }; } );\n"
         "                                     ^"},
        {"train = { seed = 1; }; @include \"x\"\n",
         "train.conf:1: syntax error: @include has to begin its line\n"
         "    train = { seed = 1; }; @include \"x\"\n"
         "                           ^"},
        {"a = \x1b[31m;\n",
         "train.conf:1: syntax error: a value of a is expected here, not the byte 0x1b\n"
         "    a = \xEF\xBF\xBD[31m;\n"
         "        ^"},
    };

    (void)state;
    support_write_file(in_folder("x"), "", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(message(cases[i][0]), cases[i][1]);
    }
}

static void a_long_line_is_cut_around_the_place(void **state)
{
    char text[2000];
    size_t used = (size_t)snprintf(text, sizeof text, "model = { hidden = [");
    const char *said;

    (void)state;
    for (int i = 0; i < 200; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, i == 100 ? "12 34, " : "1234, ");
    }
    snprintf(text + used, sizeof text - used, "1]; };\n");
    said = message(text);
    assert_true(strlen(strstr(said, "\n    ")) < 200);
    assert_non_null(strstr(said, "12 34, "));
}

static void a_key_that_is_there_twice_is_named(void **state)
{
    (void)state;
    assert_string_equal(message("model = {\n type = \"mlp\";\n};\nmodel = { };\n"),
                        "train.conf:4: model is there twice; the first is in line 1\n"
                        "    model = { };");
    assert_string_equal(message("model = { type = \"mlp\"; size = 1;\n type = \"cnn\"; };\n"),
                        "train.conf:2: type is there twice; the first is in line 1\n"
                        "     type = \"cnn\"; };");
}

static void a_key_that_a_list_includes_twice_is_named_with_what_can_be_done(void **state)
{
    const char *said;

    (void)state;
    support_write_file(in_folder("base.conf"), "\ntype = \"relu\";\n", 16);
    said = message("model = { layers = ( {\n@include \"base.conf\"\ntype = \"gelu\"; } ); };\n");
    assert_non_null(strstr(said, "train.conf:3: type is in the included file "));
    assert_non_null(strstr(said, "base.conf already (line 2), and within ( ) a file cannot change "
                                 "what it includes: take it out of one of them\n    type = "
                                 "\"gelu\"; } ); };"));
}

static void a_fault_of_an_included_file_shows_its_line_and_the_place(void **state)
{
    const char *said;

    (void)state;
    support_write_file(in_folder("base.conf"), "\xEF\xBB\xBFtrain = { };\n", 16);
    assert_non_null(strstr(message("@include \"base.conf\"\n"),
                           "base.conf: it begins with a byte order mark, which an included file "));
    support_write_file(in_folder("base.conf"), "model = { hidden = [3 4]; };\n", 29);
    said = message("train = { seed = 1; };\n@include \"base.conf\"\n");
    assert_true(last_error_has("base.conf:1: "));
    assert_string_equal(strchr(said, '\n'), "\n    model = { hidden = [3 4]; };\n"
                                            "                          ^");
}

/* Whatever character is taken out of a configuration: where libconfig finds an error of syntax, the
 * place is found, too, and where it does not, this grammar may not find one. */
static void both_grammars_agree_about_every_damaged_text(void **state)
{
    static const char whole[] =
        "# a comment\n@include \"x\"\nmodel = { type = \"layers\"; layers = ( { type = \"conv2d\"; "
        "units = 0x20; },\n{ type : \"add\"; bias = FALSE } ); }\n/* more */ train = { seed = "
        "9000000000L, rates = [ 1.5, -2e-3, .5 ]; names = [\"a\" \"b\", \"c\"]; none = [ ]; };\n";
    char text[sizeof whole];

    (void)state;
    for (size_t i = 0; i + 1 < sizeof whole; i++) {
        for (int change = 0; change < 5; change++) {
            char what[CDDPI_FAULT_BYTES];
            config_t parsed;
            bool refused;

            memcpy(text, whole, sizeof whole);
            if (change == 0) {
                memmove(text + i, whole + i + 1, sizeof whole - i - 1);
            } else {
                text[i] = "\0;}[="[change];
            }
            if (strstr(text, "@include \"x\"\n") == NULL) { /* of no interest here */
                continue;
            }
            *strstr(text, "@include") = '#';
            config_init(&parsed);
            refused = cddpi_config_parse(&parsed, text) != CONFIG_TRUE;
            if (refused && strcmp(config_error_text(&parsed), "syntax error") != 0) {
                config_destroy(&parsed); /* of types, say, and not of this grammar */
                continue;
            }
            if (refused != (cddpi_config_find_fault(text, what) >= 0)) {
                fail_msg("byte %zu, change %d, %s: %s", i, change, refused ? "refused" : "read",
                         text);
            }
            config_destroy(&parsed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_syntax_error_shows_its_line_and_the_place),
        IN_FOLDER(a_long_line_is_cut_around_the_place),
        IN_FOLDER(a_key_that_is_there_twice_is_named),
        IN_FOLDER(a_key_that_a_list_includes_twice_is_named_with_what_can_be_done),
        IN_FOLDER(a_fault_of_an_included_file_shows_its_line_and_the_place),
        IN_FOLDER(both_grammars_agree_about_every_damaged_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
