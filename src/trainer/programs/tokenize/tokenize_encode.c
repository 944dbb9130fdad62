/* tokenize_encode.c - what cddp-tokenize does with texts: encode them to files; for --check, decode
 * them again and compare; for --train, learn a vocabulary from their words. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/streams.h"
#include "data/formats/token_shards.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_train.h"
#include "programs/tokenize/documents.h"
#include "programs/tokenize/run.h"

#include <string.h>

enum { TRAIN, VAL, PARTS };

struct encoding {
    struct cddpi_tokenize *run;
    struct cddpi_tokenizer *tokenizer;
    struct cddpi_encoder *encoder;
    struct cddpi_documents *documents;
    struct cddpi_token_shards shards[PARTS]; /* zeroed: not writing */
    int64_t tokens;                          /* without end tokens */
    int64_t ended;                           /* documents that ended */
};

cddp_status cddpi_tokenize_stopped(void)
{
    return cddpi_fail(CDDP_ERR_CLOSED, "stopped by a signal");
}

/* Seconds since the beginning, never 0. */
static double seconds_of(const struct cddpi_tokenize *run)
{
    return (double)(cddpi_now_ns() - run->begin_ns + 1) * 1e-9;
}

/* @p total: 0: not known. */
static void show_bytes(struct cddpi_tokenize *run, uint64_t done, uint64_t total, int64_t tokens)
{
    double rate = (double)done / seconds_of(run);
    char of[48] = "";
    char left[48] = "";
    char made[48] = "";

    if (!cddpi_progress_is_due(&run->progress)) {
        return;
    }
    if (total > 0) {
        snprintf(of, sizeof of, " of %.1f", (double)total * 1e-6);
        snprintf(left, sizeof left, ", %.0f s left",
                 rate > 0 && done < total ? (double)(total - done) / rate : 0.0);
    }
    if (tokens > 0) {
        snprintf(made, sizeof made, ", %lld tokens", (long long)tokens);
    }
    cddpi_progress_show(&run->progress, "%.1f%s MB%s, %.1f MB/s%s", (double)done * 1e-6, of, made,
                        rate * 1e-6, left);
}

static cddp_status open_documents(const struct cddpi_tokenize *run, double val_fraction,
                                  struct cddpi_documents **out)
{
    struct cddpi_documents_options documents = {.paths = run->options->paths,
                                                .path_count = run->options->path_count,
                                                .separator = run->options->separator,
                                                .val_fraction = val_fraction,
                                                .is_stopped = run->is_stopped};

    return cddpi_documents_open(&documents, out);
}

static cddp_status fail_empty(const struct cddpi_tokenize *run)
{
    return cddpi_fail(CDDP_ERR_FORMAT, "there is no text in %s%s", run->options->paths[0],
                      run->options->path_count > 1 ? " and the others" : "");
}

static cddp_status open_all(struct encoding *encoding, double val_fraction)
{
    CDDPI_TRY(cddpi_tokenizer_open(encoding->run->options->vocabulary, &encoding->tokenizer));
    CDDPI_TRY(open_documents(encoding->run, val_fraction, &encoding->documents));
    return cddpi_encoder_create(encoding->tokenizer, &encoding->encoder);
}

static void close_all(struct encoding *encoding)
{
    cddpi_shards_fini(&encoding->shards[TRAIN]);
    cddpi_shards_fini(&encoding->shards[VAL]);
    cddpi_encoder_destroy(encoding->encoder);
    cddpi_documents_close(encoding->documents);
    cddpi_tokenizer_close(encoding->tokenizer);
}

static cddp_status write_tokens(struct encoding *encoding, const struct cddpi_piece *piece,
                                const int32_t *tokens, size_t count)
{
    struct cddpi_token_shards *shards = &encoding->shards[piece->is_val ? VAL : TRAIN];
    int32_t end = cddpi_tokenizer_end(encoding->tokenizer);

    CDDPI_TRY(cddpi_shards_put(shards, tokens, count));
    return piece->last ? cddpi_shards_put(shards, &end, 1) : CDDP_OK;
}

/* Check that the tokens' bytes are those of @p piece. */
static cddp_status compare_tokens(struct encoding *encoding, const struct cddpi_piece *piece,
                                  size_t used, const int32_t *tokens, size_t count)
{
    uint64_t before = cddpi_documents_read(encoding->documents);
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *text = cddpi_tokenizer_token(encoding->tokenizer, tokens[i], &bytes);

        if (text == NULL || bytes > used - at || memcmp(piece->text + at, text, bytes) != 0) {
            break;
        }
        at += bytes;
    }
    return at == used ? CDDP_OK
                      : cddpi_fail(CDDP_ERR_FORMAT,
                                   "decoding does not give the text back: byte %llu, counted over "
                                   "all files, differs",
                                   (unsigned long long)(before + at));
}

