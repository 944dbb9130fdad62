/* test_csv.c - CSV files as text: their syntax, what columns mean, the numbers that rows become,
 * and the place that an error names. */
#include "base/alloc.h"
#include "data/formats/csv_rows.h"
#include "support/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* What a text becomes. */
struct table {
    struct cddpi_csv_schema schema;
    float inputs[MOST * 16];
    float targets[MOST * 4];
    int32_t classes[MOST];
    struct cddpi_csv_rows rows;
};

static char *y[] = {"y", "z"};

static struct cddpi_csv_meaning meaning_of(bool classes)
{
    return (struct cddpi_csv_meaning){
        .target = {y, 1}, .delimiter = ',', .classes = classes, .fill = false};
}

static cddp_status parse(const char *text, size_t bytes, const struct cddpi_csv_meaning *meaning,
                         struct table *out)
{
    struct cddpi_csv csv = {0};
    cddp_status status = cddpi_csv_init("a.csv", text, bytes, meaning->delimiter, &csv);

    memset(out, 0, sizeof *out);
    out->rows = (struct cddpi_csv_rows){.inputs = out->inputs,
                                        .targets = meaning->classes ? NULL : out->targets,
                                        .classes = out->classes,
                                        .room = MOST};
    if (status == CDDP_OK) {
        status = cddpi_csv_schema_look(&csv, meaning, &out->schema);
    }
    cddpi_csv_fini(&csv);
    if (status == CDDP_OK) {
        status = cddpi_csv_schema_finish("a.csv", &out->schema);
    }
    if (status == CDDP_OK) {
        status = cddpi_csv_init("a.csv", text, bytes, meaning->delimiter, &csv);
    }
    if (status == CDDP_OK) {
        status = cddpi_csv_rows_read(&csv, &out->schema, &out->rows);
    }
    cddpi_csv_fini(&csv);
    return status;
}

