/* bytes.c - maps bytes to the characters by which GPT-2's files write them. */
#include "data/tokenizer/tokenizer_impl.h"

/* In GPT-2's files, printable bytes are written as themselves, the others as the characters from
 * 256 on. */
static bool is_itself(int byte)
{
    return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

size_t cddpi_byte_write(unsigned char byte, char out[4])
{
    int character = byte;

    if (!is_itself(byte)) {
        character = 256;
        for (int i = 0; i < byte; i++) {
            character += !is_itself(i);
        }
    }
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

int cddpi_byte_read(int32_t character)
{
    int others = 256;

    if (character >= 0 && character < 256) {
        return is_itself(character) ? (int)character : -1;
    }
    for (int i = 0; i < 256; i++) {
        if (!is_itself(i) && others++ == character) {
            return i;
        }
    }
    return -1;
}
