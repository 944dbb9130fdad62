/* ctl_run.c - reads what cddp-ctl shows of a job. */
#include "support/ctl_run.h"

json_t *read_status(const char *run_dir)
{
    struct launched ctl = {0};
    json_t *status;

    CTL_GIVES(&ctl, 0, "--json", in_work("%s", run_dir), "status");
    status = json_loads(ctl.out, 0, NULL);
    assert_non_null(status);
    launcher_end(&ctl);
    return status;
}

int status_number(const char *run_dir, const char *name)
{
    json_t *status = read_status(run_dir);
    int number = (int)json_integer_value(json_object_get(status, name));

    json_decref(status);
    return number;
}
