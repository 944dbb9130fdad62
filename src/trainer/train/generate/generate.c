/* generate.c - owns the state of generating: the tokens so far, the window of them that the model
 * sees, the choice of the next one, and the conversion from and to text. */
#include "train/generate/generate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "base/philox.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The larger logit comes first; of equal ones, the smaller token. */
static int compare(const void *a, const void *b)
{
    const struct cddpi_token_candidate *x = a;
    const struct cddpi_token_candidate *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

static double weight(const struct cddpi_token_sampling *sampling,
                     const struct cddpi_token_candidate *candidate, float largest)
{
    return exp(((double)candidate->logit - (double)largest) / sampling->temperature);
}

int32_t cddpi_sample_token(const struct cddpi_token_sampling *sampling, uint32_t position,
                           const float *logits, int count, struct cddpi_token_candidate *scratch)
{
    int best = 0;
    double total = 0;
    double left;
    struct cddpi_philox stream = cddpi_philox_stream(sampling->seed, CDDPI_RANDOM_GENERATE,
                                                     position);
    uint32_t random[4];

    for (int i = 0; i < count; i++) {
        scratch[i].logit = isnan(logits[i]) ? -INFINITY : logits[i];
        scratch[i].token = i;
        best = scratch[i].logit > scratch[best].logit ? i : best;
    }
    if (sampling->temperature <= 0 || isinf(scratch[best].logit)) {
        return best;
    }
    if (sampling->top_k > 0 && sampling->top_k < count) {
        qsort(scratch, (size_t)count, sizeof *scratch, compare);
        count = sampling->top_k;
        best = 0;
    }
    for (int i = 0; i < count; i++) {
        total += weight(sampling, &scratch[i], scratch[best].logit);
    }
    cddpi_philox4(&stream, sampling->step, random);
    left = (double)((uint64_t)random[0] << 21 | random[1] >> 11) * 0x1p-53 * total; /* 53 bits */
    for (int i = 0; i < count; i++) {
        left -= weight(sampling, &scratch[i], scratch[best].logit);
        if (left < 0) {
            return scratch[i].token;
        }
    }
    return scratch[best].token; /* only after rounding errors */
}

/* The state of a growing text. */
struct course {
    int32_t *tokens; /* the prompt's, then room for new ones */
    size_t prompt_count, count;
    int32_t *window;
    struct cddpi_token_candidate *scratch;
};

static cddp_status no_memory(void)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "generate: no memory");
}

/* Parse "15 27 99": token numbers replace text where there is no tokenizer. */
static cddp_status read_numbers(const char *prompt, int32_t **out_tokens, size_t *out_count)
{
    char *text = cddpi_strdup(prompt);
    int32_t *tokens = cddpi_zalloc_array(strlen(prompt) / 2 + 1, sizeof *tokens);
    cddp_status status = text != NULL && tokens != NULL ? CDDP_OK : no_memory();
    size_t count = 0;
    char *rest = NULL;

    for (char *word = status == CDDP_OK ? strtok_r(text, " \t\n,", &rest) : NULL; word != NULL;
         word = strtok_r(NULL, " \t\n,", &rest)) {
        int64_t number = 0;

        if (!cddpi_parse_integer(word, 0, INT32_MAX, &number)) {
            status = cddpi_fail(CDDP_ERR_CONFIG,
                                "the prompt has \"%.60s\", which is not the number of a token; to "
                                "write words, say with data.vocabulary how they are encoded",
                                word);
            break;
        }
        tokens[count++] = (int32_t)number;
    }
    cddpi_free(text);
    if (status != CDDP_OK) {
        cddpi_free(tokens);
        return status;
    }
    *out_tokens = tokens;
    *out_count = count;
    return CDDP_OK;
}

static cddp_status check_tokens(const struct cddpi_generator *generator, const int32_t *tokens,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] >= generator->vocabulary) {
            return cddpi_fail(
                CDDP_ERR_CONFIG,
                "the prompt has the token %d, but the model's vocabulary has only %d tokens",
                (int)tokens[i], generator->vocabulary);
        }
    }
    return CDDP_OK;
}

static cddp_status allocate(const struct cddpi_generator *generator, size_t count,
                            struct course *course)
{
    size_t room = (count > 0 ? count : 1) + (size_t)generator->count;

    course->tokens = cddpi_zalloc_array(room, sizeof *course->tokens);
    course->window = cddpi_zalloc_array((size_t)generator->context, sizeof *course->window);
    course->scratch = cddpi_zalloc_array((size_t)generator->vocabulary, sizeof *course->scratch);
    return course->tokens != NULL && course->window != NULL && course->scratch != NULL
               ? CDDP_OK
               : no_memory();
}

static cddp_status begin(const struct cddpi_generator *generator, const char *prompt,
                         struct course *course)
{
    const struct cddpi_tokenizer *tokenizer = generator->tokenizer;
    int32_t *tokens = NULL;
    size_t count = 0;
    cddp_status status;

