/* test_launcher_messages.c - the messages between cddp-runs, and between ranks that join:
 * everything decodes to what was encoded, and messages that are truncated, damaged or of another
 * version are refused with a reason. */
#include "group/join/members.h"
#include "group/shm/shm.h"
#include "launcher/hosts/parcel.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_record.h"
#include "launcher/nodes/refused.h"
#include "support/test.h"

enum { VERSION_AT = 8, NODES = 2 };

/* The structs are large, and each message is one of these. */
static union any {
    struct cddpi_node_event event;
    struct cddpi_node_record record;
    struct cddpi_node_plan plan;
    struct cddpi_parcel parcel;
    struct cddpi_refused_list refused;
    struct cddpi_who who;
    struct cddpi_refusal refusal;
    struct cddpi_member member;
    struct cddpi_member_hosts hosts;
    struct shm_block_place block;
} samples[10], decoded;

static const struct cddpi_message_form *const forms[] = {
    &cddpi_node_event_form,   &cddpi_node_record_form, &cddpi_node_plan_form, &cddpi_parcel_form,
    &cddpi_refused_form,      &cddpi_who_form,         &cddpi_refusal_form,   &cddpi_member_form,
    &cddpi_member_hosts_form, &cddpi_shm_block_form};

enum { FORMS = sizeof forms / sizeof *forms };

static int make_samples(void **state)
{
    static struct cddpi_plan_node nodes[NODES] = {{"alpha", 4, 0}, {"beta", 2, 1}};
    static struct cddpi_host_run runs[] = {{0, 2, 3}, {3, 1, 2}};
    static char *variables[] = {(char *)"CDDP_LOG=info", (char *)"FLAVOUR=a b"};

    (void)state;
    samples[0].event = (struct cddpi_node_event){.kind = CDDPI_EVENT_FAILURE,
                                                 .generation = 1,
                                                 .node = 1,
                                                 .rank = -1,
                                                 .exit_status = 7,
                                                 .may_restart = true,
                                                 .has_kept = true,
                                                 .text = "rank 3 exited with status 7"};
    samples[1].record = (struct cddpi_node_record){.version = "0.1.0",
                                                   .host = "alpha",
                                                   .nproc = 4,
                                                   .count = 3,
                                                   .timeout_ms = "300000",
                                                   .words = "train.conf",
                                                   .words_bytes = INT64_C(5000000000)};
    samples[2].plan = (struct cddpi_node_plan){
        .master_host = "10.0.0.7", .count = NODES, .nodes = nodes};
    samples[3].parcel = (struct cddpi_parcel){.token = (char *)"0123456789abcdef",
                                              .folder = (char *)"/home/user",
                                              .host = (char *)"alpha",
                                              .variable_count = 2,
                                              .variables = variables};
    samples[4].refused = (struct cddpi_refused_list){
        .count = 2,
        .rows = {{"10.0.0.7", CDDPI_REFUSED_TOKEN}, {"fd00::7", CDDPI_REFUSED_VERSION}}};
    samples[5].who = (struct cddpi_who){77, UINT64_MAX, "alpha", "0d1f|pid:[4026531836]"};
    samples[6].refusal = (struct cddpi_refusal){CDDP_ERR_MISMATCH, -1, "no memory for a block"};
    samples[7].member = (struct cddpi_member){8, "0d1f|pid:[4026531836]|alpha"};
    samples[8].hosts = (struct cddpi_member_hosts){8, UINT64_C(0xc0ffee), 2, runs};
    samples[9].block = (struct shm_block_place){UINT64_MAX, 4711, 77, 5, 8};
    return 0;
}

static struct cddpi_wire_buffer encode(int i)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};

    assert_int_equal(cddpi_message_encode(forms[i], &samples[i], &message), CDDP_OK);
    return message;
}

/* Decode, and release. The copy has the message's size, so that a sanitizer sees what is read
 * beyond it. */
