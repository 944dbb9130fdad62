/* link_world.c - the simulated store. */
#include "launcher/link_world.h"

const struct row *depot_find(const struct depot *depot, const char *key)
{
    for (int i = 0; i < depot->count; i++) {
        if (strcmp(depot->rows[i].key, key) == 0) {
            return &depot->rows[i];
        }
    }
    return NULL;
}

static void fill(struct row *row, const char *key, const void *value, size_t bytes)
{
    assert_true(bytes <= sizeof row->value && strlen(key) < sizeof row->key);
    memcpy(row->key, key, strlen(key) + 1);
    memcpy(row->value, value, bytes);
    row->bytes = bytes;
}

void depot_set(struct depot *depot, const char *key, const void *value, size_t bytes)
{
    struct row *row = (struct row *)depot_find(depot, key);

    if (row == NULL) {
        assert_true(depot->count < MOST_ROWS);
        row = &depot->rows[depot->count++];
    }
    fill(row, key, value, bytes);
}

static void event_key(int number, char out[CDDPI_NODE_KEY_BYTES])
{
    snprintf(out, CDDPI_NODE_KEY_BYTES, "job/event/%d", number);
}

int depot_events(const struct depot *depot)
{
    char key[CDDPI_NODE_KEY_BYTES];
    int number = 0;

    for (event_key(number, key); depot_find(depot, key) != NULL; event_key(++number, key)) {
    }
    return number;
}

void depot_tell(struct depot *depot, const struct cddpi_node_event *event)
{
    struct cddpi_wire_buffer value = {NULL, 0, 0};
    char key[CDDPI_NODE_KEY_BYTES];

    assert_int_equal(cddpi_message_encode(&cddpi_node_event_form, event, &value), CDDP_OK);
    event_key(depot_events(depot), key);
    depot_set(depot, key, value.data, value.bytes);
    cddpi_buffer_fini(&value);
}

struct cddpi_node_event depot_event(const struct depot *depot, int number)
{
    struct cddpi_node_event event;
    char key[CDDPI_NODE_KEY_BYTES];
    const struct row *row;

    event_key(number, key);
    row = depot_find(depot, key);
    assert_non_null(row);
    assert_int_equal(cddpi_node_event_decode(row->value, row->bytes, &event), CDDP_OK);
    return event;
}

void depot_catch_up(struct depot *depot, int which)
{
    struct row row = depot->late[which];
    bool is_event = depot->is_late_event[which];

    depot->late_count--;
    depot->late[which] = depot->late[depot->late_count];
    depot->is_late_event[which] = depot->is_late_event[depot->late_count];
    if (!is_event || depot_find(depot, row.key) == NULL) {
        depot_set(depot, row.key, row.value, row.bytes);
    }
}

void desk_begin(struct desk *desk, struct depot *depot, int self, const int *nodes, int count)
{
    const struct cddpi_link_options options = {.job = "job",
                                               .self = self,
                                               .nodes = nodes,
                                               .count = count,
                                               .limit_ms = LIMIT_MS,
                                               .look_ms = LOOK_MS,
                                               .answer_ms = ANSWER_MS,
                                               .can_mend = true};

    memset(desk, 0, sizeof *desk);
    desk->depot = depot;
    desk->now = (struct cddpi_link_now){INT64_C(1000000000), INT64_C(5000000000)};
    assert_int_equal(cddpi_link_init(&options, &desk->now, &desk->link), CDDP_OK);
}

void desk_end(struct desk *desk)
{
    cddpi_link_fini(&desk->link);
}

void desk_pass(struct desk *desk, int64_t milliseconds)
{
    desk->now.now_ns += milliseconds * 1000000;
    desk->now.boot_ns += milliseconds * 1000000;
}

static void pass_until(struct desk *desk, int64_t until_ns)
{
    int64_t left_ns = until_ns - desk->now.now_ns;

    assert_true(left_ns >= 0);
    desk->now.now_ns += left_ns;
    desk->now.boot_ns += left_ns;
}

/* The store does the request. */
static void perform(struct depot *depot, const struct cddpi_link_request *request,
                    struct cddpi_link_answer *out)
{
    const struct row *row = depot_find(depot, request->key);
    bool is_set = request->kind == CDDPI_LINK_COMPARE_SET && row == NULL;

