/* schema.h - the table of train.conf's keys. Everything about them is made from it: parsing, error
 * messages, command line overrides, the resolved configuration and the manual page. */
#ifndef CDDPI_TRAIN_CONFIG_SCHEMA_H
#define CDDPI_TRAIN_CONFIG_SCHEMA_H

#include "train/config/config.h"

enum { CDDPI_KEY_BYTES = 64 };

/* X(id, what --keys calls it, what it expects); what a value is stored as. */
#define CDDPI_KEY_TYPE_MAP(X)                                                                      \
    X(BOOL, "bool", "true or false")           /* bool */                                          \
    X(INT, "int", "a whole number")            /* int */                                           \
    X(LONG, "int", "a whole number")           /* int64_t */                                       \
    X(REAL, "real", "a number")                /* double */                                        \
    X(TEXT, "string", "a string")              /* char *, never NULL after loading, owned */       \
    X(ENUM, "word", "a word")                  /* int: which of the choices */                     \
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
    const char *fallback;               /* in the file's syntax; NULL: the key must be given */
    double low, high;                   /* numbers, and the elements of lists */
    const struct cddpi_choice *choices; /* enum: up to one without a word */
    bool local;                         /* may differ between ranks */
    bool is_path;      /* text, texts: files or folders, so a leading ~/ is $HOME */
    bool negated;      /* bool: stored as its opposite */
    const char *text;  /* a sentence */
    const int *needed; /* choices of data.type with which it must be given; NULL: none */
    size_t of;         /* offset of the choice that it belongs to: it has a meaning only where */
    const int *of_choices; /* that is one of these; NULL: always */
};

extern const struct cddpi_key cddpi_config_keys[];
extern const size_t cddpi_config_key_count;
extern const struct cddpi_key cddpi_layer_keys[];
extern const size_t cddpi_layer_key_count;

/** "bool", "int", "strings" ...: a type, as --keys names it. */
const char *cddpi_key_type_word(enum cddpi_key_type type);

/** "true or false", "a whole number" ...: what @p key expects. */
const char *cddpi_key_expects(const struct cddpi_key *key);

/** The row of @p keys whose path is @p path, or NULL. */
const struct cddpi_key *cddpi_key_find(const struct cddpi_key *keys, size_t count,
                                       const char *path);

/** The key or group of keys whose path resembles @p path most. */
void cddpi_key_nearest(const struct cddpi_key *keys, size_t count, const char *path,
                       char out[CDDPI_KEY_BYTES]);

/** The word of choice @p value of @p key; NULL: it has no such choice. */
const char *cddpi_key_word(const struct cddpi_key *key, int value);

/** What @p config has for @p key, which is a choice. */
int cddpi_key_choice(const struct cddpi_key *key, const struct cddpi_config *config);

/** Whether @p value is among @p choices, which end with CDDPI_NO_CHOICE. */
bool cddpi_choices_have(const int *choices, int value);

/** The key without whose choices (of_choices) @p key has no meaning in @p config; NULL: it has
 *  one. */
const struct cddpi_key *cddpi_key_without(const struct cddpi_key *key,
                                          const struct cddpi_config *config);

#endif
