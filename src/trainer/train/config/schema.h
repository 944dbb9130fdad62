/* schema.h - one table of the keys of train.conf from which everything about them is made: parsing,
 * error messages, command line overrides, the resolved configuration and the manual page. */
#ifndef CDDPI_TRAIN_CONFIG_SCHEMA_H
#define CDDPI_TRAIN_CONFIG_SCHEMA_H

#include "train/config/config.h"

enum { CDDPI_KEY_BYTES = 64 };

enum cddpi_key_type {
    CDDPI_KEY_BOOL,   /* bool */
    CDDPI_KEY_INT,    /* int */
    CDDPI_KEY_LONG,   /* int64_t */
    CDDPI_KEY_REAL,   /* double */
    CDDPI_KEY_TEXT,   /* char *, never NULL after loading, owned */
    CDDPI_KEY_ENUM,   /* int: which of the choices */
    CDDPI_KEY_INTS,   /* struct cddpi_int_list */
    CDDPI_KEY_REALS,  /* struct cddpi_real_list */
    CDDPI_KEY_TEXTS,  /* struct cddpi_text_list */
    CDDPI_KEY_STAGES, /* struct cddpi_stage_names */
    CDDPI_KEY_LAYERS  /* struct cddpi_config_layers */
};

struct cddpi_key {
    const char *path;
    size_t offset; /* of the value in struct cddpi_config (or struct cddpi_layer) */
    enum cddpi_key_type type;
    const char *fallback; /* in the file's syntax; NULL: the key must be given */
    double low, high;     /* numbers, and the elements of lists */
    const char *choices;  /* enum: "a|b|c" */
    bool local;           /* ranks need not agree about it */
    bool is_path;         /* text, texts: files or folders, so a leading ~/ is $HOME */
    bool negated;         /* bool: stored as its opposite */
    const char *text;     /* a sentence */
    const char *needed;   /* words of data.type with which it must be given; NULL: none */
    const char *of; /* "KEY=a|b": it has a meaning only where KEY is one of these; NULL: always */
};

extern const struct cddpi_key cddpi_config_keys[];
extern const size_t cddpi_config_key_count;
extern const struct cddpi_key cddpi_layer_keys[];
extern const size_t cddpi_layer_key_count;

/** "bool", "a whole number" ...: what @p key expects. */
const char *cddpi_key_expects(const struct cddpi_key *key);

/** The row of @p keys whose path is @p path, or NULL. */
const struct cddpi_key *cddpi_key_find(const struct cddpi_key *keys, size_t count,
                                       const char *path);

/** The key or group of keys whose path resembles @p path most. */
void cddpi_key_nearest(const struct cddpi_key *keys, size_t count, const char *path,
                       char out[CDDPI_KEY_BYTES]);

/** Whether the word of @p data_type is one of @p words ("a|b"); NULL: there are none. */
bool cddpi_key_has_data(const char *words, int data_type);

/** The key without whose choice of @p out_words ("a|b") @p key has no meaning in @p config; NULL:
 * it has one. */
const struct cddpi_key *cddpi_key_without(const struct cddpi_key *key,
                                          const struct cddpi_config *config,
                                          const char **out_words);

/** Copy choice @p index of "a|b|c" to @p out; false when there are fewer. */
bool cddpi_key_choice(const char *choices, int index, char *out, size_t out_bytes);

#endif