static void parse_well(const char *text, const struct cddpi_csv_meaning *meaning, struct table *out)
{
    if (parse(text, strlen(text), meaning, out) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

static void refused_bytes(const char *text, size_t bytes, const struct cddpi_csv_meaning *meaning,
                          const char *words)
{
    struct table *table = malloc(sizeof *table);
    cddp_status status = parse(text, bytes, meaning, table);

    if (status == CDDP_OK || strstr(cddp_last_error(), words) == NULL) {
        fail_msg("\"%s\" gives %d, \"%s\", which lacks \"%s\"", text, status, cddp_last_error(),
                 words);
    }
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

static void refused(const char *text, const struct cddpi_csv_meaning *meaning, const char *words)
{
    refused_bytes(text, strlen(text), meaning, words);
}

static void fields_are_read_as_rfc_4180_says(void **state)
{
    static const char text[] = "\xEF\xBB\xBF"
                               "a,\"b \"\"c\"\"\"\r\n\r\n\"1,5\n6\", x y \n,\n\"\" ,z";
    static const struct {
        const char *text;
        uint64_t line;
        size_t column;
        bool quoted, last;
    } expected[] = {{"a", 1, 1, false, false},     {"b \"c\"", 1, 2, true, true},
                    {"1,5\n6", 3, 1, true, false}, {"x y", 4, 2, false, true},
                    {"", 5, 1, false, false},      {"", 5, 2, false, true},
                    {"", 6, 1, true, false},       {"z", 6, 2, false, true}};
    struct cddpi_csv csv = {0};
    struct cddpi_csv_field field;
    bool end = false;

    (void)state;
    assert_int_equal(cddpi_csv_init("a.csv", text, sizeof text - 1, ',', &csv), CDDP_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(cddpi_csv_next(&csv, &field, &end), CDDP_OK);
        assert_false(end);
        assert_string_equal(field.text, expected[i].text);
        assert_int_equal(field.line, expected[i].line);
        assert_int_equal(field.column, expected[i].column);
        assert_int_equal(field.quoted, expected[i].quoted);
        assert_int_equal(field.last, expected[i].last);
    }
    assert_int_equal(cddpi_csv_next(&csv, &field, &end), CDDP_OK);
    assert_true(end);
    cddpi_csv_fini(&csv);
}

static void broken_syntax_is_refused_at_its_place(void **state)
{
    struct cddpi_csv_meaning meaning = meaning_of(true);
    size_t bytes = CDDPI_CSV_FIELD_MAX + 100;
    char *text = malloc(bytes);

    (void)state;
    refused("", &meaning, "a.csv: the file is empty");
    refused("x,y\n", &meaning, "a.csv: there is no row after the header");
    refused("x,y\n1,\"a\n2,b\n", &meaning, "a.csv:2: column 2: the quotation mark here is never");
    refused("x,y\n1,a\"b\"\n", &meaning, "a.csv:2: column 2: a quotation mark inside a field");
    refused("x,y\n\"1\"2,b\n", &meaning, "a.csv:2: column 1: text after the closing");
    refused("x,y\r1,b\r", &meaning, "a.csv:1: column 2: a carriage return");
    refused("x,y\n\n1,a\n3\n", &meaning,
            "a.csv:4: column 1: the line ends here, but the header has "
            "2 columns");
    refused("x,y\n1,a,b\n", &meaning, "a.csv:2: column 3: the header has only 2 columns");
    refused("x,y,x\n1,a,2\n", &meaning, "a.csv:1: column 3 (x): another column has the same name");
    refused("x,,y\n1,a,2\n", &meaning, "a.csv:1: column 2: the column has no name");
    refused("x;y\n1;a\n", &meaning,
            "no column is called \"y\", which data.target names: the first "
            "of its 1 columns is \"x;y\"; is data.delimiter right?");
    refused_bytes("x,y\n1,\0\n", 8, &meaning, "a.csv:2: column 2: a byte that is 0");
    refused("PK\3\4 and so on", &meaning, "a.csv: not CSV: it is");
    memset(text, 'a', bytes);
    refused_bytes(text, bytes, &meaning, "a.csv:1: column 1: longer than 65536 bytes");
    free(text);
}

static void columns_become_numbers_and_categories_in_the_order_of_names(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(true);
    static const float expected[] = {1.5F, 0, 1, 0, -2e3F, 1, 0, 0, 0, 0, 0, 1};
    char *text;

    (void)state;
    parse_well("x,colour,y\n1.5,green,dog\n-2e3,\"blue, dark\",ant\n0,red,dog\n", &meaning, table);
    assert_int_equal(table->schema.width, 4);
    assert_int_equal(table->schema.classes, 2);
    assert_int_equal(table->rows.count, 3);
    assert_memory_equal(table->inputs, expected, sizeof expected);
    assert_int_equal(table->classes[0], 1);
    assert_int_equal(table->classes[1], 0);
    text = cddpi_csv_schema_text(&table->schema);
    assert_string_equal(text, "{\"features\":[{\"name\":\"x\"},{\"categories\":[\"blue, dark\","
                              "\"green\",\"red\"],\"name\":\"colour\"}],\"targets\":[{\"classes\":["
                              "\"ant\",\"dog\"],\"name\":\"y\"}]}");
    free(text);
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

static void integers_as_classes_are_in_the_order_of_their_values(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(true);
    static const int32_t expected[] = {2, 1, 3, 0};

    (void)state;
    parse_well("y,x\n9,1\n2,1\n10,1\n-1,1\n", &meaning, table);
    assert_memory_equal(table->classes, expected, sizeof expected);
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

static void keys_choose_columns_targets_and_delimiter(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(false);
    static const float inputs[] = {0, 1, 1, 0};
    static const float targets[] = {0.5F, 7, 1.5F, 8};
    char *ignored[] = {"id"}, *categories[] = {"zip"}, *features[] = {"a", "zip"};

    (void)state;
    meaning.target.count = 2;
    meaning.delimiter = ';';
    meaning.ignore = (struct cddpi_csv_list){ignored, 1};
    meaning.categories = (struct cddpi_csv_list){categories, 1};
    parse_well("id;y;zip;z\na;0.5;20;7\nb;1.5;3;8\n", &meaning, table);
    assert_int_equal(table->schema.width, 2);
    assert_int_equal(table->schema.target_count, 2);
    assert_memory_equal(table->inputs, inputs, sizeof inputs);
    assert_memory_equal(table->targets, targets, sizeof targets);
    cddpi_csv_schema_fini(&table->schema);

    meaning.features = (struct cddpi_csv_list){features, 2};
    meaning.delimiter = '\t';
    parse_well("id\ty\tzip\tz\ta\nq\t0.5\t20\t7\t5\n", &meaning, table);
    assert_int_equal(table->schema.width, 2);
    assert_true(table->inputs[0] == 1 && table->inputs[1] == 5);
    cddpi_csv_schema_fini(&table->schema);
    refused("id\ty\tz\tzip\n", &meaning, "no column is called \"a\", which data.features names");
    free(table);
}

static void values_that_do_not_fit_are_refused_at_their_place(void **state)
{
    struct cddpi_csv_meaning classes = meaning_of(true);
    struct cddpi_csv_meaning real = meaning_of(false);

    (void)state;
    refused("x,y\n1,a\n,b\n", &classes, "a.csv:3: column 1 (x): the value is missing");
    refused("x,y\n1,a\nNA,b\n", &classes, "a.csv:3: column 1 (x): the value is missing");
    refused("x,y\n1,a\n2,b\n3,?\n", &classes, "a.csv:4: column 2 (y): the target is missing");
    refused("x,y\n1,a\n2x,b\n", &classes,
            "a.csv:3: column 1 (x): \"2x\" is not a number, but the "
            "column begins with one");
    refused("x,y\n1,a\n1e39,b\n", &classes, "a.csv:3: column 1 (x): 1e39 does not fit");
    refused("x,y\n\"3,14\",a\n2,b\n", &classes, "a.csv:2: column 1 (x): 3,14 has a decimal comma");
    refused("x,y\n1,0.5\n2,b\n", &classes,
            "a.csv:2: column 2 (y): 0.5 is no whole number, so no "
            "class");
    refused("x,y\n1,a\n2,a\n", &classes, "column y, the target, is \"a\" in all rows");
    refused("x,y\n1,2\n2,b\n", &real,
            "a.csv:3: column 2 (y): \"b\" is not a number, but targets are");
    refused("x,y\n\xE9,1\n", &real, "a.csv:2: column 1 (x): the text is not UTF-8");
    refused("\xE9,y\n1,1\n", &real, "a.csv:1: column 1: the name is not UTF-8");
    refused("x,q,y\n,1,1\n,2,1\n", &real, "column x has no value in any row");
    refused("x,y\n-,1\n2,1\n3,1\n", &real,
            "a.csv: column x: \"-\" is not a number, but 2 of its 3 "
            "different values are");
    refused("y\n1\n", &real, "a sample is made of 0 numbers");
}

static void too_many_categories_are_no_categories(void **state)
{
    struct cddpi_csv_meaning meaning = meaning_of(false);
    char *text = malloc(32 * 1024);
    size_t used = (size_t)sprintf(text, "x,y\n");

    (void)state;
    for (int i = 0; i < 1001; i++) {
        used += (size_t)sprintf(text + used, "name%d,1\n", i);
    }
    refused(text, &meaning, "a.csv:1002: column 1 (x): more than 1000 different texts");
    free(text);
}

static void missing_values_become_means_of_the_rows_to_train_on(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(false);
    static const uint64_t of[] = {0, 1, 3};
    static const float expected[] = {2, 0, 1, 3, 0.5F, 0.5F, 100, 1, 0, 4, 1, 0};

    (void)state;
    meaning.fill = true;
    parse_well("x,c,y\n2,v,1\n,,1\n100,u,1\n4,u,1\n", &meaning, table);
    assert_int_equal(cddpi_csv_rows_fill("a.csv", &table->schema, of, 3, &table->rows), CDDP_OK);
    assert_memory_equal(table->inputs, expected, sizeof expected);
    cddpi_csv_schema_fini(&table->schema);
    parse_well("x,y\n,1\n3,1\n", &meaning, table);
    assert_int_equal(cddpi_csv_rows_fill("a.csv", &table->schema, of, 1, &table->rows),
                     CDDP_ERR_FORMAT);
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

static void the_index_of_pandas_is_left_out(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(false);

    (void)state;
    parse_well(",x,y\n0,5,1\n1,6,1\n", &meaning, table);
    assert_int_equal(table->schema.width, 1);
    assert_true(table->inputs[0] == 5 && table->inputs[1] == 6);
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    static const char text[] = "x,c,y\n2,v,a\n3,w,b\n";
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(true);
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        assert_true(nth < 1000);
        cddpi_alloc_fail_nth(nth);
        status = parse(text, sizeof text - 1, &meaning, table);
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        cddpi_csv_schema_fini(&table->schema);
    }
    free(table);
}

/* Jansson's allocations. */
static long json_left; /* until one fails; 0: none fails */
static long json_held;

static void *json_take(size_t bytes)
{
    void *memory = json_left == 1 ? NULL : malloc(bytes);

    json_left -= json_left > 0;
    json_held += memory != NULL;
    return memory;
}

static void json_give(void *memory)
{
    json_held -= memory != NULL;
    free(memory);
}

static void a_description_that_fails_leaks_nothing(void **state)
{
    struct table *table = malloc(sizeof *table);
    struct cddpi_csv_meaning meaning = meaning_of(true);
    char *text = NULL;

    (void)state;
    parse_well("x,c,y\n2,v,a\n3,w,b\n", &meaning, table);
    json_set_alloc_funcs(json_take, json_give);
    for (long nth = 1; json_left == 0; nth++) {
        json_give(text); /* jansson 2.14 may fail to append to its text unseen */
        assert_true(nth < 1000);
        json_left = nth;
        text = cddpi_csv_schema_text(&table->schema);
        assert_int_equal(json_held, text != NULL);
    }
    json_left = 0;
    assert_string_equal(text, "{\"features\":[{\"name\":\"x\"},{\"categories\":[\"v\",\"w\"],"
                              "\"name\":\"c\"}],\"targets\":[{\"classes\":[\"a\",\"b\"],"
                              "\"name\":\"y\"}]}");
    json_give(text);
    json_set_alloc_funcs(malloc, free);
    cddpi_csv_schema_fini(&table->schema);
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_read_as_rfc_4180_says),
        cmocka_unit_test(broken_syntax_is_refused_at_its_place),
        cmocka_unit_test(columns_become_numbers_and_categories_in_the_order_of_names),
        cmocka_unit_test(integers_as_classes_are_in_the_order_of_their_values),
        cmocka_unit_test(keys_choose_columns_targets_and_delimiter),
        cmocka_unit_test(values_that_do_not_fit_are_refused_at_their_place),
        cmocka_unit_test(too_many_categories_are_no_categories),
        cmocka_unit_test(missing_values_become_means_of_the_rows_to_train_on),
        cmocka_unit_test(the_index_of_pandas_is_left_out),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
        cmocka_unit_test(a_description_that_fails_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
