/* npy.c - owns the header of NumPy's .npy format: a Python dictionary as text, which is read here
 * by the few forms that NumPy writes, and never evaluated. */
#include "data/formats/npy.h"

#include "base/error.h"
#include "base/foreign.h"

#include <inttypes.h>
#include <string.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { MOST_HEADER_BYTES = 1 << 16, WORD_BYTES = 64 };
enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

struct npy_reader {
    const uint8_t *data;
    size_t at, end; /* of the header */
};

static void skip_spaces(struct npy_reader *in)
{
    while (in->at < in->end && (in->data[in->at] == ' ' || in->data[in->at] == '\n' ||
                                in->data[in->at] == '\t' || in->data[in->at] == '\r')) {
        in->at++;
    }
}

static bool take_char(struct npy_reader *in, char wanted)
{
    skip_spaces(in);
    if (in->at < in->end && in->data[in->at] == (uint8_t)wanted) {
        in->at++;
        return true;
    }
    return false;
}

static cddp_status fail_at(const struct npy_reader *in, const char *wanted)
{
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "byte %zu: the header is not one that NumPy writes: %s should be here",
                      in->at, wanted);
}

/* A string in quotes, of printable characters. */
static cddp_status take_text(struct npy_reader *in, char out[WORD_BYTES])
{
    size_t length = 0;
    char quote;

    skip_spaces(in);
    if (in->at >= in->end || (in->data[in->at] != '\'' && in->data[in->at] != '"')) {
        return fail_at(in, "a word in quotes");
    }
    quote = (char)in->data[in->at++];
    while (in->at < in->end && in->data[in->at] != (uint8_t)quote) {
        uint8_t c = in->data[in->at];

        if (c < ' ' || c > '~' || c == '\\' || length + 1 == WORD_BYTES) {
            return fail_at(in, "a short word of plain letters");
        }
        out[length++] = (char)c;
        in->at++;
    }
    if (in->at >= in->end) {
        return fail_at(in, "a closing quote");
    }
    in->at++;
    out[length] = '\0';
    return CDDP_OK;
}

static cddp_status find_type(const char *descr, enum cddpi_number_type *out)
{
    static const struct {
        const char *name;
        enum cddpi_number_type type;
    } types[] = {{"f4", CDDPI_NUMBER_F32}, {"f8", CDDPI_NUMBER_F64}, {"f2", CDDPI_NUMBER_F16},
                 {"u1", CDDPI_NUMBER_U8},  {"b1", CDDPI_NUMBER_U8},  {"i1", CDDPI_NUMBER_I8},
                 {"u2", CDDPI_NUMBER_U16}, {"i2", CDDPI_NUMBER_I16}, {"u4", CDDPI_NUMBER_U32},
                 {"i4", CDDPI_NUMBER_I32}, {"u8", CDDPI_NUMBER_U64}, {"i8", CDDPI_NUMBER_I64}};
    const char *name = descr;
    char order = '|';

    if (*name == '<' || *name == '>' || *name == '|' || *name == '=') {
        order = *name++;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) != 0) {
            continue;
        }
        if (order == '>' && name[1] != '1') {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "the numbers are big-endian (%s): save them with .astype(\"<%s\")",
                              descr, name);
        }
        *out = types[i].type;
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "the elements are %s (%s), but only real numbers, integers and booleans of 1 "
                      "to 8 bytes can be read",
                      *name == 'O'                   ? "Python objects"
                      : *name == 'c'                 ? "complex numbers"
                      : *name == 'U' || *name == 'S' ? "texts"
                      : *name == 'V'                 ? "structures"
                                                     : "of an unknown type",
                      descr);
}

static cddp_status take_descr(struct npy_reader *in, struct cddpi_npy *out)
{
    size_t at;
    char descr[WORD_BYTES];

    skip_spaces(in);
    at = in->at;
    if (at < in->end && in->data[at] == '[') {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte %zu: the elements are structures of several fields: save one plain "
                          "array of numbers",
                          at);
    }
    CDDPI_TRY(take_text(in, descr));
    if (find_type(descr, &out->numbers.type) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_FORMAT, "byte %zu", at);
    }
    return CDDP_OK;
}

static bool take_word(struct npy_reader *in, const char *word)
{
    size_t length = strlen(word);

    skip_spaces(in);
    if (in->end - in->at < length || memcmp(in->data + in->at, word, length) != 0) {
        return false;
    }
    in->at += length;
    return true;
}

static cddp_status take_order(struct npy_reader *in)
{
    if (take_word(in, "False")) {
        return CDDP_OK;
    }
    if (!take_word(in, "True")) {
        return fail_at(in, "True or False");
    }
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "byte %zu: the array is in Fortran's order, in which a sample's numbers are "
                      "not beside each other: save numpy.ascontiguousarray(array)",
                      in->at - 4);
}

static cddp_status take_number(struct npy_reader *in, uint64_t *out)
{
    uint64_t value = 0;
    size_t first;

    skip_spaces(in);
    first = in->at;
    while (in->at < in->end && in->data[in->at] >= '0' && in->data[in->at] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(in->data[in->at] - '0'), &value)) {
            return fail_at(in, "a smaller number");
        }
        in->at++;
    }
    if (in->at == first) {
        return fail_at(in, "a number");
    }
    if (in->at < in->end && in->data[in->at] == 'L') { /* Python 2 */
        in->at++;
    }
    *out = value;
    return CDDP_OK;
}

