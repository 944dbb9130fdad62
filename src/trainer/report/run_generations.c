/* run_generations.c - owns what metrics.jsonl says of a job's generations. */
#include "report/run_generations.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { REASON_BYTES = 201, MOST_GENERATIONS = 1000 };

int cddpi_generation(void)
{
    return (int)cddpi_env_integer(CDDPI_ENV_GENERATION, 0, INT32_MAX, 0);
}

void cddpi_generation_describe(json_t *line)
{
    const char *told = cddpi_env(CDDPI_ENV_GENERATION_REASON);
    char reason[REASON_BYTES];

    (void)json_object_set_new(line, "generation", json_integer(cddpi_generation()));
    if (told != NULL) {
        snprintf(reason, sizeof reason, "%s", told);
        cddpi_text_clean(reason, sizeof reason, true);
        (void)json_object_set_new(line, "reason", json_string(reason));
    }
}

/* A text of the file, which anyone may have written. */
static json_t *clean(const json_t *text)
{
    size_t bytes = json_string_length(text);
    char *copy = json_is_string(text)
                     ? cddpi_utf8_clean(json_string_value(text),
                                        bytes < REASON_BYTES ? bytes : REASON_BYTES - 1)
                     : NULL;
    json_t *string = copy != NULL ? json_string(copy) : json_null();

    cddpi_free(copy);
    return string;
}

void cddpi_generation_collect(const json_t *line, json_t *list)
{
    const json_t *step = json_object_get(line, "step");
    const json_t *ranks = json_object_get(line, "world_size");
    const json_t *generation = json_object_get(line, "generation");

    if (!json_is_number(step) || !json_is_integer(ranks) || json_integer_value(ranks) < 1) {
        return;
    }
    (void)json_array_append_new(list,
                                json_pack("{s:f, s:f, s:o, s:o}", "step", json_number_value(step),
                                          "ranks", (double)json_integer_value(ranks), "generation",
                                          json_is_integer(generation)
                                              ? json_real((double)json_integer_value(generation))
                                              : json_null(),
                                          "reason", clean(json_object_get(line, "reason"))));
    if (json_array_size(list) > MOST_GENERATIONS) {
        (void)json_array_remove(list, 0);
    }
}