    *out = (struct cddpi_link_answer){.status = CDDP_OK, .is_set = is_set, .error = ""};
    if (request->kind == CDDPI_LINK_SET || is_set) {
        depot_set(depot, request->key, request->value, request->bytes);
        row = depot_find(depot, request->key);
    }
    if (request->kind == CDDPI_LINK_RECONNECT || request->kind == CDDPI_LINK_SET) {
        return;
    }
    if (row == NULL) {
        out->status = request->kind == CDDPI_LINK_GET ? CDDP_ERR_TIMEOUT : CDDP_ERR_NOT_FOUND;
        return;
    }
    out->value = row->value;
    out->bytes = row->bytes;
}

static void be_late(struct depot *depot, const struct cddpi_link_request *request)
{
    bool is_event = request->kind == CDDPI_LINK_COMPARE_SET;

    if ((is_event || request->kind == CDDPI_LINK_SET) && depot->late_count < MOST_LATE) {
        depot->is_late_event[depot->late_count] = is_event;
        fill(&depot->late[depot->late_count++], request->key, request->value, request->bytes);
    }
}

static void take(struct desk *desk, enum cddpi_link_side side,
                 const struct cddpi_link_answer *answer)
{
    cddpi_link_take(&desk->link, side, &desk->now, answer, &desk->event);
}

void desk_step(struct desk *desk, enum cddpi_link_side side, enum fate fate)
{
    struct cddpi_link_request *request = &desk->request;
    struct cddpi_link_answer answer;

    desk->event.kind = CDDPI_EVENT_NONE;
    cddpi_link_next(&desk->link, side, &desk->now, request);
    if (request->kind == CDDPI_LINK_OVER || request->kind == CDDPI_LINK_WAIT) {
        if (request->kind == CDDPI_LINK_WAIT) {
            pass_until(desk, request->until_ns);
        }
        return;
    }
    if (fate == ANSWERED || fate == UNANSWERED || fate == BROKEN_DONE) {
        perform(desk->depot, request, &answer);
    } else if (fate == LATE) {
        be_late(desk->depot, request);
    }
    if (fate == BROKEN || fate == BROKEN_DONE) {
        answer = (struct cddpi_link_answer){.status = CDDP_ERR_IO, .error = "it has ended"};
    } else if (fate != ANSWERED) {
        pass_until(desk, request->until_ns);
        answer = (struct cddpi_link_answer){.status = CDDP_ERR_TIMEOUT, .error = "no answer"};
    } else if (answer.status == CDDP_ERR_TIMEOUT) {
        desk_pass(desk, request->wait_ms); /* there is no such key yet */
    }
    take(desk, side, &answer);
}

void desk_fail(struct desk *desk, enum cddpi_link_side side, cddp_status status, const char *error)
{
    const struct cddpi_link_answer answer = {.status = status, .error = error};

    cddpi_link_next(&desk->link, side, &desk->now, &desk->request);
    take(desk, side, &answer);
}

void desk_tell_all(struct desk *desk)
{
    while (desk->link.teller.first != NULL) {
        desk_step(desk, CDDPI_LINK_TELLER, ANSWERED);
        assert_int_not_equal(desk->request.kind, CDDPI_LINK_OVER);
    }
}

void desk_look_around(struct desk *desk)
{
    int64_t look_ns = desk->link.hearer.look_ns;

    while (desk->link.hearer.look_ns == look_ns) {
        desk_step(desk, CDDPI_LINK_HEARER, ANSWERED);
        assert_int_not_equal(desk->request.kind, CDDPI_LINK_OVER);
    }
}

void depot_beat(struct depot *depot, int node, int number)
{
    char key[32];
    char text[16];

    snprintf(key, sizeof key, "job/beat/%d", node);
    depot_set(depot, key, text, (size_t)snprintf(text, sizeof text, "%d", number));
}

void depot_leave_last_word(struct depot *depot, int node)
{
    char key[32];

    snprintf(key, sizeof key, "job/beat/%d", node);
    depot_set(depot, key, CDDPI_NODE_GONE, strlen(CDDPI_NODE_GONE));
}

int desk_losses(struct desk *desk, int node)
{
    int count = 0;

    desk_tell_all(desk);
    for (int i = 0; i < depot_events(desk->depot); i++) {
        struct cddpi_node_event event = depot_event(desk->depot, i);

        count += event.kind == CDDPI_EVENT_LOST && event.node == node;
    }
    return count;
}
