/* test_session.c - the greeting's proofs, keys and ciphers, without a network. */
#include "store/session.h"
#include "store/store_stream.h"
#include "support/test.h"

#include <sys/socket.h>

enum { BOTH = CDDPI_CIPHER_CHACHA20 | CDDPI_CIPHER_AES256GCM };

static const uint8_t key[CDDPI_AUTH_KEY_BYTES] = "a key that both sides know";
static const uint8_t nonce[CDDPI_NONCE_BYTES] = "of the server";

static int start(void **state)
{
    uint32_t ciphers;

    (void)state;
    return cddpi_ciphers(&ciphers) == CDDP_OK ? 0 : -1; /* starts libsodium */
}

static uint32_t own_ciphers(void)
{
    uint32_t ciphers = 0;

    assert_int_equal(cddpi_ciphers(&ciphers), CDDP_OK);
    return ciphers;
}

/* Two sides that have greeted each other. */
static void greet(struct cddpi_session *client, struct cddpi_session *server, uint32_t ciphers)
{
    uint8_t offer[CDDPI_OFFER_BYTES];
    uint8_t accept[CDDPI_ACCEPT_BYTES];

    cddpi_session_offer(client, key, nonce, ciphers, offer);
    assert_true(cddpi_session_check(server, key, nonce, offer));
    assert_true(cddpi_session_accept(server, 7, ciphers, accept));
    assert_true(cddpi_session_confirm(client, 7, accept));
}

static bool keys_are_equal(const struct cddpi_session *a, bool a_is_own,
                           const struct cddpi_session *b, bool b_is_own)
{
    uint8_t of_a[CDDPI_CIPHER_KEY_BYTES];
    uint8_t of_b[CDDPI_CIPHER_KEY_BYTES];

    cddpi_session_key(a, a_is_own, "records", of_a);
    cddpi_session_key(b, b_is_own, "records", of_b);
    return memcmp(of_a, of_b, sizeof of_a) == 0;
}

