/* safetensors.h - a folder with safetensors files, for tests. */
#ifndef CDDP_TESTS_SUPPORT_SAFETENSORS_H
#define CDDP_TESTS_SUPPORT_SAFETENSORS_H

#include "support/test.h"

#include <cddp/checkpoint.h>

/* The folder of a test case, and a file in it. */
extern char *dir;
extern char path[5000];

int make_dir(void **state);

int remove_dir(void **state);

extern float weights[6];
extern int64_t counter;

/* One tensor of each type; the first is `weights`, the second `counter`. */
enum { TENSORS = 8 };
extern const cddp_tensor tensors[TENSORS];

void put_file(const void *data, size_t size);

/* Write a file of @p json, with @p length as its length in the header, and @p data_bytes zeros. */
void put_safetensors(const char *json, uint64_t length, size_t data_bytes);

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

#endif