static cddp_status decode(int i, const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);
    cddp_status status;

    memcpy(copy, data, bytes);
    copy = realloc(copy, bytes > 0 ? bytes : 1);
    status = cddpi_message_decode(forms[i], copy, bytes, &decoded);
    free(copy);
    cddpi_message_fini(forms[i], &decoded);
    return status;
}

static void every_message_comes_back_as_it_was(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct cddpi_wire_buffer message = encode(i);
        struct cddpi_wire_buffer again = {NULL, 0, 0};

        assert_int_equal(cddpi_message_decode(forms[i], message.data, message.bytes, &decoded),
                         CDDP_OK);
        assert_int_equal(cddpi_message_encode(forms[i], &decoded, &again), CDDP_OK);
        assert_int_equal(again.bytes, message.bytes);
        assert_memory_equal(again.data, message.data, message.bytes);
        cddpi_message_fini(forms[i], &decoded);
        cddpi_buffer_fini(&again);
        cddpi_buffer_fini(&message);
    }
}

static void numbers_texts_and_lists_are_read_into_their_places(void **state)
{
    struct cddpi_wire_buffer message = encode(1);

    (void)state;
    assert_int_equal(
        cddpi_message_decode(&cddpi_node_record_form, message.data, message.bytes, &decoded),
        CDDP_OK);
    assert_string_equal(decoded.record.host, "alpha");
    assert_int_equal(decoded.record.nproc, 4);
    assert_true(decoded.record.words_bytes == INT64_C(5000000000));
    cddpi_buffer_fini(&message);
    message = encode(2);
    assert_int_equal(
        cddpi_node_plan_decode(message.data, message.bytes, NODES, NODES, &decoded.plan), CDDP_OK);
    assert_string_equal(decoded.plan.nodes[1].host, "beta");
    assert_int_equal(decoded.plan.nodes[1].nproc, 2);
    cddpi_node_plan_fini(&decoded.plan);
    cddpi_buffer_fini(&message);
    message = encode(3);
    assert_int_equal(
        cddpi_message_decode(&cddpi_parcel_form, message.data, message.bytes, &decoded), CDDP_OK);
    assert_string_equal(decoded.parcel.variables[1], "FLAVOUR=a b");
    cddpi_message_fini(&cddpi_parcel_form, &decoded);
    cddpi_buffer_fini(&message);
}

static void a_message_of_another_version_is_refused_in_words(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct cddpi_wire_buffer message = encode(i);

        message.data[VERSION_AT] = 9;
        assert_int_equal(decode(i, message.data, message.bytes), CDDP_ERR_MISMATCH);
        assert_string_equal(cddp_last_error(),
                            "it is from another version of cddp, whose messages have version 9; "
                            "those of this one have version 2");
        /* also if the other version has put more into it */
        assert_int_equal(decode(i, message.data, message.bytes - 1), CDDP_ERR_MISMATCH);
        cddpi_buffer_fini(&message);
    }
}

static void what_is_cut_or_longer_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct cddpi_wire_buffer message = encode(i);

        for (size_t bytes = 0; bytes < message.bytes; bytes++) {
            assert_int_equal(decode(i, message.data, bytes), CDDP_ERR_FORMAT);
        }
        assert_true(cddpi_buffer_reserve(&message, 1));
        cddpi_buffer_append(&message, "", 1);
        assert_int_equal(decode(i, message.data, message.bytes), CDDP_ERR_FORMAT);
        cddpi_buffer_fini(&message);
    }
}

/* Lengths that lie, signs, kinds: whatever it is, the answer is a status. */
static void no_byte_that_is_changed_does_harm(void **state)
{
    static const uint8_t masks[] = {1, 0x80, 0xff};

    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct cddpi_wire_buffer message = encode(i);

        for (size_t at = 0; at < message.bytes; at++) {
            for (size_t k = 0; k < sizeof masks; k++) {
                message.data[at] ^= masks[k];
                (void)decode(i, message.data, message.bytes);
                message.data[at] ^= masks[k];
            }
        }
        cddpi_buffer_fini(&message);
    }
}