static void both_sides_come_to_the_same_two_keys(void **state)
{
    struct cddpi_session client;
    struct cddpi_session server;
    uint8_t a[CDDPI_CIPHER_KEY_BYTES];
    uint8_t b[CDDPI_CIPHER_KEY_BYTES];

    (void)state;
    greet(&client, &server, BOTH);
    assert_true(keys_are_equal(&client, true, &server, false));
    assert_true(keys_are_equal(&client, false, &server, true));
    assert_false(keys_are_equal(&client, true, &client, false));
    cddpi_session_key(&client, true, "records", a);
    cddpi_session_key(&client, true, "heads", b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Who has the token and a recording of the greeting knows all but what the two never sent. */
static void the_token_and_a_recording_do_not_give_the_keys(void **state)
{
    static const uint8_t zeros[CDDPI_PUBLIC_KEY_BYTES];
    struct cddpi_session client;
    struct cddpi_session server;
    struct cddpi_session spy;

    (void)state;
    greet(&client, &server, BOTH);
    spy = client;
    memset(spy.secret, 0, sizeof spy.secret);
    assert_false(keys_are_equal(&client, true, &spy, true));
    memcpy(spy.secret, client.client_public, sizeof spy.secret);
    assert_false(keys_are_equal(&client, true, &spy, true));
    memcpy(spy.secret, client.secret, sizeof spy.secret); /* it is that, and nothing else */
    assert_true(keys_are_equal(&client, true, &spy, true));
    cddpi_session_wipe(&client);
    assert_memory_equal(client.secret, zeros, sizeof zeros);
    assert_memory_equal(client.key, zeros, sizeof zeros);
}

/* Each byte: nonces, public keys, ciphers (so that nobody weakens the choice), and proofs. */
static void whoever_changes_a_byte_of_the_greeting_is_noticed(void **state)
{
    struct cddpi_session client;
    struct cddpi_session server;
    uint8_t offer[CDDPI_OFFER_BYTES];
    uint8_t accept[CDDPI_ACCEPT_BYTES];

    (void)state;
    cddpi_session_offer(&client, key, nonce, BOTH, offer);
    for (size_t i = 0; i < sizeof offer; i++) {
        offer[i] ^= 2;
        assert_false(cddpi_session_check(&server, key, nonce, offer));
        offer[i] ^= 2;
    }
    assert_true(cddpi_session_check(&server, key, nonce, offer));
    assert_true(cddpi_session_accept(&server, 0, BOTH, accept));
    for (size_t i = 0; i < sizeof accept; i++) {
        struct cddpi_session copy = client;

        accept[i] ^= 3; /* also: from one cipher to the other */
        assert_false(cddpi_session_confirm(&copy, 0, accept));
        accept[i] ^= 3;
    }
    assert_false(cddpi_session_confirm(&(struct cddpi_session){0}, 0, accept));
    {
        struct cddpi_session copy = client;

        assert_false(cddpi_session_confirm(&copy, 1, accept)); /* another reply */
    }
    assert_true(cddpi_session_confirm(&client, 0, accept));
}

static void another_key_or_nonce_proves_nothing(void **state)
{
    uint8_t other[CDDPI_AUTH_KEY_BYTES] = "another token's";
    struct cddpi_session client;
    struct cddpi_session server;
    uint8_t offer[CDDPI_OFFER_BYTES];

    (void)state;
    cddpi_session_offer(&client, key, nonce, BOTH, offer);
    assert_false(cddpi_session_check(&server, other, nonce, offer));
    assert_false(cddpi_session_check(&server, key, other, offer)); /* an offer played again */
}

/* Points of a small order, for which everybody knows what is shared. */
static void a_public_key_that_is_none_is_refused(void **state)
{
    struct cddpi_session client;
    struct cddpi_session server;
    uint8_t offer[CDDPI_OFFER_BYTES];
    uint8_t accept[CDDPI_ACCEPT_BYTES];

    (void)state;
    cddpi_session_offer(&client, key, nonce, BOTH, offer);
    assert_true(cddpi_session_check(&server, key, nonce, offer));
    memset(server.client_public, 0, sizeof server.client_public);
    assert_false(cddpi_session_accept(&server, 0, BOTH, accept));
    memset(server.client_public, 0, sizeof server.client_public);
    server.client_public[0] = 1;
    assert_false(cddpi_session_accept(&server, 0, BOTH, accept));
}

static void the_faster_cipher_is_chosen_where_both_have_it(void **state)
{
    static const struct {
        uint32_t of_client, of_server, chosen;
    } rows[] = {{BOTH, BOTH, CDDPI_CIPHER_AES256GCM},
                {CDDPI_CIPHER_CHACHA20, BOTH, CDDPI_CIPHER_CHACHA20},
                {BOTH, CDDPI_CIPHER_CHACHA20, CDDPI_CIPHER_CHACHA20},
                {CDDPI_CIPHER_AES256GCM, BOTH, CDDPI_CIPHER_AES256GCM},
                {CDDPI_CIPHER_AES256GCM, CDDPI_CIPHER_CHACHA20, 0},
                {0, BOTH, 0},
                {~(uint32_t)BOTH, BOTH, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cddpi_session client;
        struct cddpi_session server;
        uint8_t offer[CDDPI_OFFER_BYTES];
        uint8_t accept[CDDPI_ACCEPT_BYTES];

        cddpi_session_offer(&client, key, nonce, rows[i].of_client, offer);
        assert_true(cddpi_session_check(&server, key, nonce, offer));
        assert_int_equal(cddpi_session_accept(&server, 0, rows[i].of_server, accept),
                         rows[i].chosen != 0);
        if (rows[i].chosen != 0) {
            assert_true(cddpi_session_confirm(&client, 0, accept));
            assert_int_equal(client.cipher, rows[i].chosen);
        }
    }
}

/* Two connected streams, with @p kind. */
static void connect_streams(enum cddpi_cipher_kind kind, struct cddpi_store_stream out[2])
{
    struct cddpi_session client;
    struct cddpi_session server;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    greet(&client, &server, kind);
    for (int i = 0; i < 2; i++) {
        out[i].fd = fds[i];
        out[i].cipher = cddpi_cipher_create(i == 0 ? &client : &server);
        assert_non_null(out[i].cipher);
    }
}

static void close_streams(struct cddpi_store_stream streams[2])
{
    for (int i = 0; i < 2; i++) {
        cddpi_cipher_destroy(streams[i].cipher);
        close(streams[i].fd);
    }
}

static void move(struct cddpi_store_stream *from, struct cddpi_store_stream *to,
                 const uint8_t *data, size_t bytes)
{
    uint8_t *got = malloc(bytes);
    size_t sent = 0;
    size_t have = 0;

    assert_non_null(got);
    while (have < bytes) {
        size_t first = (bytes - sent) / 3;
        struct iovec out[2] = {{(void *)(uintptr_t)(data + sent), first},
                               {(void *)(uintptr_t)(data + sent + first), bytes - sent - first}};
        struct iovec in[2] = {{got + have, (bytes - have) / 2},
                              {got + have + (bytes - have) / 2, bytes - have - (bytes - have) / 2}};
        ssize_t moved = sent < bytes ? cddpi_stream_send(from, out) : 0;

        sent += moved > 0 ? (size_t)moved : 0;
        (void)cddpi_stream_flush(from);
        moved = cddpi_stream_recv(to, in);
        assert_true(moved > 0 || errno == EAGAIN);
        have += moved > 0 ? (size_t)moved : 0;
    }
    assert_memory_equal(got, data, bytes);
    free(got);
}

static void streams_carry_any_sizes_with_both_ciphers(void **state)
{
    enum { MOST = 3 << 20 };
    static const size_t sizes[] = {1, 2, 100, 4095, 65519, 65520, 65521, 65536, 300000, MOST};
    uint8_t *data = malloc(MOST);

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (int kind = CDDPI_CIPHER_CHACHA20; kind <= CDDPI_CIPHER_AES256GCM; kind++) {
        struct cddpi_store_stream streams[2];

        if ((own_ciphers() & (uint32_t)kind) == 0) {
            print_message("no AES here\n");
            continue;
        }
        connect_streams((enum cddpi_cipher_kind)kind, streams);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            move(&streams[0], &streams[1], data, sizes[i]);
            move(&streams[1], &streams[0], data, sizes[i]);
            cddpi_stream_rest(&streams[i % 2]);
        }
        close_streams(streams);
    }
    free(data);
}

static void seal_pair(enum cddpi_cipher_kind kind, struct cddpi_seal *put, struct cddpi_seal *get)
{
    cddpi_seal_init(put, kind, key);
    cddpi_seal_init(get, kind, key);
}

/* Dropped, twice, out of order, shortened, or from the other direction: none is taken. */
static void a_record_that_is_not_the_next_is_refused(void **state)
{
    (void)state;
    for (int kind = CDDPI_CIPHER_CHACHA20; kind <= CDDPI_CIPHER_AES256GCM; kind++) {
        struct cddpi_seal put;
        struct cddpi_seal get;
        struct cddpi_seal before;
        uint8_t records[3][100 + CDDPI_CIPHER_TAG_BYTES];
        uint8_t text[100] = "of a record";
        uint8_t out[100];

        if ((own_ciphers() & (uint32_t)kind) == 0) {
            continue;
        }
        seal_pair((enum cddpi_cipher_kind)kind, &put, &get);
        for (int i = 0; i < 3; i++) {
            cddpi_seal_put(&put, text, sizeof text, records[i]);
        }
        assert_memory_not_equal(records[0], records[1], sizeof records[0]);
        assert_true(cddpi_seal_get(&get, records[0], sizeof records[0], out));
        assert_memory_equal(out, text, sizeof text);
        before = get;
        assert_false(cddpi_seal_get(&get, records[0], sizeof records[0], out));
        get = before;
        assert_false(cddpi_seal_get(&get, records[2], sizeof records[2], out));
        get = before;
        assert_false(cddpi_seal_get(&get, records[1], sizeof records[1] - 1, out));
        get = before;
        assert_false(cddpi_seal_get(&get, records[1], CDDPI_CIPHER_TAG_BYTES - 1, out));
        get = before;
        assert_true(cddpi_seal_get(&get, records[1], sizeof records[1], out));
        assert_true(cddpi_seal_get(&get, records[2], sizeof records[2], out));
    }
}

/* libcrypto on one side, libsodium on the other, over a change of keys: a library is nothing that
 * the other side would see. */
static void records_of_both_libraries_are_the_same(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 17, 1000, 65520};
    static uint8_t text[65520];
    static uint8_t records[2][sizeof text + CDDPI_CIPHER_TAG_BYTES];
    static uint8_t out[sizeof text];
    struct cddpi_seal seals[4]; /* two that put, two that get, by either library */

    (void)state;
    for (int i = 0; i < 4; i++) {
        cddpi_seal_init(&seals[i], CDDPI_CIPHER_AES256GCM, key);
    }
    cddpi_seal_bulk(&seals[1], true);
    cddpi_seal_bulk(&seals[3], false);
    if ((own_ciphers() & CDDPI_CIPHER_AES256GCM) == 0 || seals[1].bulk == NULL) {
        print_message("no AES, or no libcrypto here\n");
        skip();
    }
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)(i * 31 + 7);
    }
    for (int i = 0; i < CDDPI_CIPHER_RECORDS + 20; i++) {
        bool is_looked_at = i < 20 || i > CDDPI_CIPHER_RECORDS - 5;
        size_t bytes = is_looked_at ? sizes[i % 6] : 1;

        for (int k = 0; k < 2; k++) {
            cddpi_seal_put(&seals[k], text, bytes, records[k]);
        }
        assert_memory_equal(records[0], records[1], bytes + CDDPI_CIPHER_TAG_BYTES);
        for (int k = 0; k < 2; k++) {
            assert_true(
                cddpi_seal_get(&seals[2 + k], records[k], bytes + CDDPI_CIPHER_TAG_BYTES, out));
            assert_memory_equal(out, text, bytes);
        }
    }
    cddpi_seal_put(&seals[0], text, 100, records[0]);
    records[0][50] ^= 1;
    assert_false(cddpi_seal_get(&seals[3], records[0], 100 + CDDPI_CIPHER_TAG_BYTES, out));
    for (int i = 0; i < 4; i++) {
        cddpi_seal_fini(&seals[i]);
    }
}

