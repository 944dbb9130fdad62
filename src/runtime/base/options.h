/* options.h - command lines: one table of a program's options serves the parser, the suggestions
 * and the text of --help. */
#ifndef CDDPI_OPTIONS_H
#define CDDPI_OPTIONS_H

#include <cddp/status.h>

#include <stdint.h>
#include <stdio.h>

struct cddpi_option {
    const char *name;     /* without dashes */
    char letter;          /* 0: none */
    const char *argument; /* NULL: none; "[=NAME]": the option may stand without it */
    const char *text;     /* a sentence; --help wraps it */
};

struct cddpi_options {
    const char *program; /* for texts */
    const struct cddpi_option *rows;
    int count;
};

/* Define a program's option table from a list of rows: MAP(X) has X(id, name, letter, argument,
 * text) for each row. Defines OPTION_id for each row, OPTION_COUNT, `rows` and `table`. Use it once
 * per file. */
#define CDDPI_OPTION_ID(id, name, letter, argument, text) OPTION_##id,
#define CDDPI_OPTION_ROW(id, name, letter, argument, text) {name, letter, argument, text},
#define CDDPI_OPTION_TABLE(program, MAP)                                                           \
    enum option_id { MAP(CDDPI_OPTION_ID) OPTION_COUNT };                                          \
    static const struct cddpi_option rows[OPTION_COUNT] = {MAP(CDDPI_OPTION_ROW)};                 \
    static const struct cddpi_options table = {program, rows, OPTION_COUNT}

/** Read the option at argv[*index], which begins with a dash, and its argument: --name VALUE,
 *  --name=VALUE, -n VALUE or -nVALUE.
 *  @param index   Advanced to the argument if the argument is a separate word.
 *  @param values  One per row: set to the argument, or to "" if the option takes none. Borrowed
 *                 from argv.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that names the option and a similar known one. */
CDDP_CHECKED cddp_status cddpi_option_read(const struct cddpi_options *options, char **argv,
                                           int *index, const char **values);

/** Expand @p value like cddpi_user_path(). For an option whose value is a path although its
 *  argument is not called FILE, DIR or PATH. */
CDDP_CHECKED cddp_status cddpi_option_path(const struct cddpi_options *options, int id,
                                           const char **value);

/** Read all options of a command line. Words that are not options, and all words after "--", move
 *  to the front: argv[1] to argv[@p out_count].
 *  @return As cddpi_option_read(). */
CDDP_CHECKED cddp_status cddpi_options_read(const struct cddpi_options *options, int argc,
                                            char **argv, const char **values, int *out_count);

/** Which of the rows @p ids was given. Only one of them may be given. -1: none was. */
CDDP_CHECKED cddp_status cddpi_option_choice(const struct cddpi_options *options,
                                             const char *const *values, const int *ids, int count,
                                             int *out);

/** Read the value of option @p id as one of @p words. @p out: the word's index; unchanged if the
 *  option was not given. */
CDDP_CHECKED cddp_status cddpi_option_word(const struct cddpi_options *options,
                                           const char *const *values, int id,
                                           const char *const *words, int count, int *out);

/** Read the value of option @p id as an integer in [@p low, @p high]. @p out is unchanged if the
 *  option was not given. */
CDDP_CHECKED cddp_status cddpi_option_whole(const struct cddpi_options *options,
                                            const char *const *values, int id, int64_t low,
                                            int64_t high, int64_t *out);

/** Print @p text, broken at spaces into lines of at most @p width columns. The cursor is at column
 *  @p from, where the further lines begin, too. */
void cddpi_print_wrapped(FILE *to, const char *text, int from, int width);

/** Print all rows to @p to. Their sentences begin at @p column. */
void cddpi_options_print(const struct cddpi_options *options, int column, FILE *to);

#endif