static cddp_status take_shape(struct npy_reader *in, struct cddpi_npy *out)
{
    if (!take_char(in, '(')) {
        return fail_at(in, "a shape in parentheses");
    }
    out->dims = 0;
    while (!take_char(in, ')')) {
        if (out->dims == CDDPI_NPY_DIMS) {
            return fail_at(in, "the end of a shape of at most 32 dimensions");
        }
        CDDPI_TRY(take_number(in, &out->shape[out->dims++]));
        if (!take_char(in, ',')) {
            if (!take_char(in, ')')) {
                return fail_at(in, "a comma or a closing parenthesis");
            }
            break;
        }
    }
    return CDDP_OK;
}

static cddp_status take_entry(struct npy_reader *in, struct cddpi_npy *out, int *seen)
{
    size_t at = in->at;
    char key[WORD_BYTES];
    int bit;

    CDDPI_TRY(take_text(in, key));
    if (!take_char(in, ':')) {
        return fail_at(in, "a colon");
    }
    bit = strcmp(key, "descr") == 0           ? HAS_DESCR
          : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
          : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                              : 0;
    if (bit == 0 || (*seen & bit) != 0) {
        in->at = at;
        return fail_at(in, "'descr', 'fortran_order' or 'shape', each once,");
    }
    *seen |= bit;
    return bit == HAS_DESCR   ? take_descr(in, out)
           : bit == HAS_ORDER ? take_order(in)
                              : take_shape(in, out);
}

static cddp_status take_dictionary(struct npy_reader *in, struct cddpi_npy *out)
{
    int seen = 0;

    if (!take_char(in, '{')) {
        return fail_at(in, "a {");
    }
    while (!take_char(in, '}')) {
        CDDPI_TRY(take_entry(in, out, &seen));
        if (!take_char(in, ',')) {
            if (!take_char(in, '}')) {
                return fail_at(in, "a comma or a }");
            }
            break;
        }
    }
    if (seen != HAS_ALL) {
        return fail_at(in, "each of 'descr', 'fortran_order' and 'shape'");
    }
    skip_spaces(in);
    return in->at == in->end ? CDDP_OK : fail_at(in, "the end of the header");
}

/* The numbers must fill the memory behind the header. */
static cddp_status check_size(const struct npy_reader *in, size_t bytes, struct cddpi_npy *out)
{
    uint64_t wanted = cddpi_number_bytes(out->numbers.type);
    uint64_t there = bytes - in->end;
    bool too_large = false;

    if (out->dims == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "the array is a single number: its first dimension should be samples");
    }
    out->row_elements = 1;
    for (int i = 0; i < out->dims; i++) {
        if (out->shape[i] == 0) {
            return cddpi_fail(CDDP_ERR_FORMAT, "dimension %d of the array is 0: it is empty", i);
        }
        too_large |= __builtin_mul_overflow(wanted, out->shape[i], &wanted);
        if (i > 0) {
            too_large |= __builtin_mul_overflow(out->row_elements, out->shape[i],
                                                &out->row_elements);
        }
    }
    if (too_large) {
        return cddpi_fail(CDDP_ERR_FORMAT, "the header says more numbers than any file can hold");
    }
    if (wanted != there) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the header says %" PRIu64 " bytes of numbers from byte %zu on, but "
                          "%" PRIu64 " bytes are there",
                          wanted > there ? "truncated" : "too long", wanted, in->end, there);
    }
    return CDDP_OK;
}

cddp_status cddpi_npy_read(const uint8_t *data, size_t bytes, struct cddpi_npy *out)
{
    struct npy_reader in = {.data = data};
    struct cddpi_npy npy = {.dims = 0};
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    uint64_t length;

    if (bytes < sizeof magic || memcmp(data, magic, sizeof magic) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "byte 0: this is not a .npy file of NumPy%s",
                          cddpi_foreign_words(data, bytes, words));
    }
    if (bytes < 12) {
        return cddpi_fail(CDDP_ERR_FORMAT, "truncated: there are only %zu bytes", bytes);
    }
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte 6: format %d.%d of NumPy, but only 1.0, 2.0 and 3.0 can be read",
                          data[6], data[7]);
    }
    length = data[8] | (uint64_t)data[9] << 8;
    in.at = 10;
    if (data[6] > 1) {
        length |= (uint64_t)data[10] << 16 | (uint64_t)data[11] << 24;
        in.at = 12;
    }
    if (length > MOST_HEADER_BYTES || length > bytes - in.at) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte 8: %s: the header has %" PRIu64 " bytes, but %zu follow, and at "
                          "most %d are read",
                          length > bytes - in.at ? "truncated" : "too long", length, bytes - in.at,
                          MOST_HEADER_BYTES);
    }
    in.end = in.at + (size_t)length;
    CDDPI_TRY(take_dictionary(&in, &npy));
    CDDPI_TRY(check_size(&in, bytes, &npy));
    npy.numbers.values = data + in.end;
    *out = npy;
    return CDDP_OK;
}
