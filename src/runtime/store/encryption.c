/* encryption.c - owns reading CDDP_ENCRYPT. */
#include "store/encryption.h"

#include "base/env.h"
#include "base/error.h"

#include <string.h>

cddp_status cddpi_encryption_wanted(bool *out)
{
    const char *text = cddpi_env(CDDPI_ENV_ENCRYPT);

    /* any other text is an error: a typo for 1 must not send data unencrypted */
    if (text == NULL || (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "CDDP_ENCRYPT=%s: it must be 1 (data between hosts are encrypted) or 0",
                          text != NULL ? text : "");
    }
    *out = text[0] == '1';
    return CDDP_OK;
}

cddp_status cddpi_encryption(const char *token, bool *out)
{
    cddp_status status = cddpi_encryption_wanted(out);

    if (status == CDDP_OK && *out && token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "CDDP_ENCRYPT=1 needs a secret: CDDP_TOKEN is not set");
    }
    return status;
}