/* Encode all documents, and write the tokens to the files or compare them with the text. */
static cddp_status encode_all(struct encoding *encoding, bool is_check)
{
    struct cddpi_tokenize *run = encoding->run;
    size_t used = 0;

    for (;;) {
        struct cddpi_piece piece;
        const int32_t *tokens;
        size_t count;
        bool is_end = false;

        if (run->is_stopped()) {
            return cddpi_tokenize_stopped();
        }
        CDDPI_TRY(cddpi_documents_next(encoding->documents, used, &piece, &is_end));
        if (is_end) {
            return CDDP_OK;
        }
        cddpi_encoder_clear(encoding->encoder);
        CDDPI_TRY(cddpi_encoder_put(encoding->encoder, piece.text, piece.bytes, piece.last, &used));
        tokens = cddpi_encoder_tokens(encoding->encoder, &count);
        CDDPI_TRY(is_check ? compare_tokens(encoding, &piece, used, tokens, count)
                           : write_tokens(encoding, &piece, tokens, count));
        encoding->tokens += (int64_t)count;
        encoding->ended += piece.last && !piece.goes_on;
        show_bytes(run, cddpi_documents_read(encoding->documents) + used,
                   cddpi_documents_bytes(encoding->documents), encoding->tokens);
    }
}

static void print_files(const struct cddpi_token_shards *shards)
{
    if (shards->files == 1 && !shards->is_numbered) {
        cddpi_say(stdout, "%s.bin: %lld tokens\n", shards->name, (long long)shards->tokens);
    } else if (shards->files == 1) {
        cddpi_say(stdout, "%s_000000.bin: %lld tokens\n", shards->name, (long long)shards->tokens);
    } else if (shards->files > 0) {
        cddpi_say(stdout, "%s_000000.bin to %s_%06d.bin: %lld tokens\n", shards->name, shards->name,
                  shards->files - 1, (long long)shards->tokens);
    }
}

static void warn_of_leftover(const struct cddpi_token_shards *shards)
{
    char *path = cddpi_shards_leftover(shards);

    if (path != NULL) {
        cddpi_say(
            stderr,
            "cddp-tokenize: %s was left by an earlier run: remove it, or a pattern like *.bin "
            "takes it in\n",
            path);
    }
    cddpi_free(path);
}

static void print_result(struct encoding *encoding)
{
    struct cddpi_tokenize *run = encoding->run;
    double bytes = (double)cddpi_documents_read(encoding->documents);

    cddpi_progress_erase(&run->progress);
    for (int part = 0; part < PARTS; part++) {
        print_files(&encoding->shards[part]);
        warn_of_leftover(&encoding->shards[part]);
    }
    if (run->options->val_fraction > 0 && encoding->shards[VAL].files == 0) {
        cddpi_say(
            stderr,
            "cddp-tokenize: %s.bin is not written: no line begins in the part of the text that "
            "was to be held back for validation\n",
            encoding->shards[VAL].name);
    }
    printf("%lld document%s, %.0f bytes, %.2f bytes a token, %.1f MB/s; model.vocab = %d\n",
           (long long)encoding->ended, encoding->ended == 1 ? "" : "s", bytes,
           bytes / (double)encoding->tokens, bytes * 1e-6 / seconds_of(run),
           cddpi_tokenizer_vocabulary(encoding->tokenizer));
}

static cddp_status init_shards(struct encoding *encoding)
{
    static const char *const parts[PARTS] = {[TRAIN] = "train", [VAL] = "val"};
    const struct cddpi_tokenize_options *options = encoding->run->options;
    cddp_status status = CDDP_OK;

    for (int part = 0; part < PARTS && status == CDDP_OK; part++) {
        char *name = cddpi_format("%s_%s", options->output, parts[part]);

        status = name != NULL
                     ? cddpi_shards_init(&encoding->shards[part], name, options->shard_tokens,
                                         cddpi_tokenizer_vocabulary(encoding->tokenizer))
                     : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a name");
        cddpi_free(name);
    }
    return status;
}

cddp_status cddpi_tokenize_encode(struct cddpi_tokenize *run)
{
    struct encoding encoding = {.run = run};
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, open_all(&encoding, run->options->val_fraction));
    CDDPI_TRY_GOTO(out, status, init_shards(&encoding));
    CDDPI_TRY_GOTO(out, status, encode_all(&encoding, false));
    if (encoding.tokens == 0) {
        status = fail_empty(run);
        goto out;
    }
    for (int part = 0; part < PARTS; part++) {
        CDDPI_TRY_GOTO(out, status, cddpi_shards_finish(&encoding.shards[part]));
    }
    print_result(&encoding);