/* A list of two thousand million elements is not allocated before there are bytes for them. */
static void a_list_that_is_longer_than_the_message_is_refused(void **state)
{
    enum { LENGTH_AT = CDDPI_MESSAGE_HEAD_BYTES + 16 };
    struct cddpi_wire_buffer message = encode(8);

    (void)state;
    assert_int_equal(cddpi_get_u64(message.data + LENGTH_AT), 2);
    cddpi_put_u64(message.data + LENGTH_AT, INT32_MAX);
    assert_int_equal(decode(8, message.data, message.bytes), CDDP_ERR_FORMAT);
    cddpi_buffer_fini(&message);
}

static void a_message_of_one_kind_is_none_of_another(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct cddpi_wire_buffer message = encode(i);

        for (int k = 0; k < FORMS; k++) {
            assert_int_equal(decode(k, message.data, message.bytes),
                             k == i ? CDDP_OK : CDDP_ERR_FORMAT);
        }
        cddpi_buffer_fini(&message);
    }
}

static void what_is_out_of_bounds_is_not_sent(void **state)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    char *variable = malloc(1 << 18);

    (void)state;
    samples[1].record.nproc = 0;
    assert_int_equal(cddpi_message_encode(&cddpi_node_record_form, &samples[1], &message),
                     CDDP_ERR_ARGUMENT);
    memset(variable, 'a', (1 << 18) - 1);
    variable[(1 << 18) - 1] = '\0';
    samples[3].parcel.variables = &variable;
    samples[3].parcel.variable_count = 1;
    assert_int_equal(cddpi_message_encode(&cddpi_parcel_form, &samples[3], &message),
                     CDDP_ERR_ARGUMENT);
    free(variable);
    cddpi_buffer_fini(&message);
}

static void a_number_of_nodes_that_the_job_has_not_is_refused(void **state)
{
    struct cddpi_wire_buffer message = encode(2);

    (void)state;
    assert_int_equal(cddpi_node_plan_decode(message.data, message.bytes, 3, 3, &decoded.plan),
                     CDDP_ERR_FORMAT);
    cddpi_node_plan_fini(&decoded.plan);
    assert_int_equal(cddpi_node_plan_decode(message.data, message.bytes, 1, 1, &decoded.plan),
                     CDDP_ERR_FORMAT);
    cddpi_node_plan_fini(&decoded.plan);
    cddpi_buffer_fini(&message);
}

/* Nodes may be missing, also node 0, only where their number is not fixed. */
static void the_numbers_of_nodes_rise(void **state)
{
    static const struct {
        int nodes[NODES];
        int least;
        cddp_status wanted;
    } rows[] = {{{0, 1}, 2, CDDP_OK},         {{0, 3}, 1, CDDP_OK},
                {{0, 3}, 2, CDDP_ERR_FORMAT}, {{1, 3}, 1, CDDP_OK},
                {{1, 2}, 2, CDDP_ERR_FORMAT}, {{3, 1}, 1, CDDP_ERR_FORMAT},
                {{0, 0}, 1, CDDP_ERR_FORMAT}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int most = rows[i].least < NODES ? NODES + 2 : NODES;
        struct cddpi_wire_buffer message;

        for (int k = 0; k < NODES; k++) {
            samples[2].plan.nodes[k].node = rows[i].nodes[k];
        }
        message = encode(2);
        assert_int_equal(
            cddpi_node_plan_decode(message.data, message.bytes, rows[i].least, most, &decoded.plan),
            rows[i].wanted);
        if (rows[i].wanted == CDDP_OK) {
            assert_true(cddpi_node_plan_has(&decoded.plan, rows[i].nodes[1]));
            assert_false(cddpi_node_plan_has(&decoded.plan, 2));
        }
        cddpi_node_plan_fini(&decoded.plan);
        cddpi_buffer_fini(&message);
    }
    samples[2].plan.nodes[0].node = 0;
    samples[2].plan.nodes[1].node = 1;
}

