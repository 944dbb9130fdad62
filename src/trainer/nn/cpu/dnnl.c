/* dnnl.c - owns oneDNN's engine, and creates and runs primitives. */
#include "nn/cpu/dnnl.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_left.h"
#include "kernels/cpu/isa.h"
#include "nn/model_state.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* address space for the code that oneDNN generates without checking for failure */
enum { CODE_BYTES = 8 << 20 };

cddp_status cddpi_dnnl_check(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success:
        return CDDP_OK;
    case dnnl_out_of_memory:
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: oneDNN has no memory", what);
    case dnnl_unimplemented:
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: this oneDNN cannot do it", what);
    default:
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: oneDNN fails with status %d", what,
                          (int)status);
    }
}

#ifdef __x86_64__
/* oneDNN accepts a limit only before its first use in the process. */
static void limit_instructions(void)
{
    static const dnnl_cpu_isa_t limits[] = {
        [CDDPI_ISA_LEVEL_GENERIC] = dnnl_cpu_isa_sse41,
        [CDDPI_ISA_LEVEL_AVX2] = dnnl_cpu_isa_avx2,
        [CDDPI_ISA_LEVEL_AVX512] = dnnl_cpu_isa_avx512_core,
    };
    enum cddpi_isa level;
    bool amx;

    if (cddpi_isa_limit(&level, &amx) &&
        dnnl_set_max_cpu_isa(amx ? cddpi_dnnl_every_isa : limits[level]) != dnnl_success) {
        cddpi_log(CDDPI_LOG_WARN,
                  "oneDNN was used in this process before, so CDDP_MAX_ISA does not hold for it");
    }
}
#else
static void limit_instructions(void)
{
    /* the values of the variable are names of x86 instruction sets */
}
#endif

void cddpi_dnnl_limit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, limit_instructions);
}

cddp_status cddpi_dnnl_get(struct cddpi_model *model, struct cddpi_dnnl **out)
{
    struct cddpi_dnnl *dnnl = model->dnnl;
    cddp_status status;

    if (dnnl != NULL) {
        *out = dnnl;
        return CDDP_OK;
    }
    dnnl = cddpi_zalloc(sizeof *dnnl);
    CDDPI_TRY_MEMORY(dnnl != NULL, "oneDNN: no memory for %zu bytes", sizeof *dnnl);
    CDDPI_TRY_GOTO(fail, status,
                   cddpi_dnnl_check(dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0), "engine"));
    CDDPI_TRY_GOTO(
        fail, status,
        cddpi_dnnl_check(dnnl_stream_create(&dnnl->stream, dnnl->engine, dnnl_stream_default_flags),
                         "stream"));
    model->dnnl = dnnl;
    *out = dnnl;
    return CDDP_OK;

fail:
    cddpi_dnnl_destroy(dnnl);
    return status;
}

void cddpi_dnnl_destroy(struct cddpi_dnnl *dnnl)
{
    if (dnnl == NULL) {
        return;
    }
    if (dnnl->stream != NULL) {
        dnnl_stream_destroy(dnnl->stream);
    }
    if (dnnl->engine != NULL) {
        dnnl_engine_destroy(dnnl->engine);
    }
    cddpi_free(dnnl);
}

static dnnl_status_t append_post(dnnl_primitive_attr_t attributes, unsigned post)
{
    dnnl_post_ops_t ops;
    dnnl_status_t status = dnnl_post_ops_create(&ops);

    if (status != dnnl_success) {
        return status;
    }
    if ((post & CDDPI_POST_ADD) != 0) {
        status = cddpi_dnnl_append_sum(ops);
    }
    if (status == dnnl_success && (post & CDDPI_POST_RELU) != 0) {
        status = cddpi_dnnl_append_relu(ops);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_set_post_ops(attributes, ops);
    }
    dnnl_post_ops_destroy(ops);
    return status;
}

static cddp_status make_attributes(unsigned post, const char *what, dnnl_primitive_attr_t *out)
{
    dnnl_status_t status = dnnl_primitive_attr_create(out);

    if (status != dnnl_success) {
        return cddpi_dnnl_check(status, what);
    }
    /* our arena provides scratch memory, so that plans share it */
    status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && post != 0) {
        status = append_post(*out, post);
    }
    if (status != dnnl_success) {
        dnnl_primitive_attr_destroy(*out);
    }
    return cddpi_dnnl_check(status, what);
}

cddp_status cddpi_dnnl_describe(struct cddpi_dnnl *dnnl, const struct cddpi_dnnl_request *request,
                                dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attributes;
    cddp_status status;

    CDDPI_TRY(make_attributes(request->post, request->what, &attributes));
    status = cddpi_dnnl_check(cddpi_dnnl_make(dnnl->engine, request, attributes, out),
                              request->what);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

cddpi_md cddpi_dnnl_query(const_dnnl_primitive_desc_t desc, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(desc, what, 0);
}

const char *cddpi_dnnl_name(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;

    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        name == NULL) {
        return "ref:unnamed"; /* without a name it counts as slow */
    }
    return name;
}

bool cddpi_dnnl_is_fast(const_dnnl_primitive_desc_t desc)
{
    return cddpi_dnnl_is_generated(cddpi_dnnl_name(desc));
}

/* A word in the name says so: "ref:any", "bnorm_ref:any", "simple_nchw:any", "gemm:ref". */
bool cddpi_dnnl_is_reference(const char *name)
{
    static const char *const words[] = {"ref", "reference", "simple", "naive"};
    static const char separators[] = ":_ ";

    for (const char *word = name; *word != '\0'; word += strspn(word, separators)) {
        size_t length = strcspn(word, separators);

        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            if (length == strlen(words[i]) && strncmp(word, words[i], length) == 0) {
                return true;
            }
        }
        word += length;
    }
    return false;
}

