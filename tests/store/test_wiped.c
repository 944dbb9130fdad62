/* test_wiped.c - no secrets are left in memory that cddp has freed. This test replaces the
 * library's allocator and examines each block when it is freed. */
#include "store/store_stream.h"
#include "store/store_wire.h"
#include "support/store.h"

#include <cddp/process.h>
#include <malloc.h>
#include <pthread.h>

enum { SECRETS = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t secrets[SECRETS][CDDPI_CIPHER_KEY_BYTES];
static int secret_count;
static int released_with_a_secret;

static void *alloc_block(void *state, size_t bytes, size_t alignment)
{
    (void)state;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void look_at(void *block)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < secret_count; i++) {
        released_with_a_secret += memmem(block, malloc_usable_size(block), secrets[i],
                                         sizeof secrets[i]) != NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void *resize_block(void *state, void *block, size_t bytes)
{
    (void)state;
    return realloc(block, bytes);
}

static void release_block(void *state, void *block)
{
    (void)state;
    look_at(block);
    free(block);
}

static void watch(const uint8_t secret[CDDPI_CIPHER_KEY_BYTES])
{
    pthread_mutex_lock(&lock);
    assert_true(secret_count < SECRETS);
    memcpy(secrets[secret_count++], secret, CDDPI_CIPHER_KEY_BYTES);
    pthread_mutex_unlock(&lock);
}

static int start(void **state)
{
    (void)state;
    secret_count = released_with_a_secret = 0;
    return 0;
}

static void the_watch_itself_sees_what_is_left(void **state)
{
    static const uint8_t secret[CDDPI_CIPHER_KEY_BYTES] = "a secret that nobody wiped";
    uint8_t *block = alloc_block(NULL, 1000, 16);

    (void)state;
    watch(secret);
    memset(block, 0, 1000);
    memcpy(block + 77, secret, sizeof secret);
    release_block(NULL, block);
    assert_int_equal(released_with_a_secret, 1);
}

/* Of both directions, and what was decrypted. */
static void a_connection_that_ends_leaves_no_key(void **state)
{
    static const uint8_t key[CDDPI_AUTH_KEY_BYTES] = "the key of the proof, 32 bytes!";
    static const uint8_t text[CDDPI_CIPHER_KEY_BYTES] = "a message, as long as a key is.";
    struct cddpi_store_stream streams[2];
    struct cddpi_session sessions[2];
    uint8_t offer[CDDPI_OFFER_BYTES];
    uint8_t accept[CDDPI_ACCEPT_BYTES];
    uint8_t own[CDDPI_CIPHER_KEY_BYTES];
    uint8_t got[4];
    struct iovec out[2] = {{(void *)(uintptr_t)text, sizeof text}, {NULL, 0}};
    struct iovec in[2] = {{got, sizeof got}, {NULL, 0}};
    uint32_t ciphers;
    int fds[2];

    (void)state;
    assert_int_equal(cddpi_ciphers(&ciphers), CDDP_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    cddpi_session_offer(&sessions[0], key, key, ciphers, offer);
    assert_true(cddpi_session_check(&sessions[1], key, key, offer));
    assert_true(cddpi_session_accept(&sessions[1], 0, ciphers, accept));
    assert_true(cddpi_session_confirm(&sessions[0], 0, accept));
    watch(text);
    for (int i = 0; i < 2; i++) {
        cddpi_session_key(&sessions[i], true, "records", own);
        watch(own);
        streams[i] = (struct cddpi_store_stream){fds[i], cddpi_cipher_create(&sessions[i])};
        assert_non_null(streams[i].cipher);
    }
    assert_int_equal(cddpi_stream_send(&streams[0], out), sizeof text);
    assert_int_equal(cddpi_stream_recv(&streams[1], in), sizeof got); /* the rest stays in it */
    for (int i = 0; i < 2; i++) {
        cddpi_cipher_destroy(streams[i].cipher);
        close(fds[i]);
    }
    assert_int_equal(released_with_a_secret, 0);
}

static void a_store_that_is_closed_leaves_no_key(void **state)
{
    static const char *const forms[] = {"tcp", "file"};
    uint8_t key[CDDPI_AUTH_KEY_BYTES];

    (void)state;
    cddpi_store_key(TOKEN, key);
    watch(key);
    cddpi_auth_key(TOKEN, "cddp file store", key);
    watch(key);
    for (int i = 0; i < 2; i++) {
        void *place = (void *)(uintptr_t)forms[i];

        assert_int_equal(place_set_up(&place), 0);
        assert_int_equal(cddp_store_set(((struct place *)place)->store, "k", "v", 1), CDDP_OK);
        place_tear_down(&place);
    }
    assert_int_equal(released_with_a_secret, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_watch_itself_sees_what_is_left, start),
        cmocka_unit_test_setup(a_connection_that_ends_leaves_no_key, start),
        cmocka_unit_test_setup(a_store_that_is_closed_leaves_no_key, start),
    };
    cddp_allocator allocator = CDDP_ALLOCATOR_INIT;

    allocator.alloc = alloc_block;
    allocator.resize = resize_block;
    allocator.release = release_block;
    if (cddp_allocator_set(&allocator) != CDDP_OK) {
        fprintf(stderr, "test_wiped: %s\n", cddp_last_error());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