out:
    close_all(&encoding);
    return status;
}

cddp_status cddpi_tokenize_check(struct cddpi_tokenize *run)
{
    struct encoding encoding = {.run = run};
    double bytes;
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, open_all(&encoding, 0));
    if (!cddpi_tokenizer_keeps_text(encoding.tokenizer)) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT,
                            "--check has no meaning with a vocabulary of words: white space and "
                            "unknown words do not come back");
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, encode_all(&encoding, true));
    bytes = (double)cddpi_documents_read(encoding.documents);
    cddpi_progress_erase(&run->progress);
    printf("all %.0f bytes are the same when decoded: %lld tokens, %.2f bytes each, %.1f MB/s\n",
           bytes, (long long)encoding.tokens,
           encoding.tokens > 0 ? bytes / (double)encoding.tokens : 0.0,
           bytes * 1e-6 / seconds_of(run));
out:
    close_all(&encoding);
    return status;
}

static cddp_status count_words(struct cddpi_tokenize *run, struct cddpi_documents *documents,
                               struct cddpi_word_counts *counts)
{
    size_t used = 0;

    for (;;) {
        struct cddpi_piece piece;
        bool is_end = false;

        if (run->is_stopped()) {
            return cddpi_tokenize_stopped();
        }
        CDDPI_TRY(cddpi_documents_next(documents, used, &piece, &is_end));
        if (is_end) {
            return CDDP_OK;
        }
        CDDPI_TRY(cddpi_word_counts_put(counts, piece.text, piece.bytes, piece.last, &used));
        show_bytes(run, cddpi_documents_read(documents) + used, cddpi_documents_bytes(documents),
                   0);
    }
}

static bool show_merges(void *argument, int tokens)
{
    struct cddpi_tokenize *run = argument;

    if (cddpi_progress_is_due(&run->progress)) {
        cddpi_progress_show(&run->progress, "%d of %d tokens", tokens,
                            run->options->train_vocabulary);
    }
    return !run->is_stopped();
}

static void print_vocabulary(struct cddpi_tokenize *run, uint64_t bytes, size_t words, int tokens)
{
    cddpi_progress_erase(&run->progress);
    cddpi_say(stdout, "%s: %d tokens from %zu different words of %llu bytes, in %.1f s\n",
              run->options->output, tokens, words, (unsigned long long)bytes, seconds_of(run));
    if (tokens < run->options->train_vocabulary) {
        fprintf(stderr, "cddp-tokenize: the text gives no more than %d tokens: in it %s\n", tokens,
                run->options->words ? "are no further words" : "no further pair occurs twice");
    }
}

static cddp_status learn_vocabulary(struct cddpi_tokenize *run, struct cddpi_documents *documents,
                                    struct cddpi_word_counts *counts)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    uint64_t bytes = cddpi_documents_read(documents);
    cddp_status status;

    if (cddpi_word_counts_size(counts) == 0) {
        return fail_empty(run);
    }
    CDDPI_TRY(run->options->words
                  ? cddpi_tokenizer_train_words(counts, run->options->train_vocabulary, &tokenizer)
                  : cddpi_tokenizer_train(counts, run->options->train_vocabulary, show_merges, run,
                                          &tokenizer));
    status = run->is_stopped() ? cddpi_tokenize_stopped()
                               : cddpi_tokenizer_save(tokenizer, run->options->output);
    if (status == CDDP_OK) {
        print_vocabulary(run, bytes, cddpi_word_counts_size(counts),
                         cddpi_tokenizer_vocabulary(tokenizer));
    }
    cddpi_tokenizer_close(tokenizer);
    return status;
}

cddp_status cddpi_tokenize_train(struct cddpi_tokenize *run)
{
    struct cddpi_documents *documents = NULL;
    struct cddpi_word_counts *counts = NULL;
    cddp_status status;

    CDDPI_TRY(open_documents(run, 0, &documents));
    CDDPI_TRY_GOTO(out, status, cddpi_word_counts_create(&counts));
    if (run->options->words) {
        cddpi_word_counts_by_space(counts);
    }
    CDDPI_TRY_GOTO(out, status, count_words(run, documents, counts));
    status = learn_vocabulary(run, documents, counts);
out:
    cddpi_word_counts_destroy(counts);
    cddpi_documents_close(documents);
    return status;
}
