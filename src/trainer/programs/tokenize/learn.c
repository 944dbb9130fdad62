/* learn.c - cddp-tokenize --train: counts the words of texts and learns a vocabulary from them. */
#include "programs/tokenize/run.h"

#include "base/error.h"
#include "base/streams.h"
#include "data/tokenizer/tokenizer_train.h"
#include "programs/tokenize/documents.h"

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
        cddpi_tokenize_progress_bytes(&run->progress, cddpi_documents_read(documents) + used,
                                      cddpi_documents_bytes(documents), 0);
    }
}

static bool show_merges(void *argument, int tokens)
{
    struct cddpi_tokenize *run = argument;

    cddpi_tokenize_progress_merges(&run->progress, tokens, run->options->train_vocabulary);
    return !run->is_stopped();
}

static void print_result(struct cddpi_tokenize *run, uint64_t bytes, size_t words, int tokens)
{
    cddpi_tokenize_progress_end(&run->progress);
    cddpi_say(stdout, "%s: %d tokens from %zu different words of %llu bytes, in %.1f s\n",
              run->options->output, tokens, words, (unsigned long long)bytes,
              cddpi_tokenize_progress_seconds(&run->progress));
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
        return cddpi_fail(CDDP_ERR_FORMAT, "there is no text in %s%s", run->options->paths[0],
                          run->options->path_count > 1 ? " and the others" : "");
    }
    CDDPI_TRY(run->options->words
                  ? cddpi_tokenizer_train_words(counts, run->options->train_vocabulary, &tokenizer)
                  : cddpi_tokenizer_train(counts, run->options->train_vocabulary, show_merges, run,
                                          &tokenizer));
    status = run->is_stopped() ? cddpi_tokenize_stopped()
                               : cddpi_tokenizer_save(tokenizer, run->options->output);
    if (status == CDDP_OK) {
        print_result(run, bytes, cddpi_word_counts_size(counts),
                     cddpi_tokenizer_vocabulary(tokenizer));
    }
    cddpi_tokenizer_close(tokenizer);
    return status;
}

cddp_status cddpi_tokenize_train(struct cddpi_tokenize *run)
{
    struct cddpi_documents_options options = {.paths = run->options->paths,
                                              .path_count = run->options->path_count,
                                              .separator = run->options->separator,
                                              .is_stopped = run->is_stopped};
    struct cddpi_documents *documents = NULL;
    struct cddpi_word_counts *counts = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_documents_open(&options, &documents));
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
