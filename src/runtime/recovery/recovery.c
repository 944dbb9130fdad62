/* recovery.c - owns the public handle: what a program registers as its loop's state, and what
 * happens where a step begins. */
#include "recovery/recovery.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/types.h"
#include "group/engine/group_entry.h"
#include "group/on_device.h"

#include <cddp/exchange.h>

cddp_status cddpi_recovery_ask(cddp_recovery *recovery, const char *call)
{
    CDDPI_TRY(cddpi_handle_check((struct cddpi_handle *)recovery, CDDPI_HANDLE_RECOVERY, call));
    return cddpi_group_enter_kept(recovery->group, call);
}

cddp_status cddpi_recovery_begin_call(cddp_recovery *recovery, const char *call)
{
    CDDPI_TRY(cddpi_recovery_ask(recovery, call));
    if (cddpi_handle_is_nested(&recovery->group->handle)) {
        return cddpi_group_leave(
            recovery->group,
            cddpi_fail(CDDP_ERR_STATE, "%s: another call of this thread is not over", call));
    }
    return CDDP_OK;
}

static cddp_status list_nothing(void *self) /* the program has done it */
{
    (void)self;
    return CDDP_OK;
}

static void log_warning(void *self, const char *text)
{
    (void)self;
    cddpi_log(CDDPI_LOG_WARN, "%s", text);
}

static void log_news(void *self, const char *text)
{
    (void)self;
    cddpi_log(CDDPI_LOG_WARN, "recovery: %s", text);
}

static cddp_status read_options(const cddp_recovery_options *options, cddp_recovery_options *out)
{
    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("recovery options", "CDDP_RECOVERY_OPTIONS_INIT", options,
                                    sizeof *out, out));
        CDDPI_TRY(cddpi_reserved_check("recovery options", &out->reserved, sizeof out->reserved));
    }
    return out->flags == 0 ? CDDP_OK
                           : cddpi_fail(CDDP_ERR_UNAVAILABLE, "recovery_create: unknown flags 0x%x",
                                        (unsigned)out->flags);
}

/* The launcher's memory is that of the job's ranks: those of a part of them would find what another
 * part has kept. */
static cddp_status check_group(const cddp_group *group)
{
    int ranks = cddp_group_world_size(group);

    return cddpi_env_integer(CDDPI_ENV_WORLD_SIZE, 1, INT32_MAX, ranks) == ranks
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "recovery_create: the group does not have all ranks of the job");
}

cddp_status cddp_recovery_create(cddp_group *group, const cddp_recovery_options *options,
                                 cddp_recovery **out)
{
    cddp_recovery_options read = CDDP_RECOVERY_OPTIONS_INIT;
    cddp_recovery *recovery;

    CDDPI_ENTER_GROUP(group, "recovery_create");
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_create: out is NULL");
    }
    CDDPI_TRY(read_options(options, &read));
    CDDPI_TRY(check_group(group));
    recovery = cddpi_zalloc(sizeof *recovery);
    CDDPI_TRY_MEMORY(recovery != NULL, "recovery_create: no memory");
    cddpi_handle_init(&recovery->handle, CDDPI_HANDLE_RECOVERY);
    recovery->group = group;
    cddpi_group_ref(group);
    recovery->device = cddpi_group_on_device(group);
    recovery->run = cddpi_hash_text(cddpi_hash_start, read.name);
    recovery->every = read.every_steps;
    recovery->layout = cddpi_hash_start;
    recovery->owner = (struct cddpi_keep_owner){.name = "recovery",
                                                .self = recovery,
                                                .is_frugal = true,
                                                .list = list_nothing,
                                                .fetch = cddpi_recovery_fetch,
                                                .send = cddpi_recovery_send,
                                                .warn = log_warning,
                                                .tell = log_news};
    *out = recovery;
    return CDDP_OK;
}

static void dismantle(cddp_recovery *recovery)
{
    cddpi_keep_close(&recovery->keep);
    cddpi_keep_clear(&recovery->state);
    cddpi_recovery_release_copies(recovery);
    cddpi_free(recovery->names);
    cddpi_handle_release(&recovery->handle, sizeof *recovery);
}