    CDDPI_TRY(tokenizer == NULL
                  ? read_numbers(prompt, &tokens, &count)
                  : cddpi_tokenizer_encode(tokenizer, prompt, strlen(prompt), &tokens, &count));
    CDDPI_TRY_GOTO(end, status, check_tokens(generator, tokens, count));
    CDDPI_TRY_GOTO(end, status, allocate(generator, count, course));
    if (count > 0) {
        memcpy(course->tokens, tokens, count * sizeof *tokens);
    } else if (tokenizer != NULL && cddpi_tokenizer_end(tokenizer) < generator->vocabulary) {
        course->tokens[0] = cddpi_tokenizer_end(tokenizer); /* a text begins after another's end */
    }
    course->prompt_count = count > 0 ? count : 1;
    course->count = course->prompt_count;
end:
    cddpi_free(tokens);
    return status;
}

/* Draw the next token. The model no longer sees tokens that do not fit into the window, and a model
 * may have more outputs than the vocabulary has tokens. */
static cddp_status add_token(const struct cddpi_generator *generator, struct course *course)
{
    size_t seen = course->count < (size_t)generator->context ? course->count
                                                             : (size_t)generator->context;
    uint32_t position = (uint32_t)(course->count - course->prompt_count);
    int choices = generator->vocabulary;
    const float *logits = NULL;

    if (generator->tokenizer != NULL &&
        cddpi_tokenizer_vocabulary(generator->tokenizer) < choices) {
        choices = cddpi_tokenizer_vocabulary(generator->tokenizer);
    }
    memcpy(course->window, course->tokens + course->count - seen, seen * sizeof *course->window);
    CDDPI_TRY(generator->logits(generator->model, course->window, (int)seen - 1, &logits));
    course->tokens[course->count++] = cddpi_sample_token(&generator->sampling, position, logits,
                                                         choices, course->scratch);
    return CDDP_OK;
}

static bool is_over(const struct cddpi_generator *generator, const struct course *course)
{
    return generator->tokenizer != NULL && course->count > course->prompt_count &&
           course->tokens[course->count - 1] == cddpi_tokenizer_end(generator->tokenizer);
}

/* The bytes of the text's token @p i; a number gets a space before it. @p room: for a number. */
static const char *bytes_of(const struct cddpi_generator *generator, const int32_t *tokens,
                            size_t i, char room[16], size_t *out_bytes)
{
    const char *bytes;

    if (generator->tokenizer == NULL) {
        *out_bytes = (size_t)snprintf(room, 16, "%s%d", i > 0 ? " " : "", (int)tokens[i]);
        return room;
    }
    bytes = cddpi_tokenizer_token(generator->tokenizer, tokens[i], out_bytes);
    if (bytes == NULL) {
        *out_bytes = 1;
        return "\xFF";
    }
    return bytes;
}

/* Decode @p tokens to text; NULL: no memory. */
static char *decode(const struct cddpi_generator *generator, const int32_t *tokens, size_t count)
{
    char *text = NULL;
    char *shown = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    bool good;

    if (file == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        char room[16];
        size_t length = 0;
        const char *part = bytes_of(generator, tokens, i, room, &length);

        (void)fwrite(part, 1, length, file);
    }
    good = fclose(file) == 0;
    shown = good ? cddpi_utf8_clean(text, bytes) : NULL;
    free(text);
    return shown;
}

/* Hand over the token drawn last. */
static cddp_status hand_over(const struct cddpi_generator *generator, const struct course *course)
{
    char room[16];
    size_t length = 0;
    const char *part;

    if (generator->on_token == NULL || is_over(generator, course)) {
        return CDDP_OK;
    }
    part = bytes_of(generator, course->tokens + course->prompt_count,
                    course->count - course->prompt_count - 1, room, &length);
    return generator->on_token(generator->state, part, length);
}

cddp_status cddpi_generate(const struct cddpi_generator *generator, const char *prompt,
                           struct cddpi_generated *out)
{
    struct course course = {0};
    struct cddpi_generated generated = {0};
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, begin(generator, prompt, &course));
    for (int i = 0; i < generator->count && !is_over(generator, &course); i++) {
        if ((generator->deadline_ns != 0 && cddpi_now_ns() >= generator->deadline_ns) ||
            (generator->must_stop != NULL && generator->must_stop())) {
            generated.late = true;
            break;
        }
        CDDPI_TRY_GOTO(end, status, add_token(generator, &course));
        CDDPI_TRY_GOTO(end, status, hand_over(generator, &course));
    }
    generated.count = (int)(course.count - course.prompt_count) -
                      (is_over(generator, &course) ? 1 : 0);
    if (generator->on_token == NULL) {
        generated.prompt = cddpi_utf8_clean(prompt, strlen(prompt));
        generated.text = decode(generator, course.tokens + course.prompt_count,
                                (size_t)generated.count);
        if (generated.prompt == NULL || generated.text == NULL) {
            status = no_memory();
            cddpi_generated_fini(&generated);
            goto end;
        }
    }
    *out = generated;
end:
    cddpi_free(course.tokens);
    cddpi_free(course.window);
    cddpi_free(course.scratch);
    return status;
}

void cddpi_generated_fini(struct cddpi_generated *generated)
{
    cddpi_free(generated->prompt);
    cddpi_free(generated->text);
    *generated = (struct cddpi_generated){0};
}