/* Of two nodes' records. */
static void need_difference(const struct cddpi_node_record *zero,
                            const struct cddpi_node_record *other, const char *wanted)
{
    char text[CDDPI_REFUSAL_BYTES];

    assert_true(cddpi_node_record_differs(zero, 0, other, 2, text, sizeof text));
    assert_string_equal(text, wanted);
}

static void what_differs_between_nodes_is_said(void **state)
{
    struct cddpi_node_record zero = {.version = "0.1.0",
                                     .host = "alpha",
                                     .nproc = 1,
                                     .count = 3,
                                     .least = 1,
                                     .max_restarts = -1,
                                     .program = {.bytes = -1},
                                     .config = {.bytes = 1300}};
    struct cddpi_node_record other = zero;
    char text[CDDPI_REFUSAL_BYTES];

    (void)state;
    snprintf(other.host, sizeof other.host, "beta");
    other.nproc = 7;
    other.program.bytes = 77; /* and node 0's could not be read */
    assert_false(cddpi_node_record_differs(&zero, 0, &other, 5, text, sizeof text));
    other.config.bytes = 1234;
    need_difference(&zero, &other,
                    "node 2 (beta) has another train.conf than node 0 (alpha): 1234 bytes, not "
                    "1300");
    other.config.bytes = 1300;
    other.config.hash[3] = 1;
    need_difference(&zero, &other,
                    "node 2 (beta) has another train.conf than node 0 (alpha): 1300 bytes, but "
                    "not the same");
    other.config = zero.config;
    zero.program.bytes = 78;
    need_difference(&zero, &other,
                    "node 2 (beta) has another program than node 0 (alpha): 77 bytes, not 78");
    other.program = zero.program;
    other.max_restarts = 4;
    need_difference(&zero, &other,
                    "node 2 (beta) was started with --max-restarts 4, node 0 (alpha) with none");
    other.least = 2;
    need_difference(&zero, &other,
                    "node 2 (beta) was started with --nnodes 2:3, node 0 (alpha) with 1:3");
    other.least = 0;
    need_difference(&zero, &other,
                    "node 2 (beta) was started with --nnodes 3, node 0 (alpha) with 1:3");
}

static void clients_that_were_refused_are_named_as_far_as_there_is_room(void **state)
{
    struct cddpi_refused_list full = {.count = CDDPI_REFUSED_ROWS};
    char text[CDDPI_REFUSED_BYTES];

    (void)state;
    cddpi_refused_say(&samples[4].refused, text);
    assert_string_equal(text,
                        "10.0.0.7 (it does not know the job's token), fd00::7 (it speaks another "
                        "version of the protocol)");
    for (int i = 0; i < full.count; i++) {
        snprintf(full.rows[i].address, sizeof full.rows[i].address, "10.0.0.%d", i);
        full.rows[i].why = CDDPI_REFUSED_TOKEN;
    }
    cddpi_refused_say(&full, text);
    assert_string_equal(text + strlen(text) - 8, "s token)");
    cddpi_refused_say(&(struct cddpi_refused_list){.count = 0}, text);
    assert_string_equal(text, "");
}

#define CASE(test) cmocka_unit_test_setup(test, make_samples)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_message_comes_back_as_it_was),
        CASE(numbers_texts_and_lists_are_read_into_their_places),
        CASE(a_message_of_another_version_is_refused_in_words),
        CASE(what_is_cut_or_longer_is_refused),
        CASE(no_byte_that_is_changed_does_harm),
        CASE(a_list_that_is_longer_than_the_message_is_refused),
        CASE(a_message_of_one_kind_is_none_of_another),
        CASE(what_is_out_of_bounds_is_not_sent),
        CASE(a_number_of_nodes_that_the_job_has_not_is_refused),
        CASE(the_numbers_of_nodes_rise),
        CASE(what_differs_between_nodes_is_said),
        CASE(clients_that_were_refused_are_named_as_far_as_there_is_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