void cddp_recovery_destroy(cddp_recovery *recovery)
{
    cddp_group *group;

    if (recovery == NULL ||
        !cddpi_handle_enter_last(&recovery->handle, CDDPI_HANDLE_RECOVERY, "recovery_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(
            &recovery->handle)) { /* a forked child has only a copy of its memory */
        cddpi_handle_end(&recovery->handle);
        return;
    }
    group = recovery->group;
    if (!cddpi_handle_enter_last(&group->handle, CDDPI_HANDLE_GROUP, "recovery_destroy")) {
        (void)cddpi_handle_leave(&recovery->handle, CDDP_OK);
        return;
    }
    if (cddpi_handle_is_nested(&group->handle)) { /* the call that runs it needs the handle */
        cddpi_log(CDDPI_LOG_WARN, "recovery_destroy: another call of this thread is not over; "
                                  "nothing was done");
        (void)cddpi_group_leave(group, CDDP_OK);
        (void)cddpi_handle_leave(&recovery->handle, CDDP_OK);
        return;
    }
    dismantle(recovery);
    (void)cddpi_group_leave(group, CDDP_OK);
    cddpi_group_unref(group);
}

cddp_status cddpi_recovery_name(cddp_recovery *recovery, const char *call, const char *name,
                                uint64_t hash, char kind, uint64_t total)
{
    uint64_t *names;

    if (recovery->is_begun) {
        return cddpi_fail(CDDP_ERR_STATE, "%s: %s: the first step has begun", call, name);
    }
    for (size_t i = 0; i < recovery->name_count; i++) {
        if (recovery->names[i] == hash) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %s: the name is taken", call, name);
        }
    }
    names = cddpi_grow(recovery->names, &recovery->name_room, recovery->name_count + 1,
                       sizeof *names);
    CDDPI_TRY_MEMORY(names != NULL, "%s: no memory for a list of names", call);
    recovery->names = names;
    names[recovery->name_count++] = hash;
    recovery->layout = cddpi_hash_add(recovery->layout, hash);
    recovery->layout = cddpi_hash_add(recovery->layout, (unsigned char)kind);
    recovery->layout = cddpi_hash_add(recovery->layout, total);
    if (kind != 'c') {
        recovery->state.whole += total;
        recovery->state.cover += cddpi_keep_cover(hash, 0, total);
    }
    return CDDP_OK;
}

cddp_status cddp_recovery_add_callbacks(cddp_recovery *recovery,
                                        const cddp_recovery_callbacks *callbacks)
{
    cddp_recovery_callbacks read = CDDP_RECOVERY_CALLBACKS_INIT;

    CDDPI_ENTER_RECOVERY(recovery, "recovery_add_callbacks");
    if (callbacks == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add_callbacks: callbacks is NULL");
    }
    CDDPI_TRY(cddpi_struct_read("recovery callbacks", "CDDP_RECOVERY_CALLBACKS_INIT", callbacks,
                                sizeof read, &read));
    if (read.name == NULL || read.save == NULL || read.load == NULL || read.bytes == 0 ||
        read.bytes > SIZE_MAX / 2 / CDDPI_KEEP_CALLS / CDDPI_MACHINE_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add_callbacks: %s",
                          read.name == NULL   ? "name is NULL"
                          : read.save == NULL ? "save is NULL"
                          : read.load == NULL ? "load is NULL"
                                              : "bytes is out of range");
    }
    if (recovery->state.call_count == CDDPI_KEEP_CALLS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_add_callbacks: %s: more than %d", read.name,
                          CDDPI_KEEP_CALLS);
    }
    CDDPI_TRY(cddpi_recovery_name(recovery, "recovery_add_callbacks", read.name,
                                  cddpi_hash_text(cddpi_hash_start, read.name), 'c', read.bytes));
    cddpi_keep_add_calls(&recovery->state, &(struct cddpi_keep_calls){.bytes = read.bytes,
                                                                      .save = read.save,
                                                                      .load = read.load,
                                                                      .owner = read.state,
                                                                      .is_foreign = true});
    return CDDP_OK;
}