static cddp_status add_arg(struct cddpi_primitive *primitive, int arg, cddpi_md layout)
{
    dnnl_exec_arg_t *slot = &primitive->args[primitive->arg_count];

    assert(primitive->arg_count < CDDPI_PRIMITIVE_ARGS);
    CDDPI_TRY(cddpi_dnnl_check(
        dnnl_memory_create(&slot->memory, layout, primitive->dnnl->engine, DNNL_MEMORY_NONE),
        "memory object"));
    slot->arg = arg;
    primitive->set[primitive->arg_count++] = NULL;
    return CDDP_OK;
}

cddp_status cddpi_primitive_args(struct cddpi_primitive *primitive, int count, const int *args,
                                 const cddpi_md *layouts)
{
    for (int i = 0; i < count; i++) {
        if (layouts[i] != NULL) {
            CDDPI_TRY(add_arg(primitive, args[i], layouts[i]));
        }
    }
    return CDDP_OK;
}

int cddpi_primitive_workspace(struct cddpi_primitive *primitive, struct cddpi_plan *plan, int index)
{
    cddpi_md layout = cddpi_dnnl_query(primitive->desc, dnnl_query_workspace_md);
    size_t bytes = layout != NULL ? dnnl_memory_desc_get_size(layout) : 0;

    return bytes > 0 ? cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH) : -1;
}

cddp_status cddpi_primitive_init(struct cddpi_primitive *primitive, struct cddpi_dnnl *dnnl,
                                 dnnl_primitive_desc_t desc, struct cddpi_plan *plan,
                                 const struct cddpi_plan_part *part, enum cddpi_lifetime lifetime)
{
    struct cddpi_plan_part told = *part;
    cddpi_md scratch = cddpi_dnnl_query(desc, dnnl_query_scratchpad_md);
    size_t bytes = scratch != NULL ? dnnl_memory_desc_get_size(scratch) : 0;

    *primitive = (struct cddpi_primitive){.dnnl = dnnl, .desc = desc, .scratch = -1};
    told.reference = cddpi_dnnl_is_reference(cddpi_dnnl_name(desc));
    if (part->what != NULL) {
        cddpi_plan_part(plan, cddpi_dnnl_name(desc), &told);
    }
    CDDPI_TRY(cddpi_address_space_need(CODE_BYTES, "a kernel of oneDNN"));
    CDDPI_TRY(cddpi_dnnl_check(dnnl_primitive_create(&primitive->handle, desc), "primitive"));
    if (bytes > 0) {
        /* scratch memory is the first argument, so that the run can fill it in */
        CDDPI_TRY(add_arg(primitive, DNNL_ARG_SCRATCHPAD, scratch));
        primitive->scratch = cddpi_plan_buffer(plan, part->op, bytes, lifetime);
    }
    return CDDP_OK;
}

cddp_status cddpi_primitive_reorder(struct cddpi_primitive *primitive, struct cddpi_dnnl *dnnl,
                                    cddpi_md from, cddpi_md to)
{
    *primitive = (struct cddpi_primitive){.dnnl = dnnl, .scratch = -1};
    CDDPI_TRY(cddpi_dnnl_check(dnnl_reorder_primitive_desc_create(
                                   &primitive->desc, from, dnnl->engine, to, dnnl->engine, NULL),
                               "reorder"));
    if (cddpi_dnnl_is_reference(cddpi_dnnl_name(primitive->desc))) {
        cddpi_primitive_fini(primitive);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "reorder: oneDNN has no kernel for it");
    }
    CDDPI_TRY(cddpi_address_space_need(CODE_BYTES, "a kernel of oneDNN"));
    CDDPI_TRY(
        cddpi_dnnl_check(dnnl_primitive_create(&primitive->handle, primitive->desc), "reorder"));
    CDDPI_TRY(add_arg(primitive, DNNL_ARG_FROM, from));
    return add_arg(primitive, DNNL_ARG_TO, to);
}

static cddp_status point(struct cddpi_primitive *primitive, int slot, const void *pointer)
{
    void *handle = (void *)(uintptr_t)pointer; /* oneDNN does not write to its inputs */

    if (primitive->set[slot] == handle) {
        return CDDP_OK;
    }
    primitive->set[slot] = handle;
    return cddpi_dnnl_check(dnnl_memory_set_data_handle(primitive->args[slot].memory, handle),
                            "memory object");
}

cddp_status cddpi_primitive_run(const struct cddpi_exec *exec, struct cddpi_primitive *primitive,
                                const void *const *pointers)
{
    int first = primitive->scratch >= 0 ? 1 : 0;

    if (primitive->scratch >= 0) {
        CDDPI_TRY(point(primitive, 0, cddpi_exec_buffer(exec, primitive->scratch)));
    }
    for (int i = first; i < primitive->arg_count; i++) {
        CDDPI_TRY(point(primitive, i, pointers[i - first]));
    }
    return cddpi_dnnl_check(dnnl_primitive_execute(primitive->handle, primitive->dnnl->stream,
                                                   primitive->arg_count, primitive->args),
                            "primitive");
}

void cddpi_primitive_fini(struct cddpi_primitive *primitive)
{
    for (int i = 0; i < primitive->arg_count; i++) {
        dnnl_memory_destroy(primitive->args[i].memory);
    }
    if (primitive->handle != NULL) {
        dnnl_primitive_destroy(primitive->handle);
    }
    if (primitive->desc != NULL) {
        dnnl_primitive_desc_destroy(primitive->desc);
    }
    *primitive = (struct cddpi_primitive){.scratch = -1};
}
