/* safetensors.h - a folder with safetensors files for tests. */
#ifndef CDDP_TESTS_SUPPORT_SAFETENSORS_H
#define CDDP_TESTS_SUPPORT_SAFETENSORS_H

#include "support/test.h"

#include <cddp/checkpoint.h>

/* The folder of a case, and a file of it. */
extern char *dir;
extern char path[5000];

int make_dir(void **state);

int remove_dir(void **state);

extern float weights[6];
extern int64_t counter;

/* Of all types; the first is of `weights`, the second of `counter`. */
enum { TENSORS = 8 };
extern const cddp_tensor tensors[TENSORS];

void put_file(const void *data, size_t size);

/* A file of @p json, whose length the header gives as @p length, and @p data_bytes zeros. */
void put_safetensors(const char *json, uint64_t length, size_t data_bytes);

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

#endif
