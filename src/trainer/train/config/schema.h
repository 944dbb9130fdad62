/* schema.h - owns the table of train.conf's keys. Parsing, error messages, command line overrides,
 * the resolved configuration and the manual page are all made from it. */
#ifndef CDDPI_TRAIN_CONFIG_SCHEMA_H
#define CDDPI_TRAIN_CONFIG_SCHEMA_H

#include "train/config/config.h"

enum { CDDPI_KEY_BYTES = 64 };

/* X(id, the type's name in --keys and the manual page, what it expects); the comment says how the
 * value is stored. */
#define CDDPI_KEY_TYPE_MAP(X)                                                                      \
    X(BOOL, "bool", "true or false")                          /* bool */                           \
    X(INT, "int", "a whole number")                           /* int */                            \
    X(LONG, "int", "a whole number")                          /* int64_t */                        \
    X(AUTO, "\"auto\" or int", "a whole number, or \"auto\"") /* int64_t, or CDDPI_AUTO */         \
    X(REAL, "real", "a number")                               /* double */                         \
    X(TEXT, "string", "a string")              /* char *, never NULL after loading, owned */       \
    X(ENUM, "word", "a word")                  /* int: the value of a choice */                    \
    X(INTS, "ints", "a list of whole numbers") /* struct cddpi_int_list */                         \
    X(REALS, "reals", "a number or a list of numbers")   /* struct cddpi_real_list */              \
    X(TEXTS, "strings", "a string or a list of strings") /* struct cddpi_text_list */              \
    X(STAGES, "stages",                                                                            \
      "a list of names, or a list of stages in ( )") /* struct cddpi_stage_names */                \
    X(LAYERS, "layers", "a list of layers")          /* struct cddpi_config_layers */
#define CDDPI_KEY_TYPE_ID(id, word, expects) CDDPI_KEY_##id,
enum cddpi_key_type { CDDPI_KEY_TYPE_MAP(CDDPI_KEY_TYPE_ID) };

enum { CDDPI_NO_CHOICE = -1 }; /* the end of a list of choices */

struct cddpi_choice {
    int value;
    const char *word;
};

struct cddpi_key {
    const char *path;
    size_t offset; /* of the value in struct cddpi_config (or struct cddpi_layer) */
    enum cddpi_key_type type;
    const char *fallback; /* default, in the file's syntax; NULL: the key is required */
    double low, high;     /* range of numbers, also of list elements */
    const struct cddpi_choice *choices; /* for enum; ends with an entry without a word */
    bool local;                         /* may differ between ranks */
    bool is_path;                       /* text, texts: files or folders; a leading ~/ is $HOME */
    bool negated;                       /* bool: stored inverted */
    const char *text;                   /* what the key does, one sentence */
    const int *needed;     /* values of data.type for which the key is required; NULL: none */
    size_t of;             /* offset of the key that it depends on: it has a meaning only if that */
    const int *of_choices; /* key has one of these values; NULL: always */
};

extern const struct cddpi_key cddpi_config_keys[];
extern const size_t cddpi_config_key_count;
extern const struct cddpi_key cddpi_layer_keys[];
extern const size_t cddpi_layer_key_count;

/** What @p key expects: "true or false", "a whole number" ... */
const char *cddpi_key_expects(const struct cddpi_key *key);

/** The row of @p keys with the path @p path; NULL: no such key. */
const struct cddpi_key *cddpi_key_find(const struct cddpi_key *keys, size_t count,
                                       const char *path);

/** Find the key or group of keys whose path is most similar to @p path. Returns the distance. */
unsigned cddpi_key_nearest(const struct cddpi_key *keys, size_t count, const char *path,
                           char out[CDDPI_KEY_BYTES]);

/** The word of choice @p value of @p key; NULL: no such choice. */
const char *cddpi_key_word(const struct cddpi_key *key, int value);

/** Whether @p value is among @p choices, which end with CDDPI_NO_CHOICE. */
bool cddpi_choices_have(const int *choices, int value);

/** If @p key has no meaning in @p config, the key that it depends on (of_choices); NULL: @p key has
 *  a meaning. */
const struct cddpi_key *cddpi_key_without(const struct cddpi_key *key,
                                          const struct cddpi_config *config);

/** Print what values @p key takes: "real from 0 to 1", "word: sgd, adamw". */
void cddpi_key_print_type(FILE *file, const struct cddpi_key *key);

/** Print for which of data.type @p key, which is needed, must be given: "idx, text". */
void cddpi_key_print_needed(FILE *file, const struct cddpi_key *key);

/** Print all keys in scdoc format: the sections KEYS and KEYS OF A LAYER of train.conf(5). */
void cddpi_config_print_keys(FILE *file);

#endif