/* The key changes on both sides at once, and the old one is gone. */
static void keys_are_replaced_after_65536_records(void **state)
{
    (void)state;
    for (int kind = CDDPI_CIPHER_CHACHA20; kind <= CDDPI_CIPHER_AES256GCM; kind++) {
        struct cddpi_seal put;
        struct cddpi_seal get;
        uint8_t record[1 + CDDPI_CIPHER_TAG_BYTES];
        uint8_t text = 3;
        uint8_t out = 0;

        if ((own_ciphers() & (uint32_t)kind) == 0) {
            continue;
        }
        seal_pair((enum cddpi_cipher_kind)kind, &put, &get);
        for (int i = 0; i < 2 * CDDPI_CIPHER_RECORDS + 2; i++) {
            cddpi_seal_put(&put, &text, 1, record);
            assert_true(cddpi_seal_get(&get, record, sizeof record, &out));
            if (i == CDDPI_CIPHER_RECORDS - 1) {
                assert_memory_equal(put.key, key, sizeof put.key);
            }
        }
        assert_int_equal(out, 3);
        assert_memory_not_equal(put.key, key, sizeof put.key);
        assert_memory_equal(put.key, get.key, sizeof put.key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_come_to_the_same_two_keys),
        cmocka_unit_test(the_token_and_a_recording_do_not_give_the_keys),
        cmocka_unit_test(whoever_changes_a_byte_of_the_greeting_is_noticed),
        cmocka_unit_test(another_key_or_nonce_proves_nothing),
        cmocka_unit_test(a_public_key_that_is_none_is_refused),
        cmocka_unit_test(the_faster_cipher_is_chosen_where_both_have_it),
        cmocka_unit_test(streams_carry_any_sizes_with_both_ciphers),
        cmocka_unit_test(a_record_that_is_not_the_next_is_refused),
        cmocka_unit_test(records_of_both_libraries_are_the_same),
        cmocka_unit_test(keys_are_replaced_after_65536_records),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
