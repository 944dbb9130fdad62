/* gzip.h - gzip files for tests. */
#ifndef CDDP_TESTS_SUPPORT_GZIP_H
#define CDDP_TESTS_SUPPORT_GZIP_H

#include "support/test.h"

#include <libdeflate.h>

/* Pack @p data as one gzip member into @p room bytes at @p out. Returns its size. */
size_t support_gzip(const void *data, size_t bytes, void *out, size_t room);

#endif