/* The first step of these processes: go on from what earlier ones have kept. */
static cddp_status begin(cddp_recovery *recovery, uint64_t *step, cddp_recovery_action *out)
{
    struct cddpi_keep *keep = &recovery->keep;
    bool stops = false;

    recovery->is_begun = true;
    CDDPI_TRY(
        cddpi_keep_open(keep, recovery->group, &recovery->owner, recovery->run, recovery->layout));
    if (keep->rank == 0 && !keep->is_on) {
        cddpi_log(CDDPI_LOG_INFO, "recovery: the launcher holds no memory, so nothing is kept");
    }
    keep->state = recovery->state;
    recovery->state = (struct cddpi_keep_contents){.call_count = 0};
    CDDPI_TRY(cddp_broadcast(recovery->group, step, sizeof *step, CDDP_U8, 0, NULL));
    if (recovery->group->generation > 0) {
        CDDPI_TRY(cddpi_keep_restore(keep, *step));
    }
    CDDPI_TRY(cddpi_keep_begin(keep));
    if (keep->restored.step > 0) {
        *step = keep->restored.step;
        *out = CDDP_RECOVERY_REPLACED;
        return CDDP_OK;
    }
    CDDPI_TRY(cddp_group_should_stop(recovery->group, &stops));
    *out = stops ? CDDP_RECOVERY_STOP : CDDP_RECOVERY_GO_ON;
    return CDDP_OK;
}

/* What ranks tell each other where a step begins; the greatest of each counts. */
enum { STOPS, KEEPS, CAN_KEEP, STEP, MINUS_STEP, NEWS };

static bool is_due(const cddp_recovery *recovery, uint64_t step)
{
    return recovery->every > 0 ? step % recovery->every == 0 : cddpi_keep_is_due(&recovery->keep);
}

static cddp_status go_on(cddp_recovery *recovery, uint64_t step, cddp_recovery_action *out)
{
    struct cddpi_keep *keep = &recovery->keep;
    bool can_keep = keep->rank == 0 && keep->is_on && !keep->is_off && step > 0;
    int64_t news[NEWS] = {[STOPS] = cddp_stop_requested(),
                          [KEEPS] = can_keep && is_due(recovery, step),
                          [CAN_KEEP] = can_keep,
                          [STEP] = (int64_t)step,
                          [MINUS_STEP] = -(int64_t)step};

    CDDPI_TRY(cddp_all_reduce(recovery->group, news, news, NEWS, CDDP_I64, CDDP_OP_MAX, NULL));
    if (news[STEP] != -news[MINUS_STEP]) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "recovery_step: ranks are at steps %lld to %lld; this one is at %llu",
                          (long long)-news[MINUS_STEP], (long long)news[STEP],
                          (unsigned long long)step);
    }
    cddpi_keep_follow(keep, step);
    if (news[KEEPS] != 0 || (news[STOPS] != 0 && news[CAN_KEEP] != 0)) {
        CDDPI_TRY(cddpi_keep_step(keep, step));
    }
    *out = news[STOPS] != 0 ? CDDP_RECOVERY_STOP : CDDP_RECOVERY_GO_ON;
    return CDDP_OK;
}

cddp_status cddp_recovery_step(cddp_recovery *recovery, uint64_t *step,
                               cddp_recovery_action *out_action)
{
    CDDPI_ENTER_RECOVERY(recovery, "recovery_step");
    if (step == NULL || out_action == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_step: %s is NULL",
                          step == NULL ? "step" : "out_action");
    }
    if (*step > INT64_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "recovery_step: step %llu is too large",
                          (unsigned long long)*step);
    }
    return recovery->is_begun ? go_on(recovery, *step, out_action)
                              : begin(recovery, step, out_action);
}

cddp_status cddp_recovery_refuse(cddp_recovery *recovery)
{
    CDDPI_ENTER_RECOVERY(recovery, "recovery_refuse");
    if (!recovery->is_begun) {
        return cddpi_fail(CDDP_ERR_STATE, "recovery_refuse: no step was begun");
    }
    cddpi_keep_refuse(&recovery->keep);
    return CDDP_OK;
}

cddp_status cddp_recovery_get_info(const cddp_recovery *recovery, cddp_recovery_info *out)
{
    cddp_recovery *entered = (cddp_recovery *)(uintptr_t)recovery; /* keeps other threads out */
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    const struct cddpi_keep *keep;

    CDDPI_ENTER(&entered->group->handle, cddpi_recovery_ask(entered, "recovery_get_info"));
    keep = &recovery->keep;
    info.copies = keep->copies;
    info.spent_ns = (uint64_t)keep->spent_ns;
    info.bytes = keep->copies > 0 ? keep->bytes : 0;
    info.kept_step = keep->kept_step;
    info.restored_step = keep->restored.step;
    return cddpi_struct_fill("recovery info", "CDDP_RECOVERY_INFO_INIT", &info, sizeof info, out);
}
