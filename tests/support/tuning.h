/* tuning.h - shared by the tests of choices that processes keep for each other. */
#ifndef CDDP_TESTS_SUPPORT_TUNING_H
#define CDDP_TESTS_SUPPORT_TUNING_H

#include "base/tuning.h"
#include "support/folder.h"

/* What the choices are for, unless a test says otherwise. */
extern const char tuning_card[];

/* A folder for each test, with the folder "cache" for choices in it. */
int make_cache(void **state);
int remove_cache(void **state);

struct cddpi_tuning *open_card(void);
/* Keep @p value for @p key, as a process that does nothing else. */
void keep_choice(uint64_t key, uint64_t value);
/* A process finds @p value for the @p key, or nothing: 0. */
void assert_choice(const char *identity, uint64_t key, uint64_t value);

/* The only file of choices; the folder has another one, its lock, and no temporary files. */
char *file_of_choices(void);
size_t read_choices(char *out, size_t room);

#define IN_CACHE(test) cmocka_unit_test_setup_teardown(test, make_cache, remove_cache)

#endif
